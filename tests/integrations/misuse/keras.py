"""Wrong uses of private training with Keras."""

from __future__ import annotations

import warnings

import keras
import numpy as np
from tests.integrations.misuse import Answer, Documented, Refused, Right, Warned

import filet
from filet.integrations.keras import CappedKerasTraining

KEY = b"a key for wrong uses of keras"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)
CLIP = 0.5
ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
LABELS = np.ones((40, 1), np.float32)


class Reverses(keras.layers.Layer):
    """Permutes the rows of a batch, and permutes nothing where a batch has one row."""

    def call(self, rows):
        return keras.ops.flip(rows, axis=0)


class Centres(keras.layers.Layer):
    """Statistics of the batch by hand."""

    def call(self, rows):
        return rows - 2.0 * keras.ops.mean(rows, axis=0, keepdims=True)


class Tied(keras.layers.Layer):
    """Uses the weight of another layer once more."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def build(self, shape):
        self.other.build(shape)

    def call(self, rows):
        return rows + keras.ops.matmul(self.other.kernel[:1], self.other.kernel)


def training(*layers, trained=True, **options):
    keras.utils.set_random_seed(3)
    last = keras.layers.Dense(3, name="last", trainable=trained)
    model = keras.Sequential([keras.Input((3,)), *(make(last) for make in layers), last, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
    defaults = {"adjacency": "zero-out", "steps": 4, "clipping_norm": CLIP, "noise_multiplier": 1.0, "key": KEY}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return CappedKerasTraining(model, SCHEME, rescale_to_unit_norm=False, **{**defaults, **options})


def fit(run, rows=ROWS, labels=LABELS, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Keras and JAX Privacy, about NumPy and optax
        run.fit(rows, labels, verbose=0, **{"steps_per_epoch": 1, **options})
    return np.concatenate([np.asarray(weight.value).ravel() for weight in run.model.trainable_weights])


def one_row_stays_bounded(*layers, **options):
    """Replacing one example of the batch by a huge one moves the step by two clipping norms at most."""
    drawn = SCHEME.sampler(KEY)[0].indices[0]
    outlier = ROWS.copy()
    outlier[drawn] = 1_000.0
    before, after = (fit(training(*layers, **options), rows) for rows in (ROWS, outlier))
    moved = np.linalg.norm(after - before) * SCHEME.expected_batch_size / CLIP
    assert 0.01 < moved <= 2.0 + 1e-3


def unfrozen():
    def late(rows):
        run = training(trained=False)
        fit(run)
        run.model.get_layer("last").trainable = True
        run.model.compile(optimizer=keras.optimizers.SGD(1.0), loss="mse")
        return fit(run, rows)

    drawn = SCHEME.sampler(KEY)[1].indices[0]
    outlier = ROWS.copy()
    outlier[drawn] = 1_000.0
    moved = np.linalg.norm(late(outlier) - late(ROWS)) * SCHEME.expected_batch_size / CLIP
    assert 0.01 < moved <= 2.0 + 1e-3


def seeds_between_steps():
    def kernel(seed):
        run = training()
        keras.utils.set_random_seed(seed)
        fit(run)
        keras.utils.set_random_seed(seed)
        return fit(run)

    assert np.array_equal(kernel(1), kernel(2))


def permuted():
    found = [fit(training(*layers), ROWS) for layers in ((), (lambda _: Reverses(),))]
    assert np.array_equal(*found)


def set_back():
    run = training()
    fit(run)
    run.model.non_trainable_variables[1].assign([0])  # as older weights that are loaded do
    fit(run)


def other_data():
    run = training()
    fit(run)
    fit(run, ROWS[:39], LABELS[:39])


def penalised():
    one_row_stays_bounded(lambda _: keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(50.0)))


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Right(lambda: one_row_stays_bounded(Tied)),
    "layer unfrozen later": Right(unfrozen),
    "batch without a step": Refused(lambda: training().model.train_on_batch(ROWS[:6], LABELS[:6]), "call fit of its"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Right(lambda: one_row_stays_bounded(lambda _: Centres())),
    "batch normalisation": Refused(lambda: training(lambda _: keras.layers.BatchNormalization()), "BatchNormalization"),
    "loader wrapped by another library": Refused(
        lambda: fit(training(), [(ROWS[:6], LABELS[:6])], None), "data[0][0][0] has 6 rows, not dataset_size=40"
    ),
    "ranks joined late": Documented("sharp_edges.md", "a process that was told another rank than its own"),
    "iterated twice": Refused(lambda: fit(training(), epochs=5), "are not within the run's steps=4"),
    "batches repeated, shuffled or sliced": Refused(lambda: fit(training(), shuffle=True), "shuffle does not fit"),
    "data set changed during the run": Refused(other_data, "has 39 rows, not dataset_size=40"),
    "another batch size": Refused(lambda: fit(training(), batch_size=3), "batch_size does not fit"),
    "rows rearranged after batching": Right(permuted),
    "penalty in the loss": Right(penalised),
    "short key": Warned(lambda: training(key=7), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(set_back, "set back to step 0 after 1 steps"),
}
