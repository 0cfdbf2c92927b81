"""Every public function with junk, extremes and valid values: a `FiletError` of one line, or an answer without NaN.

Deterministic in CI. What the answers must satisfy beyond that is in `test_fuzz.py`.
"""

import contextlib
import dataclasses
import math
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import filet
from filet.planning.calibration import LEAST_NOISE

MOST_CALLS = 5_000_000  # of functions within one call: none hangs, and the count is the same on every machine

EXTREMES = [
    math.nan, math.inf, -math.inf, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-300, 1e-200, 1e-16, 1.0 - 2.0**-53, 1.0 + 2.0**-52,
    1e15, 1e200, 1.7976931348623157e308, 0, -0.0, 1, -1, 2, 0.5, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400, 10**5000, -(10**5000),
]  # fmt: skip
OTHERS = [
    None, True, False, "", "1", "nan", "zero-out", "add-remove", "reject", "union", "note", "two\nlines", "a\0b", b"1", b"sixteen bytes ok",
    [], (), {}, set(), [1], [0.5, 1e-3], [math.nan], [[1], [2, 3]], {"a": 1}, object(), range(3), 1j, Decimal("0.5"), Decimal("NaN"),
    Fraction(1, 2), np.float64("nan"), np.float32(0.5), np.float16(1.0), np.longdouble(0.25), np.int8(1), np.uint64(2**63), np.bool_(True),
    np.str_("zero-out"), np.datetime64("NaT", "s"), np.array(0.5), np.array(1), np.array([]), np.empty((0, 3)), np.array([0.5, math.nan]),
    np.array([[0.1, 0.2]]), np.array(["a"]), np.array([None]), np.array([True]), np.ma.masked, slice(0, 2), Ellipsis, math, filet.Adjacency,
    filet.Adjacency.ZERO_OUT, filet.Overflow.REJECT, filet.Analysis.NOTE,
]  # fmt: skip
JUNK = st.one_of(
    st.sampled_from(EXTREMES), st.sampled_from(OTHERS), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=40),
    st.lists(st.one_of(st.floats(), st.integers(), st.sampled_from(EXTREMES)), max_size=4), st.floats(0.0, 1.0), st.integers(0, 100),
)  # fmt: skip

SCHEME = filet.CappedPoisson(100, 0.1, 20)
RUN = {"noise_multiplier": 2.0, "steps": 3}
BUDGET = {"epsilon": 1.0, "delta": 1e-3, "adjacency": "zero-out", "analysis": "refined"}
CURVE = filet.account(SCHEME, **RUN, adjacency="zero-out")
SAMPLER = SCHEME.sampler(key=b"a key for fuzzing")
PLAN = {"dataset_size": 100, "max_batch_size": 100, "steps": 3, "hardware_epochs": None, "cycle_length": 1, "epsilon": 1.0,
        "delta": 1e-3, "adjacency": "zero-out"}  # fmt: skip
FRONTIER = {"over": "steps", "values": [2], "dataset_size": 100, "max_batch_size": 100, "sampling_probability": 0.1, "steps": None,
            "noise_multiplier": 2.0, "epsilon": None, "delta": 1e-3, "adjacency": "zero-out"}  # fmt: skip


def composed(kind, **arguments):
    accountant = filet.Accountant("zero-out")
    getattr(accountant, kind)(**arguments)
    return accountant.epsilon(1e-3)


def saved(path, key):
    accountant = filet.Accountant("zero-out")
    accountant.save(path, key)
    assert filet.Accountant.load(path, key).state_dict() == accountant.state_dict()


