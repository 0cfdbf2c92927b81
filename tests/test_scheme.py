"""The scheme: checked, frozen, and its probabilities are those of the law of batch sizes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from filet.errors import InvalidArgumentError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson, Overflow, Size

SCHEMES = [
    CappedPoisson(30, 0.3, 12), CappedPoisson(30, 0.3, 12, Overflow.REJECT), CappedPoisson(30, 0.3, 40),
    CappedPoisson(30, 0.3, 12, Overflow.REJECT, 1, "secret"), CappedPoisson(30, 0.3, 12, size="at-most"),
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
    assert scheme.expected_batch_size == pytest.approx(mean, rel=1e-10, abs=0)
    assert scheme.inclusion_probability == pytest.approx(mean / scheme.group_size, rel=1e-10, abs=0)
    assert scheme.utilization == pytest.approx(mean / scheme.max_batch_size, rel=1e-10, abs=0)
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
    names = [field.name for field in fields(CappedPoisson) if field.init]
    assert list(data) == (names[:-1] if scheme.size is Size.PUBLIC else names)
    assert CappedPoisson(**data) == scheme


def test_a_scheme_is_frozen_and_hashable() -> None:
    with pytest.raises(FrozenInstanceError):
        SCHEMES[0].max_batch_size = 5  # type: ignore[misc]
    assert len({*SCHEMES, CappedPoisson(30, 0.3, 12)}) == len(SCHEMES)


EXAMPLES = "pass the number of training examples"
RATE = "for a batch size, pass batch_size / dataset_size"
ROWS = "pass the number of rows the hardware takes"
GROUPS = "pass 1 for plain sampling, or the number of groups, at most dataset_size"
GIVES_AWAY = (
    "groups of dataset_size // cycle_length examples tell the number of records; pass cycle_length=1, or size='public'"
)


@pytest.mark.parametrize(("arguments", "message"), [
    ((0, 0.1, 5), f"dataset_size=0 is below 1; {EXAMPLES}"),
    ((2**63, 0.1, 5), f"dataset_size=9223372036854775808 is above 2**63 - 1; {EXAMPLES}"),
    ((10, 0.0, 5), f"sampling_probability=0.0 is not in (0, 1]; {RATE}"),
    ((10, 5, 5), f"sampling_probability=5.0 is not in (0, 1]; {RATE}"),
    ((10, 0.1, 0), f"max_batch_size=0 is below 1; {ROWS}"),
    ((10, 0.1, 5, "drop"), "overflow='drop' is unknown; pass one of 'truncate', 'reject'"),
    ((10, 0.1, 5, "truncate", 11), f"cycle_length=11 is above 10; {GROUPS}"),
    ((10, 0.1, 5, "truncate", 0), f"cycle_length=0 is below 1; {GROUPS}"),
    ((10, 0.1, 5, "truncate", 1, "hidden"), "size='hidden' is unknown; pass one of 'public', 'at-most', 'secret'"),
    ((10, 0.1, 5, "truncate", 1, "secret"), "size='secret' is for overflow='reject': no useful bound of truncated batches holds for every"
        " number of records; pass overflow='reject', or size='at-most' for all up to dataset_size"),
    ((10, 0.1, 5, "reject", 1, "at-most"), "size='at-most' is for overflow='truncate'; pass size='secret', which holds for every"
        " number of records"),
    ((10, 0.1, 10, "reject", 1, "secret"), "size='secret' with max_batch_size=10 takes a planned dataset_size above it, not 10; pass a"
        " smaller cap or a larger planned size"),
    ((10, 0.1, 4, "reject", 2, "secret"), f"size='secret' is not for cycle_length=2: {GIVES_AWAY}"),
    ((10, 0.1, 4, "truncate", 2, "at-most"), f"size='at-most' is not for cycle_length=2: {GIVES_AWAY}"),
    ((10, 1.0, 5, "truncate", 1, "at-most"), "size='at-most' with sampling_probability=1 fills every batch to the cap; pass a smaller"
        " probability"),
    ((10, 1.0, 5, "reject"), "sampling_probability=1 with max_batch_size=5 below the 10 examples leaves overflow='reject' no batch to accept;"
        " pass overflow='truncate' or a smaller probability"),
])  # fmt: skip
def test_what_is_no_scheme_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CappedPoisson(*arguments)
    assert str(caught.value) == message


def test_whatever_numbers_are_given_a_scheme_holds_plain_ones() -> None:
    scheme = CappedPoisson(np.int64(100), np.float32(0.5), np.array(8), "truncate", 2.0, "public")  # type: ignore[arg-type]
    assert scheme == CappedPoisson(100, 0.5, 8, Overflow.TRUNCATE, 2, Size.PUBLIC)
    kinds = {"dataset_size": int, "sampling_probability": float, "max_batch_size": int, "overflow": Overflow,
             "cycle_length": int, "size": Size, "group_size": int}  # fmt: skip
    assert {name: type(value) for name, value in vars(scheme).items()} == kinds


def test_reject_accepts_full_batches_where_nothing_can_overflow() -> None:
    full = CappedPoisson(10, 1.0, 10, "reject")
    assert full.expected_batch_size == 10
    assert full.log_batch_size_probability(10) == 0.0


@pytest.mark.parametrize(("size", "mean", "cycle"), [(1_000, 10, 1), (60_000, 256.5, 1), (31, 7, 4), (5, 5, 1)])
def test_a_batch_size_before_the_cap_is_another_way_to_give_the_rate(size: int, mean: float, cycle: int) -> None:
    scheme = CappedPoisson.from_batch_size(size, mean, 8, "reject" if mean < 5 else "truncate", cycle)
    assert scheme.sampling_probability == mean / (size // cycle)
    assert scheme.poisson_batch_size == pytest.approx(mean, rel=1e-15)
    assert scheme.expected_batch_size <= min(mean, 8)  # the other mean is after the cap
    assert scheme == CappedPoisson(size, mean / (size // cycle), 8, scheme.overflow, cycle)


def test_a_batch_size_may_be_below_one_and_of_any_kind_of_size() -> None:
    assert CappedPoisson.from_batch_size(10, 0.5, 5).sampling_probability == 0.05
    secret = CappedPoisson.from_batch_size(100, 10, 16, "reject", size="secret")
    assert secret == CappedPoisson(100, 0.1, 16, "reject", size="secret")


MEAN = "pass the mean number of examples in a Poisson batch, before the cap"


@pytest.mark.parametrize(("arguments", "message"), [
    ((10, 0.0, 5), f"poisson_batch_size=0.0 is not in (0, 10]; {MEAN}"),
    ((10, 11, 5), f"poisson_batch_size=11.0 is not in (0, 10]; {MEAN}"),
    ((10, 6, 5, "truncate", 2), f"poisson_batch_size=6.0 is not in (0, 5]; {MEAN}"),
    ((10, math.nan, 5), f"poisson_batch_size=nan is not in (0, 10]; {MEAN}"),
    ((10, [6], 5), f"poisson_batch_size=[6] is not a number in (0, 10]; {MEAN}"),
    ((0, 1, 5), f"dataset_size=0 is below 1; {EXAMPLES}"),
    ((10, 10, 5, "reject"), "sampling_probability=1 with max_batch_size=5 below the 10 examples leaves overflow='reject' no batch to accept;"
        " pass overflow='truncate' or a smaller probability"),
])  # fmt: skip
def test_what_is_no_mean_batch_size_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CappedPoisson.from_batch_size(*arguments)
    assert str(caught.value) == message


def test_epochs_count_expected_draws_before_the_cap() -> None:
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(3) == 10  # whole numbers give no extra step
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(3.001) == 11
    assert CappedPoisson(1_000, 0.1, 50, cycle_length=4).steps_of_epochs(2) == 80
    assert CappedPoisson(1_000, 0.3, 5).steps_of_epochs(0) == 0


@pytest.mark.parametrize(("epochs", "message"), [
    (-1, "epochs=-1.0 is not in [0, inf); pass the number of passes over the data set"),
    (math.inf, "epochs=inf is not in [0, inf); pass the number of passes over the data set"),
    (math.nan, "epochs=nan is not in [0, inf); pass the number of passes over the data set"),
    ([3], "epochs=[3] is not a number in [0, inf); pass the number of passes over the data set"),
    (1e308, "epochs=1e+308 take inf steps, above 2**63 - 1; pass fewer epochs"),
])  # fmt: skip
def test_what_is_no_number_of_epochs_is_refused(epochs: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        CappedPoisson(1_000, 0.3, 5).steps_of_epochs(epochs)
    assert str(caught.value) == message


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
    def facts(scheme: CappedPoisson) -> dict[str, str]:
        page = scheme._repr_html_()
        assert page.startswith("<table><caption>CappedPoisson</caption><tbody>")
        return dict(re.findall(r"<td>(.*?)</td><td>(.*?)</td>", page))

    assert facts(CappedPoisson(60_000, 0.004, 64, "reject", 4)) == {
        "examples": "60000", "groups": "4 of 15000 examples", "sampling probability": "0.004", "mean Poisson draw": "60.00 examples",
        "cap": "64 rows, then reject", "mean batch": "56.39 examples, 88.1 % of the rows", "draws above the cap": "0.28",
    }  # fmt: skip
    assert facts(CappedPoisson(60_000, 0.004, 150, cycle_length=2))["groups"] == "2 of 30000 examples"
    assert facts(SCHEMES[3])["examples"] == "30 planned, the number is secret"
    assert facts(SCHEMES[4])["examples"] == "30 or fewer"
    assert facts(CappedPoisson.uncapped(100, 0.1)) == {
        "examples": "100", "sampling probability": "0.1", "mean Poisson draw": "10.00 examples", "cap": "none",
        "mean batch": "10.00 examples, 10.0 % of the rows",
    }  # fmt: skip


def test_probabilities_are_exact_where_those_of_poisson_batches_are_beyond_floats() -> None:
    """Policy reject divides by the chance that a draw fits, here about e^-690000: terms relative to the last are summed."""
    n, cap = 10**6, 1_000
    relative, terms = Fraction(1), [Fraction(1)]
    for k in range(cap, cap - 40, -1):
        relative *= Fraction(k, n - k + 1)
        terms.append(relative)
    scheme = CappedPoisson(n, 0.5, cap, "reject")
    for missing in (0, 1, 5):
        exact = math.log(terms[missing] / sum(terms))
        assert scheme.log_batch_size_probability(cap - missing) == pytest.approx(exact, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("cap", [120, 150, 170])
def test_probabilities_are_exact_where_a_full_batch_is_all_but_impossible(cap: int) -> None:
    n, p = 170, Fraction(1, 1024)
    poisson = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    scheme = CappedPoisson(n, float(p), cap, "reject")
    for size in (0, 1, 7, 60, cap):
        chance = poisson[size] / sum(poisson[: cap + 1])
        exact = math.log(chance.numerator) - math.log(chance.denominator)
        assert scheme.log_batch_size_probability(size) == pytest.approx(exact, rel=1e-11, abs=0)


def test_a_size_of_a_batch_is_a_whole_number() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SCHEMES[0].log_batch_size_probability(-1)
    assert str(caught.value) == "size=-1 is below 0; pass a number of examples"


def test_a_sampler_draws_for_its_scheme_with_all_that_it_is_given() -> None:
    key = b"a key of 16 byte"
    secret = CappedPoisson(30, 0.3, 12, "reject", size="secret")
    assert secret.sampler(key, records=40).fingerprint == Sampler(secret, key, records=40).fingerprint
    assert secret.sampler(key, records=40).secure
    assert not secret.sampler(key, secure=False, records=40).secure
    most = {max(batch.indices) for batch in secret.sampler(key, records=40).batches(200)}
    assert max(most) == 39
