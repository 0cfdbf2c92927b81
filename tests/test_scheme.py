"""The scheme: checked, frozen, and its probabilities are those of the law of batch sizes."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson, Overflow

SCHEMES = [
    CappedPoisson(30, 0.3, 12), CappedPoisson(30, 0.3, 12, Overflow.REJECT), CappedPoisson(30, 0.3, 40),
    CappedPoisson(30, 1.0, 12), CappedPoisson(31, 0.3, 3, Overflow.REJECT, 4), CappedPoisson(5, 1e-9, 1),
]  # fmt: skip


def exact_law(scheme: CappedPoisson) -> dict[int, float]:
    """Chances of the batch sizes, from the definition."""
    n, p = scheme.group_size, scheme.sampling_probability
    poisson = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    cap = min(scheme.max_batch_size, n)
    if scheme.overflow is Overflow.REJECT:
        fits = math.fsum(poisson[: cap + 1])
        return {k: poisson[k] / fits for k in range(cap + 1)}
    return {**{k: poisson[k] for k in range(cap)}, cap: math.fsum(poisson[cap:])}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_probabilities_follow_from_the_definition(scheme: CappedPoisson) -> None:
    law = exact_law(scheme)
    for size, chance in law.items():
        assert math.exp(scheme.log_batch_size_probability(size)) == pytest.approx(chance, rel=1e-10, abs=1e-300)
    mean = math.fsum(size * chance for size, chance in law.items())
    assert scheme.expected_batch_size == pytest.approx(mean, rel=1e-10)
    assert scheme.inclusion_probability == pytest.approx(mean / scheme.group_size, rel=1e-10)
    assert scheme.utilization == pytest.approx(mean / scheme.max_batch_size, rel=1e-10)
    assert scheme.log_batch_size_probability(scheme.max_batch_size + 1) == -math.inf


def test_overflow_is_the_chance_of_a_larger_poisson_batch() -> None:
    exact = math.fsum(math.comb(30, k) * 0.3**k * 0.7 ** (30 - k) for k in range(13, 31))
    for overflow in Overflow:
        scheme = CappedPoisson(30, 0.3, 12, overflow)
        assert scheme.overflow_probability == pytest.approx(exact, rel=1e-12)
        assert scheme.log_overflow_probability == pytest.approx(math.log(exact), rel=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_dictionary_is_json_and_leads_back(scheme: CappedPoisson) -> None:
    data = json.loads(json.dumps(scheme.to_dict()))
    assert list(data) == [field.name for field in fields(CappedPoisson) if field.init]
    assert CappedPoisson(**data) == scheme


def test_a_scheme_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        SCHEMES[0].max_batch_size = 5  # type: ignore[misc]
    assert len({*SCHEMES, CappedPoisson(30, 0.3, 12)}) == len(SCHEMES)


@pytest.mark.parametrize(("arguments", "words"), [
    ((0, 0.1, 5), "dataset_size=0 is below 1"), ((10, 0.0, 5), "sampling_probability=0.0 is not in"),
    ((10, 5, 5), "batch_size / dataset_size"), ((10, 0.1, 0), "max_batch_size=0 is below 1"),
    ((10, 0.1, 5, "drop"), "overflow='drop' is unknown"), ((10, 0.1, 5, "truncate", 11), "cycle_length=11 is above 10"),
    ((10, 1.0, 5, "reject"), "no batch to accept"), ((2**63, 0.1, 5), "is above 2"),
])  # fmt: skip
def test_what_is_no_scheme_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CappedPoisson(*arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(("size", "mean", "cycle"), [(1_000, 10, 1), (60_000, 256.5, 1), (31, 7, 4), (5, 5, 1)])
def test_a_batch_size_before_the_cap_is_another_way_to_give_the_rate(size: int, mean: float, cycle: int) -> None:
    scheme = CappedPoisson.from_batch_size(size, mean, 8, "reject" if mean < 5 else "truncate", cycle)
    assert scheme.sampling_probability == mean / (size // cycle)
    assert scheme.poisson_batch_size == pytest.approx(mean, rel=1e-15)
    assert scheme.expected_batch_size <= min(mean, 8)  # the other mean is after the cap
    assert scheme == CappedPoisson(size, mean / (size // cycle), 8, scheme.overflow, cycle)


@pytest.mark.parametrize(("arguments", "words"), [
    ((10, 0.0, 5), "poisson_batch_size=0.0 is not in (0, 10]"), ((10, 11, 5), "poisson_batch_size=11.0 is not in (0, 10]"),
    ((10, 6, 5, "truncate", 2), "poisson_batch_size=6.0 is not in (0, 5]"), ((10, "six", 5), "poisson_batch_size='six'"),
    ((0, 1, 5), "dataset_size=0"), ((10, 10, 5, "reject"), "no batch to accept"),
])  # fmt: skip
def test_what_is_no_mean_batch_size_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CappedPoisson.from_batch_size(*arguments)
    assert words in str(caught.value)


def test_epochs_count_expected_draws_before_the_cap() -> None:
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(3) == 10  # whole numbers give no extra step
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(3.001) == 11
    assert CappedPoisson(1_000, 0.1, 50, cycle_length=4).steps_of_epochs(2) == 80
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(0) == 0
    for bad, words in ((-1, "epochs=-1.0 is not in"), (math.inf, "epochs=inf is not"), (1e308, "take inf steps")):
        with pytest.raises(InvalidArgumentError, match=words):
            CappedPoisson(1_000, 0.3, 5).steps_of_epochs(bad)


@pytest.mark.parametrize("cycle", [1, 4])
def test_no_cap_is_as_many_rows_as_a_batch_can_hold(cycle: int) -> None:
    scheme = CappedPoisson.uncapped(31, 0.3, cycle)
    assert (
        scheme
        == CappedPoisson(31, 0.3, None, cycle_length=cycle)
        == CappedPoisson(31, 0.3, 31 // cycle, cycle_length=cycle)
    )
    assert not scheme.capped
    assert CappedPoisson(31, 0.3, 31 // cycle - 1, cycle_length=cycle).capped
    assert scheme.overflow_probability == 0.0
    assert scheme.expected_batch_size == scheme.poisson_batch_size
    assert CappedPoisson.from_batch_size(31, 2.5, None) == CappedPoisson.uncapped(31, 2.5 / 31)


def test_steps_or_epochs_but_not_both() -> None:
    scheme = CappedPoisson(1_000, 0.1, 5)
    assert scheme.checked_steps(7, None) == 7
    assert scheme.checked_steps(None, 2) == 20
    for steps, epochs, words in ((None, None, "neither is given"), (7, 2.0, "both are given")):
        with pytest.raises(InvalidArgumentError, match=words):
            scheme.checked_steps(steps, epochs)


def test_a_notebook_shows_the_public_facts() -> None:
    page = CappedPoisson(60_000, 256 / 60_000, 300, "reject", 4)._repr_html_()
    for fact in ("60000", "4 of 15000 examples", "mean Poisson draw", "300 rows, then reject", "draws above the cap"):
        assert fact in page
    free = CappedPoisson.uncapped(100, 0.1)._repr_html_()
    assert "<td>cap</td><td>none</td>" in free
    assert "above the cap" not in free
