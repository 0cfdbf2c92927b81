"""Random use of the public functions: no exception but FiletError, no NaN, no contradiction. Deterministic in CI."""

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import filet
from filet.accounting import state as _state
from filet.accounting.lower_bounds import epsilon_lower_bound
from filet.sampling.audits import audit

CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


def fuzz(examples):
    return settings(max_examples=examples, suppress_health_check=CHECKS)


def test_random_examples_repeat_and_leave_no_file():
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5),
    st.sampled_from([2**63, -(2**63), 10**400, 1e308, 5e-324, 0, 1, -1, 0.5, "reject", "zero-out", [], {}, (), object()]),
    st.lists(st.floats(), max_size=3), st.builds(np.float32, st.floats(width=32)), st.builds(np.array, st.lists(st.floats())),
)  # fmt: skip
ADJACENCIES = st.sampled_from(["add-remove", "zero-out", "replace-one"])
DELTAS = log_uniform(1e-20, 0.9)
NOISES = log_uniform(0.2, 50.0)


@st.composite
def schemes(draw, largest=1e12):
    n = max(1, int(draw(log_uniform(1, largest))))
    p = draw(st.one_of(log_uniform(1e-9, 1.0), st.just(1.0)))
    overflow = draw(st.sampled_from(["truncate", "reject"]))
    cycle = draw(st.sampled_from([1, 1, 1, 2, 5]))
    near = int(n * p / cycle * draw(st.floats(0.3, 2.0))) + draw(st.integers(0, 3))
    cap = draw(st.one_of(st.just(max(1, near)), st.integers(1, n), st.just(n)))
    try:
        return filet.CappedPoisson(n, min(p, 1.0), cap, overflow, cycle)
    except filet.FiletError:
        assume(False)


@fuzz(300)
@given(st.data())
def test_schemes_are_refused_or_have_sound_public_facts(data):
    good = {
        "dataset_size": 100,
        "sampling_probability": 0.1,
        "max_batch_size": 20,
        "overflow": "truncate",
        "cycle_length": 1,
    }
    names = data.draw(st.sets(st.sampled_from(sorted(good)), min_size=1, max_size=3))
    arguments = {**good, **{name: data.draw(JUNK, label=name) for name in sorted(names)}}
    try:
        scheme = filet.CappedPoisson(**arguments)
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    check_facts(scheme)


def check_facts(scheme):
    most = 1 + 1e-9 + 1e-15 * math.sqrt(scheme.group_size)  # binomial weights have that relative error
    assert 0.0 <= scheme.overflow_probability <= 1.0
    assert 0.0 <= scheme.inclusion_probability <= scheme.sampling_probability * most
    assert 0.0 <= scheme.utilization <= most
    assert 0.0 <= scheme.expected_batch_size <= min(scheme.max_batch_size, scheme.group_size) * most


@fuzz(200)
@given(schemes(largest=9e18))
def test_valid_schemes_of_every_size_have_sound_public_facts(scheme):
    check_facts(scheme)


@fuzz(100)
@given(schemes(largest=1e9), st.floats(0.0, 1.0))
@example(filet.CappedPoisson(148, 2.26e-6, 65, "reject"), 0.0)
def test_every_batch_size_has_a_log_chance(scheme, share):
    size = int(share * min(scheme.max_batch_size, scheme.group_size))
    assert scheme.log_batch_size_probability(size) <= 1e-9


@fuzz(120)
@given(st.data())
def test_account_refuses_junk_with_one_line(data):
    good = {"noise_multiplier": 1.0, "steps": 10, "adjacency": "zero-out", "analysis": "refined", "delta": 1e-5}
    names = data.draw(st.sets(st.sampled_from(sorted(good)), min_size=1, max_size=2))
    arguments = {**good, **{name: data.draw(JUNK, label=name) for name in sorted(names)}}
    delta = arguments.pop("delta")
    try:
        epsilon = filet.account(filet.CappedPoisson(100, 0.1, 20), **arguments).epsilon(delta)
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    assert np.all(np.asarray(epsilon) >= 0.0)


@fuzz(60)
@given(schemes(), NOISES, log_uniform(1, 1e6), ADJACENCIES, DELTAS)
def test_epsilon_and_delta_are_consistent_brackets(scheme, noise, steps, adjacency, delta):
    curve = filet.account(scheme, noise_multiplier=noise, steps=int(steps), adjacency=adjacency)
    try:
        epsilon = curve.epsilon_bounds(delta)
        assert 0.0 <= epsilon.lower <= epsilon.upper
        if epsilon.upper < 600.0:
            back = curve.delta_bounds(epsilon.upper)
            assert 0.0 <= back.lower <= back.upper <= 1.0
            assert back.lower <= delta * (1 + 1e-6)
    except filet.NotCertifiedError:
        return


@fuzz(25)
@given(schemes(), NOISES, log_uniform(1, 1e5), ADJACENCIES, DELTAS)
def test_lower_bounds_never_exceed_upper_bounds(scheme, noise, steps, adjacency, delta):
    run = {"noise_multiplier": noise, "steps": int(steps), "adjacency": adjacency}
    try:
        lower = epsilon_lower_bound(scheme, delta=delta, **run)
        upper = filet.account(scheme, **run).epsilon(delta)
    except filet.NotCertifiedError:
        return
    assert 0.0 <= lower <= upper


