"""Keras on JAX, trained privately on capped batches."""

from __future__ import annotations

import jax
import keras
import numpy as np
import pytest
from tests.integrations.planted import leaked

import filet
from filet.integrations.keras import CappedKerasTraining

pytestmark = [
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Keras, about NumPy
]


KEY = b"a key for the tests of keras"
SCHEME = filet.CappedPoisson(dataset_size=60, sampling_probability=0.1, max_batch_size=8)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 5)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.float32)[:, None]


def model(regularised=False, optimizer=None, **options):
    keras.utils.set_random_seed(3)
    penalty = keras.regularizers.L2(0.5) if regularised else None
    made = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, kernel_regularizer=penalty)])
    made.compile(
        optimizer=optimizer or keras.optimizers.SGD(1.0),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        **options,
    )
    return made


def training(made, **options):
    defaults = {"adjacency": "zero-out", "steps": 20, "clipping_norm": 0.4, "noise_multiplier": 1.0, "key": KEY,
                "rescale_to_unit_norm": False}  # fmt: skip
    return CappedKerasTraining(made, SCHEME, **{**defaults, **options})


def weights(made):
    return [np.asarray(w.value) for w in made.trainable_weights]


@pytest.mark.parametrize("regularised", [False, True])
def test_keras_takes_the_accounted_step_on_masked_batches(regularised):
    # Noise of almost nothing, so that the step can be compared with one made by hand.
    made = model(regularised)
    run = training(made, noise_multiplier=1e-6, steps=12)
    sizes = set()
    for step in range(12):
        kernel, bias = weights(made)
        batch = run.sampler[step]
        sizes.add(batch.size)
        total = [np.zeros_like(kernel), np.zeros_like(bias)]
        for row, label in zip(ROWS[batch.indices[: batch.size]], LABELS[batch.indices[: batch.size]], strict=True):
            slope = 1 / (1 + np.exp(-(row @ kernel + bias))) - label
            gradient = [np.outer(row, slope) + (kernel if regularised else 0.0), slope]  # 0.5 |w|^2 has gradient w
            norm = np.sqrt(sum((g**2).sum() for g in gradient))
            total = [t + g * min(1.0, 0.4 / norm) for t, g in zip(total, gradient, strict=True)]
        run.fit(ROWS, LABELS, steps_per_epoch=1, verbose=0)
        for before, after, gradient in zip((kernel, bias), weights(made), total, strict=True):
            np.testing.assert_allclose(after, before - gradient / SCHEME.expected_batch_size, rtol=1e-4, atol=1e-5)
    assert 0 in sizes or min(sizes) < 4
    assert run.steps_taken == 12


def test_keras_trains_in_one_compilation_and_costs_what_filet_says():
    made = model()
    run = training(made, target_epsilon=3.0, target_delta=1e-4, noise_multiplier=None)
    traced = []
    step = made.train_step
    made.train_step = lambda *state: (traced.append(1), step(*state))[1]  # type: ignore[func-returns-value]
    assert run.epsilon(1e-4) == 0
    history = run.fit(ROWS, LABELS, epochs=4, verbose=0, validation_data=(ROWS, LABELS))
    assert len(history.history["loss"]) == 4
    assert run.steps_taken == 20
    assert 2.99 < run.epsilon(1e-4) <= 3.0
    assert run.record(1e-4) == filet.record(run.curve(), 1e-4)
    assert leaked(run.record(1e-4), KEY, SCHEME.sampler(key=KEY).fingerprint) == []
    assert len(traced) <= 2  # one is Keras's look at the shapes
    with pytest.raises(filet.StateError, match="steps=20; take fewer"):
        run.fit(ROWS, LABELS, steps_per_epoch=1, verbose=0)
    with pytest.raises(filet.StateError, match="CappedKerasTraining"):
        made.fit(ROWS, LABELS)


