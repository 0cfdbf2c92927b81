"""Curves and pictures: the arrays are the library's numbers, the pictures show them, files repeat to the byte."""

import numpy as np
import pytest
from click.testing import CliRunner

import filet
from filet.cli.commands.answers import main
from filet.cli.commands.files import KINDS
from filet.planning.strategies import STRATEGIES
from filet.showing import columns, plots

SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 300)
CURVE = filet.account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out")


def parsed(text):
    header, *rows = text.splitlines()
    return dict(zip(header.split(","), np.array([[float(v) for v in row.split(",")] for row in rows]).T, strict=True))


def test_epsilon_against_steps_is_the_accountants_at_every_step():
    curve = columns.epsilon_of_steps(SCHEME, noise_multiplier=1.0, steps=1_000, delta=1e-5, adjacency="zero-out",
                                    analyses=["refined", "note"], points=4)  # fmt: skip
    assert curve["steps"].tolist() == [1, 112, 445, 1000]
    for analysis in ("refined", "note"):
        last = filet.account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out", analysis=analysis)
        assert curve[f"epsilon_{analysis}"][-1] == last.epsilon(1e-5)
        assert (np.diff(curve[f"epsilon_{analysis}"]) > 0).all()
        assert (curve["epsilon_attack"] <= curve[f"epsilon_{analysis}"]).all()
    known = filet.epsilon_lower_bound(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out", delta=1e-5)
    assert curve["epsilon_attack"][-1] == known > 0


def test_delta_against_epsilon_brackets_and_falls():
    curve = columns.delta_of_epsilon(CURVE, points=9)
    assert (curve["delta_lower"] <= curve["delta_upper"]).all()
    assert (curve["delta_attack"] <= curve["delta_upper"]).all()
    assert curve["delta_attack"][0] > 0.5 * curve["delta_upper"][0]
    assert (np.diff(curve["delta_upper"]) < 0).all()
    assert curve["delta_upper"][-1] == pytest.approx(1e-12, rel=0.01)


def test_the_gaussian_trade_off_is_met_by_the_attack_and_the_bound():
    # With every example in every step both columns must enclose Phi(Phi^-1(f) + mu).
    from scipy.special import ndtr, ndtri

    scheme = filet.CappedPoisson(10, 1.0, 10)
    curve = columns.trade_off(filet.account(scheme, noise_multiplier=2.0, steps=4, adjacency="zero-out"), points=13)
    exact = ndtr(ndtri(curve["false_positive_rate"]) + 1.0)
    assert (curve["true_positive_rate_lower"] <= exact * (1 + 1e-6)).all()
    assert (curve["true_positive_rate_upper"] >= exact * (1 - 1e-6)).all()
    assert (curve["true_positive_rate_lower"] >= 0.8 * exact).all()


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_the_attacks_power_stays_below_the_bound_and_above_guessing(adjacency):
    accountant = filet.Accountant(adjacency)
    accountant.compose(SCHEME, 1.0, 1_000)
    accountant.compose(filet.CappedPoisson(60_000, 0.01, 700, overflow="reject", cycle_length=3), 2.0, 50)
    accountant.compose_gaussian(4.0)
    curve = columns.trade_off(accountant.curve(), points=9)
    f = curve["false_positive_rate"]
    assert (f <= curve["true_positive_rate_lower"]).all()
    assert (curve["true_positive_rate_lower"] <= curve["true_positive_rate_upper"]).all()
    assert curve["true_positive_rate_lower"][0] > 2 * f[0]


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_batch_sizes_sum_to_one_and_stop_at_the_cap(overflow):
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 260, overflow=overflow)
    curve = columns.batch_sizes(scheme)
    assert curve["probability"].sum() == pytest.approx(1.0, abs=1e-8)
    assert curve["probability_without_cap"].sum() == pytest.approx(1.0, abs=1e-8)
    assert (curve["probability"][curve["size"] > 260] == 0).all()
    assert curve["size"] @ curve["probability"] == pytest.approx(scheme.expected_batch_size, rel=1e-7)


def test_utilization_at_a_target_is_best_for_reject_and_worst_for_the_union_strategy():
    curve = columns.utilization_of_cap(dataset_size=60_000, max_batch_sizes=[256], noise_multiplier=1.0, steps=14_000,
                                      epsilon=3.0, delta=1e-5, adjacency="add-remove")  # fmt: skip
    union, note, refined, reject = (
        float(curve[f"utilization_{s.overflow}_{s.analysis}"][0]) for s in reversed(STRATEGIES)
    )
    assert 0.55 < union < note < refined < reject
    assert (note, refined, reject) == pytest.approx((0.81, 0.89, 0.97), abs=0.01)


def test_csv_keeps_every_bit():
    curve = columns.delta_of_epsilon(CURVE, points=5)
    back = parsed(curve.to_csv())
    for name in curve.arrays:
        assert (back[name] == curve[name]).all()


def drawn():
    yield (
        plots.plot_epsilon_of_steps,
        columns.epsilon_of_steps(
            SCHEME,
            noise_multiplier=1.0,
            steps=100,
            delta=1e-5,
            adjacency="zero-out",
            analyses=["refined", "union"],
            points=3,
        ),
    )
    yield plots.plot_delta_of_epsilon, columns.delta_of_epsilon(CURVE, points=5)
    yield plots.plot_trade_off, columns.trade_off(CURVE, points=5)
    yield plots.plot_batch_sizes, columns.batch_sizes(SCHEME)


def test_every_picture_labels_axes_assumptions_and_lines_and_uses_the_axes_it_is_given():
    for draw, curve in drawn():
        ax = plots.new_axes()
        assert draw(curve, ax) is ax
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert any("n=60000" in text.get_text() for text in ax.texts)
        assert ax.get_legend() is not None
        colours = [line.get_color() for line in ax.lines]
        styles = [(line.get_color(), line.get_linestyle()) for line in ax.lines]
        assert len(set(styles)) == len(styles)
        assert set(colours) <= {plots.BLUE, plots.ORANGE, plots.GREEN, plots.RED, plots.GREY}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_saved_pictures_repeat_to_the_byte_and_leave_nothing_else(tmp_path, suffix):
    for name in ("a", "b"):
        plots.save(plots.plot_batch_sizes(columns.batch_sizes(SCHEME)), tmp_path / f"{name}.{suffix}")
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes()) > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_writes_pictures_and_numbers(tmp_path, kind):
    options = ["--dataset-size", "60000", "--expected-batch-size", "256", "--max-batch-size", "300",
               "--noise-multiplier", "1", "--steps", "100", "--adjacency", "zero-out", "--delta", "1e-5",
               "--points", "2"]  # fmt: skip
    if kind in ("utilization", "frontier"):
        options += ["--epsilon", "1"]
    for suffix in ("svg", "csv"):
        outcome = CliRunner().invoke(main, ["plot", kind, *options, "-o", str(tmp_path / f"a.{suffix}")])
        assert outcome.exit_code == 0, outcome.output
        assert outcome.output == ""
    assert len(parsed((tmp_path / "a.csv").read_text())) >= 2
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
