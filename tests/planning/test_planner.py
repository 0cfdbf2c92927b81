"""Planning: every option meets the target, the search finds the optimum, and the ranking compares like with like."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from filet._numbers import round_up
from filet.accounting.accountant import account
from filet.accounting.terms import Adjacency
from filet.errors import InvalidArgumentError, NoSolutionError
from filet.planning.calibration import calibrate_noise_multiplier
from filet.planning.planner import Plan, plan
from filet.scheme import CappedPoisson, Overflow

SETTING: dict[str, Any] = {"dataset_size": 3_000, "max_batch_size": 48, "steps": 400, "epsilon": 2.0, "delta": 1e-5}
ADJACENCIES = [adjacency.value for adjacency in Adjacency]
NAMES = {"reject", "secret", "truncate", "note", "union", "fixed-size", "microbatches", "ideal"}


@pytest.fixture(scope="module", params=ADJACENCIES)
def planned(request: pytest.FixtureRequest) -> Plan:
    return plan(adjacency=request.param, comparisons=True, **SETTING)


def test_every_option_meets_the_target_by_its_own_account(planned: Plan) -> None:
    assert {option.name for option in planned.options} == NAMES
    for option in planned.options:
        curve = account(option.scheme, noise_multiplier=option.noise_multiplier, steps=option.steps,
                        adjacency=planned.adjacency, analysis=option.analysis)  # fmt: skip
        assert curve.epsilon(planned.delta) == option.epsilon
        assert 0.999 * planned.epsilon <= option.epsilon <= planned.epsilon


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.long
def test_what_cannot_win_is_left_out_unless_asked_for(adjacency: str) -> None:
    usual, everything = (plan(adjacency=adjacency, comparisons=asked, **SETTING) for asked in (False, True))
    assert {option.name for option in usual.options} == NAMES - {"note", "union"}
    assert usual.options == tuple(option for option in everything.options if option.name not in ("note", "union"))
    assert everything.skipped == ()
    (why,) = usual.skipped
    assert "note and union" in why
    assert "cannot win" in why
    assert "comparisons" in why
    with pytest.raises(InvalidArgumentError, match="comparisons=1 is not a bool; pass True or False"):
        plan(adjacency=adjacency, comparisons=1, **SETTING)  # type: ignore[arg-type]


def test_every_option_costs_the_hardware_no_more_than_the_steps_and_the_batch_allow(planned: Plan) -> None:
    budget = SETTING["steps"] * SETTING["max_batch_size"]
    for option in planned.options:
        assert 0.98 * budget <= option.hardware_rows <= budget * (1 + 1e-12), option.name
        assert 0.0 < option.utilization <= 1.0 + 1e-12
        assert option.wasted_percent == pytest.approx(100 * (1 - option.utilization), abs=1e-9)
        if option.fixed_shape:
            assert option.scheme.max_batch_size == option.max_batch_size == SETTING["max_batch_size"]
            assert option.steps == SETTING["steps"]


def test_options_are_ranked_and_nothing_beats_the_ideal(planned: Plan) -> None:
    noises = [option.run_noise for option in planned.options]
    assert noises == sorted(noises)
    assert planned.options[0].name == "ideal"
    assert planned.options[0].ratio_to_ideal == 1.0
    assert planned.best.name in ("reject", "truncate", "fixed-size")
    assert all(
        planned.best.run_noise <= planned.option(name).run_noise for name in ("reject", "truncate", "fixed-size")
    )
    assert planned.best.run_noise <= planned.option("union").run_noise
    # The refined analysis proves more about the same sampler, so its best can only be better.
    assert planned.option("truncate").run_noise <= planned.option("note").run_noise * (1 + 1e-3)
    for option in planned.options:
        assert option.effective_noise == pytest.approx(option.noise_multiplier / option.expected_batch_size)
        assert option.ratio_to_ideal == pytest.approx(option.run_noise / noises[0])


@pytest.mark.parametrize(
    ("name", "overflow", "analysis"),
    [("reject", "reject", "refined"), ("truncate", "truncate", "refined"), ("note", "truncate", "note")],
)
@pytest.mark.long
def test_the_search_finds_what_a_grid_finds(planned: Plan, name: str, overflow: str, analysis: str) -> None:
    """Brute force over the mean batch, with certified noise: no grid point is better by more than a thousandth."""
    n, cap = SETTING["dataset_size"], SETTING["max_batch_size"]
    best = math.inf
    for mean in np.geomspace(0.4 * cap, 3.0 * cap, 16):
        scheme = CappedPoisson(n, mean / n, cap, Overflow(overflow))
        try:
            noise = calibrate_noise_multiplier(
                scheme, steps=SETTING["steps"], epsilon=SETTING["epsilon"], delta=SETTING["delta"],
                adjacency=planned.adjacency, analysis=analysis)  # fmt: skip
        except InvalidArgumentError:
            continue
        best = min(best, noise / scheme.expected_batch_size)
    found = planned.option(name).effective_noise
    assert found <= best * (1 + 1e-3)
    assert found >= best * 0.97  # the grid is fine enough to say something


def table_rows(text: str) -> list[list[str]]:
    """Cells of the options' lines, parts side by side again, without the star."""
    _, *parts = text.replace("no cap", "no-cap").split("\noption")
    lines = [[line.replace(" *", "").split() for line in part.splitlines()[1:] if line.split()] for part in parts]
    named = [[cells for cells in part if cells[0] in NAMES] for part in lines]
    return [[*first, *(cell for other in rest for cell in other[1:])] for first, *rest in zip(*named, strict=True)]