@fuzz(10)
@given(schemes(largest=1e6), NOISES, st.integers(1, 1000), ADJACENCIES, st.floats(0.0, 1.0))
def test_the_best_attack_has_at_least_the_power_of_guessing(scheme, noise, steps, adjacency, rate):
    curve = filet.account(scheme, noise_multiplier=noise, steps=steps, adjacency=adjacency)
    try:
        power = curve.true_positive_rate(rate)
    except filet.NotCertifiedError:
        return
    assert rate * (1 - 1e-9) <= power <= 1.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["0x1p-3", "-0x1p0", "inf", "nan", "truncate", "zero-out", "union", 10**30]),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=4), children, max_size=2),
    max_leaves=4,
)  # fmt: skip


def saved_state():
    accountant = filet.Accountant("zero-out")
    accountant.compose(filet.CappedPoisson(1000, 0.1, 120), 1.0, 10)
    accountant.compose_gaussian(5.0)
    return accountant.state_dict()


@fuzz(300)
@given(st.data())
def test_forged_states_are_refused_or_restored_faithfully(data):
    """The checksum is made right again after each change, so that every field is really read."""
    state = json.loads(json.dumps(saved_state()))
    for _ in range(data.draw(st.integers(1, 2))):
        target = data.draw(st.sampled_from([state, state["phases"][0]])) if _has_phase(state) else state
        name = data.draw(st.sampled_from([*sorted(target), "unknown"]))
        if data.draw(st.booleans()):
            target[name] = data.draw(JSON)
        else:
            target.pop(name, None)
    if data.draw(st.booleans()):
        state["checksum"] = _state.checksum(state)
    try:
        restored = filet.Accountant.from_state_dict(state)
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    again = filet.Accountant.from_state_dict(restored.state_dict())
    assert again.state_dict() == restored.state_dict()
    assert not math.isnan(restored.curve().gaussian)


def _has_phase(state):
    phases = state.get("phases")
    return isinstance(phases, list) and bool(phases) and isinstance(phases[0], dict)


@fuzz(100)
@given(content=st.one_of(st.binary(max_size=60), JSON.map(lambda value: json.dumps(value).encode())))
def test_files_that_are_no_state_are_refused(content, tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(filet.StateError):
        filet.Accountant.load(path)


@fuzz(100)
@given(cut=st.integers(0, 400), flip=st.integers(0, 7))
def test_damaged_state_files_are_refused(cut, flip, tmp_path):
    path = tmp_path / "state.json"
    whole = json.dumps(saved_state()).encode()
    damaged = bytearray(whole)
    damaged[cut % len(whole)] ^= 1 << flip
    path.write_bytes(bytes(damaged))
    try:
        restored = filet.Accountant.load(path).state_dict()
    except filet.StateError:
        restored = None
    assert restored in (None, saved_state())  # a flip may touch white space only
    path.write_bytes(whole[: cut % len(whole)])
    with pytest.raises(filet.StateError):
        filet.Accountant.load(path)


@fuzz(150)
@given(schemes(), st.integers(0, 2**256 - 1), st.integers(0, 2**63 - 1), st.integers(1, 9))
def test_batches_are_sorted_distinct_padded_and_dealt_out_whole(scheme, key, step, ranks):
    assume(scheme.max_batch_size <= 10**6 and scheme.group_size <= 10**12)
    assume(scheme.expected_batch_size <= 10**5)
    sampler = scheme.sampler(key)
    batch = sampler[step]
    rows = batch.indices[: batch.size]
    assert batch.indices.shape == batch.mask.shape == (scheme.max_batch_size,)
    assert (batch.mask == (batch.indices >= 0)).all()
    assert batch.mask.sum() == batch.size
    assert (np.diff(rows.astype(np.int64)) > 0).all()
    assert rows.size == 0 or (rows[0] >= 0 and rows[-1] < scheme.dataset_size)
    assert batch == scheme.sampler(key)[step]
    shares = [sampler.shard(rank, ranks)[step] for rank in range(ranks)]
    union = np.sort(np.concatenate([share.indices[share.mask] for share in shares]))
    assert np.array_equal(union, rows)


@fuzz(150)
@given(JUNK, JUNK)
def test_samplers_refuse_junk_with_one_line(key, step):
    try:
        batch = filet.CappedPoisson(100, 0.1, 20).sampler(key)[step]
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    assert batch.size <= 20


@fuzz(150)
@given(st.one_of(JUNK, st.lists(st.one_of(JUNK, st.lists(st.integers(-2, 101), max_size=6)), max_size=5)), JUNK)
def test_audit_refuses_junk_or_reports_chances(batches, steps):
    try:
        report = audit(batches, filet.CappedPoisson(100, 0.1, 20), steps=steps)
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    reports_chances(report)


def reports_chances(report):
    assert report.checks
    assert all(0.0 <= check.p_value <= 1.0 for check in report.checks)
    assert isinstance(report.summary(), str)


@fuzz(60)
@given(st.lists(st.lists(st.integers(0, 99), max_size=25, unique=True), min_size=1, max_size=30), st.booleans())
def test_audit_of_any_batches_reports_chances(batches, padded):
    """Whatever their sizes: those above the cap are a finding too."""
    rows = [np.array([*batch, *[-1] * (25 - len(batch) if padded else 0)], dtype=np.int64) for batch in batches]
    reports_chances(audit(rows, filet.CappedPoisson(100, 0.1, 20)))


@fuzz(60)
@given(schemes(largest=1e5), st.integers(0, 1000), st.integers(1, 60))
def test_audit_of_any_true_sampler_has_no_impossible_finding(scheme, key, steps):
    assume(scheme.expected_batch_size <= 1000 and scheme.max_batch_size <= 10**5)
    report = audit(scheme.sampler(key), scheme, steps=steps)
    assert all(1e-7 < check.p_value <= 1.0 for check in report.checks), report.summary()