def test_keras_resumes_to_identical_weights(tmp_path):
    whole = model(optimizer=keras.optimizers.Adam(0.1))
    training(whole).fit(ROWS, LABELS, epochs=4, verbose=0)  # an epoch goes on where the last one stopped
    first = model(optimizer=keras.optimizers.Adam(0.1))
    training(first).fit(ROWS, LABELS, epochs=1, steps_per_epoch=7, verbose=0)
    first.save_weights(tmp_path / "run.weights.h5")
    second = model(optimizer=keras.optimizers.Adam(0.1))
    run = training(second)
    second.load_weights(tmp_path / "run.weights.h5")
    assert run.steps_taken == 7
    run.fit(ROWS, LABELS, epochs=1, verbose=0)
    for one, other in zip(weights(second), weights(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_keras_draws_noise_from_the_runs_key_and_from_nothing_else():
    class Seeds(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            keras.utils.set_random_seed(7)  # a seeded evaluation between steps

    def trained(seed=False, **options):
        made = model()
        run = training(made, **options)
        key = np.asarray(made.non_trainable_variables[0].value)
        before = weights(made)
        steps = []
        for _ in range(2):
            run.fit(ROWS * 0, LABELS, steps_per_epoch=1, verbose=0, callbacks=[Seeds()] if seed else [])
            steps.append(weights(made)[0] - before[0])  # all rows are zero: the kernel moves by noise alone
            before = weights(made)
        return key, steps

    (key, (one, two)), (_, again), (other, (another, _)) = trained(), trained(seed=True), trained(key=KEY + b"!")
    assert not np.array_equal(one, two)
    assert np.array_equal([one, two], again)
    assert not np.array_equal(one, another)
    assert key.all()
    assert other.all()  # both halves, where a seed leaves the upper one empty
    assert not np.array_equal(trained(key=None)[0], trained(key=None)[0])


@pytest.mark.parametrize("inside", [False, True])
def test_keras_refuses_batch_normalisation_that_is_trained(inside):
    def made(**options):
        layer = keras.layers.BatchNormalization(name="norm", **options)
        middle = keras.Sequential([keras.layers.Dense(3), layer]) if inside else layer
        made = keras.Sequential([keras.Input((5,)), middle, keras.layers.Dense(1)])
        made.compile(optimizer="sgd", loss="mse")
        return made

    with pytest.raises(filet.InvalidArgumentError, match=r"layer 'norm' is a BatchNormalization.*GroupNormalization"):
        training(made())
    run = training(made(trainable=False))  # as it was trained elsewhere
    run.fit(ROWS, LABELS, steps_per_epoch=1, verbose=0)
    assert run.steps_taken == 1


def test_keras_refuses_batch_normalisation_in_a_model_that_builds_itself_late():
    class Late(keras.Model):
        def build(self, shape):
            self.norm = keras.layers.BatchNormalization()
            self.dense = keras.layers.Dense(1)
            super().build(shape)

        def call(self, rows):
            return self.dense(self.norm(rows))

    made = Late()
    made.compile(optimizer="sgd", loss="mse")
    run = training(made)
    with pytest.raises(filet.InvalidArgumentError, match="BatchNormalization"):
        run.fit(ROWS, LABELS, steps_per_epoch=1, verbose=0)
    assert run.steps_taken == 0


def test_keras_adds_noise_of_the_accounted_size():
    wide = np.zeros((60, 3_000), np.float32)
    keras.utils.set_random_seed(3)
    made = keras.Sequential([keras.Input((3_000,)), keras.layers.Dense(1, use_bias=False)])
    made.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    run = training(made, noise_multiplier=1.7, clipping_norm=0.3)
    (before,) = weights(made)
    run.fit(wide, np.zeros((60, 1), np.float32), steps_per_epoch=1, verbose=0)
    noise = (weights(made)[0] - before) * SCHEME.expected_batch_size / (1.7 * 0.3)
    assert abs(noise.mean()) < 5 / np.sqrt(noise.size)
    assert abs(noise.std() - 1) < 5 / np.sqrt(2 * noise.size)


def test_keras_counts_all_steps_where_the_best_weights_are_restored():
    made = model()
    run = training(made)
    worse = keras.callbacks.EarlyStopping("val_loss", mode="max", baseline=1e9, patience=3, restore_best_weights=True)
    history = run.fit(ROWS, LABELS, epochs=20, verbose=0, validation_data=(ROWS, LABELS), callbacks=worse)
    taken = len(history.history["loss"])
    assert taken == run.steps_taken == 3  # which of the three is kept depends on all of them
    cost = filet.account(SCHEME, noise_multiplier=1.0, steps=3, adjacency="zero-out").epsilon(1e-4)
    assert run.epsilon(1e-4) == cost
    # The weights are those of one step; the noise, the steps and what is saved are those of three.
    plain = {steps: model() for steps in (1, 3)}
    for steps, other in plain.items():
        training(other).fit(ROWS, LABELS, steps_per_epoch=steps, verbose=0)
    for one, two in zip(weights(made), weights(plain[1]), strict=True):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(made.non_trainable_variables, plain[3].non_trainable_variables, strict=True):
        np.testing.assert_array_equal(np.asarray(one.value), np.asarray(two.value))
    run.fit(ROWS, LABELS, verbose=0)
    assert run.steps_taken == 20


def test_keras_refuses_to_go_on_from_a_model_that_was_set_back():
    made = model()
    run = training(made)
    run.fit(ROWS, LABELS, steps_per_epoch=4, verbose=0)
    before = made.get_weights()
    run.fit(ROWS, LABELS, steps_per_epoch=5, verbose=0)
    made.set_weights(before)
    assert run.steps_taken == 9
    with pytest.raises(filet.StateError, match=r"set back to step 4 after 9 steps.*noise would be used again"):
        run.fit(ROWS, LABELS, verbose=0)


def test_keras_counts_the_steps_before_an_error():
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                raise KeyboardInterrupt

    run = training(model())
    run.fit(ROWS, LABELS, steps_per_epoch=6, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        run.fit(ROWS, LABELS, steps_per_epoch=6, verbose=0, callbacks=[Fails()])
    assert run.steps_taken == 11


def test_keras_takes_no_step_that_is_not_the_runs():
    made = model()
    run = training(made)
    with pytest.raises(filet.StateError, match="CappedKerasTraining"):
        made.train_on_batch(ROWS[:8], LABELS[:8], sample_weight=np.ones(8, np.float32))
    assert run.steps_taken == 0
    several = model(steps_per_execution=3)  # Keras would take 21
    with pytest.raises(filet.InvalidArgumentError, match="20 steps an epoch are not a multiple"):
        training(several).fit(ROWS, LABELS, verbose=0)
    run = training(model(steps_per_execution=5))
    run.fit(ROWS, LABELS, epochs=2, verbose=0)
    assert run.steps_taken == 20


def test_keras_refuses_weights_where_jax_privacy_keeps_its_own():
    class Counts(keras.Model):
        def __init__(self):
            super().__init__()
            self.seen = self.add_weight(name="seen", shape=(2,), dtype="uint32", trainable=False, initializer="zeros")
            self.layer = keras.layers.Dense(1)

        def call(self, rows):
            return self.layer(rows)

    made = Counts()
    made.compile(optimizer="sgd", loss="mse")
    with pytest.raises(filet.InvalidArgumentError, match=r"\['seen', '_rng'\].*into a layer"):
        training(made)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: training("model"), "plain Keras model"),
        (lambda: training(model(), steps=0), "steps=0"),
        (lambda: training(model(), noise_multiplier=None), "either noise_multiplier"),
        (lambda: training(model(), target_epsilon=1.0, target_delta=1e-3), "either noise_multiplier"),
        (lambda: training(model(), microbatch_size=3), "does not divide"),
        (lambda: training(model()).fit(ROWS, LABELS, batch_size=4), "batch_size does not fit"),
        (lambda: training(model()).fit(ROWS[:59], LABELS), "59 rows"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(call, match):
    assert jax.default_backend()
    with pytest.raises(filet.InvalidArgumentError, match=match):
        call()