def test_the_table_is_plain_text_with_every_option_and_fits_a_terminal(planned: Plan) -> None:
    title, *lines = planned.table(110).splitlines()
    assert title == f"dataset_size=3000, epsilon=2.0, delta=1e-05, {planned.adjacency}; * best of fixed shape"
    assert len(lines) == 3 + len(planned.options)
    assert len({len(line) for line in lines[2:]}) == 1
    assert sum(" * " in line for line in lines) == 1
    assert max(map(len, planned.table().splitlines())) <= 80


def test_the_columns_name_the_policy_the_overflow_and_what_ranks(planned: Plan) -> None:
    first, second, third, *rows = planned.table(110).splitlines()[1:]
    assert first.split() == ["ranked", "by"]
    assert second.split() == ["run", "noise", "overflow", "sampling", "mean", "rows"]
    names = "option x ideal policy chance batch steps chance noise epsilon batch used"
    assert third.split() == names.split()
    policies = {"ideal": "no cap", "microbatches": "no cap", "reject": "reject", "secret": "reject"}
    for row, option in zip(rows, planned.options, strict=True):
        assert f" {policies.get(option.name, 'truncate')}  " in row
        assert f" {round_up(option.overflow_probability, 2)}  " in row


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_figures_copied_from_the_table_meet_the_target_at_every_width(planned: Plan, width: int) -> None:
    rows = table_rows(planned.table(width))
    assert rows == table_rows(planned.table(1_000))
    for row, option in zip(rows, planned.options, strict=True):
        name, ratio, _, overflow, _, steps, probability, noise, epsilon, mean, used = row
        assert name == option.name
        assert float(mean) == pytest.approx(option.expected_batch_size, abs=0.051)
        assert float(used.rstrip("%")) == pytest.approx(100 * option.utilization, abs=0.051)
        assert Decimal(probability) <= Decimal(option.scheme.sampling_probability)
        assert Decimal(noise) >= Decimal(option.noise_multiplier)
        assert Decimal(epsilon) >= Decimal(option.epsilon)
        assert float(overflow) == pytest.approx(option.overflow_probability, rel=0.11, abs=1e-300)
        assert [len(text.lstrip("0.").replace(".", "")) for text in (probability, noise, epsilon, ratio)] == [
            5,
            6,
            6,
            4,
        ]  # zeros are kept
        if width == 80:
            scheme = replace(option.scheme, sampling_probability=float(probability))
            copied = account(scheme, noise_multiplier=float(noise), steps=int(steps), adjacency=planned.adjacency,
                             analysis=option.analysis)  # fmt: skip
            assert copied.epsilon(planned.delta) <= planned.epsilon