# Name, function and arguments that work; those of the last group take long when they are valid.
CALLS = {
    "CappedPoisson": (filet.CappedPoisson, {"dataset_size": 100, "sampling_probability": 0.1, "max_batch_size": 20,
                                            "overflow": "truncate", "cycle_length": 1}),
    "CappedPoisson.from_batch_size": (filet.CappedPoisson.from_batch_size, {"dataset_size": 100, "poisson_batch_size": 10, "max_batch_size": 20,
                                                                            "overflow": "reject", "cycle_length": 1}),
    "CappedPoisson.uncapped": (filet.CappedPoisson.uncapped, {"dataset_size": 100, "sampling_probability": 0.1, "cycle_length": 2}),
    "CappedPoisson.steps_of_epochs": (SCHEME.steps_of_epochs, {"epochs": 2.5}),
    "CappedPoisson.log_batch_size_probability": (SCHEME.log_batch_size_probability, {"size": 3}),
    "PrivacyCurve.epsilon": (CURVE.epsilon, {"delta": 1e-3}),
    "PrivacyCurve.delta": (CURVE.delta, {"epsilon": 1.0}),
    "record": (filet.record, {"curve": CURVE, "delta": 1e-3, "unit": "one example", "title": "a run"}),
    "PrivacyCurve.epsilon_bounds": (CURVE.epsilon_bounds, {"delta": 1e-3}),
    "PrivacyCurve.delta_bounds": (CURVE.delta_bounds, {"epsilon": 1.0}),
    "PrivacyCurve.true_positive_rate": (CURVE.true_positive_rate, {"false_positive_rate": 0.1}),
    "Accountant": (filet.Accountant, {"adjacency": "zero-out"}),
    "Accountant.compose": (lambda **a: composed("compose", **a), {"scheme": SCHEME, **RUN, "analysis": "note"}),
    "Accountant.compose_gaussian": (lambda **a: composed("compose_gaussian", **a), {"noise_multiplier": 2.0, "count": 3}),
    "Accountant.save": (saved, {"path": "state.json", "key": 1}),
    "Accountant.load": (filet.Accountant.load, {"path": "none.json", "key": 1, "least_steps": 0}),
    "Accountant.from_state_dict": (filet.Accountant.from_state_dict, {"state": filet.Accountant("zero-out").state_dict()}),
    "Sampler": (filet.Sampler, {"scheme": SCHEME, "key": 1, "secure": False}),
    "Sampler.__getitem__": (SAMPLER.__getitem__, {"step": 1}),
    "Sampler.batches": (lambda **a: SAMPLER.batches(**a)[:2], {"steps": 3, "start": 0}),
    "Sampler.shard": (lambda **a: SAMPLER.shard(**a)[0], {"rank": 0, "world_size": 2}),
    "Batch.take": (SAMPLER[0].take, {"data": np.arange(100), "fill": -1}),
    "noisy_sum": (filet.noisy_sum, {"vectors": np.ones((100, 2)), "scheme": SCHEME, "noise_multiplier": 1.0, "key": 1, "step": 0,
                                    "clip": True, "secure": False}),
    "add_noise": (filet.add_noise, {"total": {"a": np.ones(3), "b": np.zeros((2, 2))}, "sampler": SAMPLER, "noise_multiplier": 1.0, "step": 0,
                                    "clip_norm": 2.0}),
    "audit": (filet.audit, {"batches": list(SAMPLER.batches(20)), "scheme": SCHEME, "steps": 10, "significance": 1e-3}),
    "epsilon_lower_bound": (filet.epsilon_lower_bound, {"scheme": SCHEME, **RUN, "adjacency": "zero-out", "delta": 1e-3}),
    "round_up": (filet.round_up, {"value": 1.5, "digits": 3, "zeros": True}),
    "account": (lambda delta, **a: filet.account(**a).epsilon(delta),
                {"scheme": SCHEME, **RUN, "adjacency": "zero-out", "analysis": "union", "delta": 1e-3}),
}  # fmt: skip
SEARCHES = {
    "calibrate_noise_multiplier": (filet.calibrate_noise_multiplier, {"scheme": SCHEME, "steps": 3, **BUDGET}),
    "calibrate_steps": (filet.calibrate_steps, {"scheme": SCHEME, "noise_multiplier": 2.0, **BUDGET}),
    "calibrate_sampling_probability": (filet.calibrate_sampling_probability, {"scheme": SCHEME, **RUN, **BUDGET}),
    "plan": (filet.plan, PLAN),
    "frontier": (filet.frontier, FRONTIER),
}
# Records that these functions make, words, and errors.
MADE = {"AuditReport", "Batch", "Batches", "Bounds", "Frontier", "Option", "Phase", "Plan", "PrivacyCurve"}
WORDS = {"Adjacency", "Analysis", "Overflow", "Size"}
ERRORS = {"FiletError", "InvalidArgumentError", "MissingExtraError", "NoSolutionError", "NotCertifiedError", "OutputError",
          "StateError"}  # fmt: skip


def test_every_public_function_is_fuzzed():
    fuzzed = {name.split(".")[0] for name in (*CALLS, *SEARCHES)}
    assert fuzzed | MADE | WORDS | ERRORS == set(filet.__all__)


def fuzz(examples):
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


@contextlib.contextmanager
def limited(most):
    """Fail what makes more function calls than this, at once."""
    count, before = 0, sys.getprofile()

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")
        assert count <= most, f"more than {most} function calls"

    sys.setprofile(counted)
    try:
        yield
    finally:
        sys.setprofile(before)


def without_end():
    while True:
        math.floor(0.5)


def test_work_without_an_end_is_noticed():
    with pytest.raises(AssertionError, match="more than 1000 function calls"), limited(1_000):
        without_end()


def call_with_junk(data, function, good):
    names = data.draw(st.sets(st.sampled_from(sorted(good)), min_size=1, max_size=2), label="changed")
    arguments = {**good, **{name: data.draw(JUNK, label=name) for name in sorted(names)}}
    noise = arguments.get("noise_multiplier")
    # Next to no noise is not junk but a hard question, and none for this test.
    assume(not (isinstance(noise, (int, float, np.number)) and 0.0 < noise < LEAST_NOISE))
    try:
        with limited(MOST_CALLS):
            answer = function(**arguments)
    except filet.FiletError as error:
        assert str(error)
        assert "\n" not in str(error)
    else:
        assert not holds_nan(answer), answer


def holds_nan(answer):
    """Whether there is a NaN anywhere in an answer; `Frontier` documents what it means there."""
    if isinstance(answer, filet.Frontier):
        return False
    if dataclasses.is_dataclass(answer):
        return any(holds_nan(getattr(answer, field.name)) for field in dataclasses.fields(answer))
    if isinstance(answer, (tuple, list, dict)):
        return any(map(holds_nan, answer.values() if isinstance(answer, dict) else answer))
    return (
        isinstance(answer, (float, np.ndarray))
        and np.asarray(answer).dtype.kind == "f"
        and bool(np.isnan(answer).any())
    )


@pytest.mark.parametrize("name", CALLS)
@fuzz(50)
@given(data=st.data())
@pytest.mark.long
def test_calls_are_refused_in_one_line_or_answered_without_nan(name, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # text is a fine path
    call_with_junk(data, *CALLS[name])


@pytest.mark.parametrize("name", SEARCHES)
@fuzz(15)
@given(data=st.data())
def test_searches_are_refused_in_one_line_or_answered_without_nan(name, data):
    call_with_junk(data, *SEARCHES[name])