@pytest.mark.parametrize("width", [80, 60])
def test_the_table_of_a_large_run_fits_a_terminal_too(planned: Plan, width: int) -> None:
    option = replace(planned.best, steps=10_000_000, max_batch_size=1_048_576, noise_multiplier=123.456789,
                     scheme=CappedPoisson(10**9, 1.23456789e-7, 200))  # fmt: skip
    large = replace(
        planned, dataset_size=10**9, options=(option,), skipped=("union (batch 3, 5 steps): " + "why " * 30,)
    )
    assert max(map(len, large.table(width).splitlines())) <= width
    for figure in ("10000000", "1048576", "123.457", "1.2345e-07"):
        assert figure in large.table(width)


def test_a_plan_shows_briefly_in_a_console_and_as_a_table_in_a_notebook(planned: Plan) -> None:
    text = repr(planned)
    assert len(text) < 160
    assert f"best={planned.best.name}: noise_multiplier=" in text
    assert "epsilon=2.0, delta=1e-05" in text
    page = planned._repr_html_()
    assert page.count("<tr>") == 1 + len(planned.options)
    assert f"<td><b>{planned.best.name}</b></td>" in page
    for option in planned.options:
        assert round_up(option.noise_multiplier, 6, zeros=True) in page
    with pytest.raises(InvalidArgumentError, match="width=3 is below 20"):
        planned.table(3)


def test_to_dict_is_json_and_leads_back_to_the_options(planned: Plan) -> None:
    data = json.loads(json.dumps(planned.to_dict(), allow_nan=False))
    assert data["adjacency"] == planned.adjacency.value
    assert data["options"][data["best"]]["name"] == planned.best.name
    for entry, option in zip(data["options"], planned.options, strict=True):
        assert entry["noise_multiplier"] == option.noise_multiplier
        assert entry["sampling_probability"] == option.scheme.sampling_probability


@pytest.mark.long
def test_several_batches_at_equal_hardware_epochs_cost_the_same() -> None:
    found = plan(
        dataset_size=3_000, max_batch_size=[50, 100], hardware_epochs=4, epsilon=2.0, delta=1e-5, adjacency="zero-out"
    )
    assert len(found.options) == 2 * (len(NAMES) - 2)
    fixed = [option for option in found.options if option.fixed_shape]
    assert {(option.max_batch_size, option.steps) for option in fixed} == {(50, 240), (100, 120)}
    assert {option.hardware_rows for option in fixed} == {12_000.0}


@pytest.mark.long
def test_several_settings_are_compared_with_one_ideal_so_that_the_ratios_rank() -> None:
    found = plan(dataset_size=3_000, max_batch_size=[50, 100], steps=200, epsilon=2.0, delta=1e-5, adjacency="zero-out")
    ratios = [option.ratio_to_ideal for option in found.options]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0
    first = found.options[0]
    assert (first.name, first.max_batch_size) == ("ideal", 100)
    for option in found.options:
        assert option.ratio_to_ideal == option.run_noise / first.run_noise


def test_the_recipe_shows_the_best_in_three_ways_and_its_epsilon(planned: Plan) -> None:
    best = planned.best
    text = planned.recipe(width=60)
    assert text.startswith(f"{best.name}: ")
    assert f"epsilon {round_up(best.epsilon, 6, zeros=True)}" in text
    assert best.command() in text.replace(" \\\n   ", "")
    assert best.python() in text
    assert text.endswith(best.run_file())


def test_a_batch_that_holds_the_whole_data_set_needs_no_cap() -> None:
    found = plan(dataset_size=50, max_batch_size=64, steps=20, epsilon=4.0, delta=1e-5, adjacency="add-remove")
    assert found.best.ratio_to_ideal == pytest.approx(1.0, abs=1e-3)
    assert found.best.overflow_probability == 0.0


def test_the_table_says_what_was_skipped(planned: Plan) -> None:
    assert replace(planned, skipped=("union: why",)).table().endswith("\nskipped union: why")


def test_where_the_noise_does_not_depend_on_the_probability_batches_are_full() -> None:
    found = plan(
        dataset_size=2_000, max_batch_size=1_000, steps=2_000, epsilon=0.3, delta=1e-5, adjacency="replace-one"
    )
    assert found.best.utilization > 0.85
    assert found.best.ratio_to_ideal < 1.01


def test_progress_rises_to_one_and_an_interruption_passes_through() -> None:
    seen: list[float] = []
    plan(adjacency="replace-one", **SETTING | {"dataset_size": 500}, progress=lambda share, label: seen.append(share))
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert len(seen) == len(NAMES) - 1  # all but two, and the end

    def interrupt(share: float, label: str) -> None:
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(adjacency="replace-one", **SETTING, progress=interrupt)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": None}, "neither is given"),
        ({"hardware_epochs": 3}, "both are given"),
        ({"steps": None, "hardware_epochs": -1}, "hardware_epochs=-1.0 is not in"),
        ({"steps": None, "hardware_epochs": 1e308}, r"hardware_epochs=1e\+308 take inf steps, above"),
        ({"steps": 0}, "steps=0 is below 1"),
        ({"max_batch_size": []}, "max_batch_size is empty"),
        ({"max_batch_size": 0}, "max_batch_size=0 is below 1"),
        ({"epsilon": 0}, r"epsilon=0.0 is not in \(0, inf\)"),
        ({"delta": 2}, "delta=2.0 is not in"),
        ({"adjacency": "swap"}, "adjacency='swap' is unknown"),
    ],
)
def test_bad_arguments_are_refused_with_the_rule(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        plan(**{"adjacency": "zero-out"} | SETTING | changes)


def test_an_unknown_option_names_the_known_ones(planned: Plan) -> None:
    with pytest.raises(InvalidArgumentError, match="'ideal'"):
        planned.option("shuffle")


def test_a_plan_is_frozen(planned: Plan) -> None:
    with pytest.raises(AttributeError):
        planned.epsilon = 1.0  # type: ignore[misc]
    assert replace(planned, epsilon=1.0).best is planned.best


@pytest.mark.long
def test_a_target_that_no_strategy_meets_is_said_so_by_class() -> None:
    with pytest.raises(NoSolutionError, match="cannot be met by any strategy"):
        plan(dataset_size=1_000, max_batch_size=900, steps=10**7, epsilon=1e-9, delta=1e-30, adjacency="add-remove")


@pytest.mark.long
def test_a_plan_is_near_the_best_where_few_large_losses_decide() -> None:
    """Guesses that err differently at neighbouring probabilities would mislead it: certified noises nearby are no better."""
    ask: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "adjacency": "zero-out"}
    found = plan(dataset_size=1_000_000, max_batch_size=1_024, steps=5_000, **ask)
    best = next(option for option in found.options if option.name == Overflow.REJECT)
    rate, nearby = best.scheme.sampling_probability, []
    for factor in (0.96, 0.98, 0.99, 1.01, 1.02, 1.04):
        scheme = CappedPoisson(1_000_000, rate * factor, 1_024, Overflow.REJECT)
        noise = calibrate_noise_multiplier(scheme, steps=5_000, **ask)
        nearby.append(noise / scheme.expected_batch_size)
    assert best.noise_multiplier / best.scheme.expected_batch_size < 1.002 * min(nearby)
