# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Training of a Keras model by JAX Privacy: every batch and every step is the accounted run's."""

from __future__ import annotations

import dataclasses
import os
import types
from typing import Any, NoReturn

import numpy as np

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import InvalidArgumentError, StateError
from filet.planning.calibration import calibrate_noise_multiplier
from filet.sampling.sampler import Sampler
from filet.sampling.streams import Purpose
from filet.scheme import CappedPoisson
from filet.showing.record import record

from .._frameworks import needed_for

os.environ.setdefault("KERAS_BACKEND", "jax")  # JAX Privacy's Keras API is for JAX alone
with needed_for("keras"):
    import jax
    import keras
    from jax_privacy import keras_api

from .._records import sampler_of
from ..jax import secret_key

_STATE = ("_rng", "_optimizer_steps")  # the weights that JAX Privacy adds to a model, and finds by their place
_TAKEN = ("batch_size", "shuffle", "validation_split", "sample_weight", "class_weight", "initial_epoch")


@dataclasses.dataclass(frozen=True)
class _CappedConfig(keras_api.DPKerasConfig):
    """JAX Privacy's config, which asks filet instead of its own accountant for the noise."""

    capped_noise: float = 0.0

    def update_with_calibrated_noise_multiplier(self) -> Any:
        return types.SimpleNamespace(noise_multiplier=self.capped_noise)


class CappedBatches(keras.utils.PyDataset):
    """A run's batches from one step on: rows of zeros are padding, of sample weight 0.

    It has no length: with one, Keras would begin again at the first batch in every epoch.
    """

    def __init__(self, x: Any, y: Any, sampler: Sampler, first: int) -> None:
        super().__init__()
        self._data = (x, y)
        self._sampler = sampler
        self._first = first

    @property
    def num_batches(self) -> None:
        return None

    def __getitem__(self, index: int) -> tuple[Any, Any, Any]:
        batch = self._sampler[self._first + index]
        x, y = batch.take(self._data)
        return x, y, batch.mask.astype(np.float32)


class _StepCounter(keras.callbacks.Callback):
    """Counts the steps of one `fit`, and keeps the state of the noise behind the last of them."""

    def __init__(self, each: int) -> None:
        super().__init__()
        self.steps = 0
        self.state: list[Any] | None = None
        self._each, self._before = each, 0

    def on_train_begin(self, logs: Any = None) -> None:
        _refuse_batch_statistics(self.model)  # a model that builds itself late has its layers now

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before = epoch * self._each

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps = self._before + batch + 1

    def on_train_end(self, logs: Any = None) -> None:
        self.state = [np.array(variable.value) for variable in self.model.non_trainable_variables[: len(_STATE)]]


class CappedKerasTraining:
    """Private training of a Keras model: JAX Privacy clips and adds noise; batches and accounting are filet's.

    Guarantees: every batch has `max_batch_size` rows, so that the step is compiled once. Padding has sample weight 0 and is
    masked before clipping: it contributes exactly zero, also under regularisation. The sum is divided by
    `scheme.expected_batch_size`. The model itself counts its steps, in a weight: what `save_weights` saves (with the state of
    the noise) is what `fit` goes on from, and there are never more than `steps`. `epsilon` is for all steps that were
    taken, also where a callback such as `EarlyStopping(restore_best_weights=True)` sets the model back to an earlier one.

    Noise has a generator of its own, of 64 bits derived from the run's key, which nothing outside
    can seed. Every example is differentiated alone, together with the penalties of the loss: no
    layer sees other rows. Batch normalisation, which would learn nothing in this way, is refused.
    Layers that keep state while they train (the seeds of dropout) keep it as it was at the start,
    as JAX Privacy does not update it.

    Arguments:
        model: compiled, on Keras's JAX backend. Its `fit` and `train_on_batch` are replaced by an error: call this `fit`.
        scheme: how batches are drawn.
        adjacency: "add-remove", "zero-out" or "replace-one".
        steps: the number of steps of the whole run.
        clipping_norm: of every example's gradient.
        noise_multiplier: or `target_epsilon` and `target_delta`, from which filet calibrates it.
        key: secret bytes, as for `filet.Sampler`, for batches and noise; to resume, the same. None
            draws a fresh key.
        secure: draw batches from AES-256. None: as `filet.Sampler` does.
        microbatch_size: rows that are processed at a time; a divisor of `max_batch_size`.
        rescale_to_unit_norm: JAX Privacy's: divide by the clipping norm.
        analysis: as for `filet.account`.
        records: the true number of rows of the data, a secret, where the scheme's size is not public.
    """

    def __init__(
        self,
        model: keras.Model,
        scheme: CappedPoisson,
        *,
        adjacency: Adjacency | AdjacencyName,
        steps: int,
        clipping_norm: float,
        noise_multiplier: float | None = None,
        target_epsilon: float | None = None,
        target_delta: float | None = None,
        key: bytes | int | None = None,
        secure: bool | None = None,
        microbatch_size: int | None = None,
        rescale_to_unit_norm: bool = True,
        analysis: Analysis | AnalysisName = Analysis.REFINED,
        records: int | None = None,
    ) -> None:
        if not isinstance(model, keras.Model) or hasattr(model, "get_noise_multiplier"):
            raise InvalidArgumentError(f"model={type(model).__name__} is not a plain Keras model; pass one, compiled")
        if keras.config.backend() != "jax":
            raise InvalidArgumentError(
                f"Keras's backend is {keras.config.backend()!r}, not 'jax'; set KERAS_BACKEND=jax before Keras is imported"
            )
        _refuse_batch_statistics(model)
        self.sampler = sampler_of(scheme, key, secure, records)
        self.model, self.scheme = model, scheme
        self.steps = _checks.integer("steps", steps, low=1, remedy="pass the number of steps of the whole run")
        self.adjacency = _checks.choice("adjacency", adjacency, Adjacency)
        self.analysis = _checks.choice("analysis", analysis, Analysis)
        self.noise_multiplier = self._noise(noise_multiplier, target_epsilon, target_delta)
        config = self._config(
            clipping_norm=clipping_norm,
            rescale_to_unit_norm=rescale_to_unit_norm,
            microbatch_size=microbatch_size,
            seed=0,  # replaced below: of a seed JAX keeps 32 bits
        )
        keras_api.make_private(model, config)
        model.fit = model.train_on_batch = _call_the_other_fit
        self._taken = 0
        self._own_steps()
        noise = secret_key(self.sampler.stream(Purpose.GENERATOR, 0).words(4).tobytes(), "keras")
        model.non_trainable_variables[0].assign(jax.random.key_data(noise))
        if model.built:
            model.optimizer.build(model.trainable_variables)  # so that a saved run can be loaded at once

    def _config(self, *, microbatch_size: int | None, **options: Any) -> _CappedConfig:
        rows = self.scheme.max_batch_size
        if microbatch_size is not None and rows % microbatch_size:
            raise InvalidArgumentError(
                f"microbatch_size={microbatch_size} does not divide max_batch_size={rows}; pass a divisor"
            )
        return _CappedConfig(
            microbatch_size=microbatch_size,
            epsilon=1.0,  # unused, as delta is: JAX Privacy would account for other batches
            delta=1.0,
            batch_size=self.scheme.expected_batch_size,  # what the sum is divided by
            gradient_accumulation_steps=1,
            train_steps=self.steps,
            train_size=self.scheme.dataset_size,
            poisson_sampling_in_fit=True,  # rows of sample weight 0 are padding
            capped_noise=self.noise_multiplier,
            **options,
        )

    def _noise(self, given: float | None, epsilon: float | None, delta: float | None) -> float:
        if (epsilon is None) != (delta is None) or (given is None) == (epsilon is None):
            raise InvalidArgumentError("pass either noise_multiplier, or both target_epsilon and target_delta")
        if epsilon is None or delta is None:
            return _checks.noise_multiplier(given)
        return calibrate_noise_multiplier(
            self.scheme,
            steps=self.steps,
            epsilon=epsilon,
            delta=delta,
            adjacency=self.adjacency,
            analysis=self.analysis,
        )

    @property
    def steps_taken(self) -> int:
        """Steps that were taken: as the model's own weight says, or as `fit` has counted if the model was set back."""
        return max(self._taken, self._own_steps())

    def _own_steps(self) -> int:
        state = self.model.non_trainable_variables[: len(_STATE)]
        if tuple(variable.name for variable in state) != _STATE:
            raise InvalidArgumentError(
                f"the model's first untrained weights are {[variable.name for variable in state]}, where JAX Privacy keeps the"
                " noise and the number of steps; move weights of the model itself into a layer"
            )
        return int(np.asarray(state[1].value).item())

    def curve(self) -> PrivacyCurve:
        """The privacy of all steps so far."""
        return account(
            self.scheme,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps_taken,
            adjacency=self.adjacency,
            analysis=self.analysis,
        )

    def epsilon(self, delta: float) -> float:
        """Certified upper bound of epsilon for the steps so far."""
        return float(self.curve().epsilon(delta))

    def record(self, delta: float, **options: Any) -> dict[str, Any]:
        """The record of the steps so far, as `filet.record` makes it of a curve, with its other `options`."""
        return record(self.curve(), delta, **options)

    def fit(self, x: Any, y: Any = None, *, epochs: int = 1, steps_per_epoch: int | None = None, **options: Any) -> Any:
        """Keras's `fit`, from the step at which the model is; an epoch is `steps_per_epoch` steps, all that are left if None.

        Arguments:
            x, y: arrays with `dataset_size` rows each (`records`, where that is a secret), in nested dicts, lists and tuples; `y` may be None.
            epochs, steps_per_epoch: their product is the number of steps to take.
            options: Keras's: `callbacks`, `validation_data`, `verbose` and so on.
        """
        for name in _TAKEN:
            if name in options:
                raise InvalidArgumentError(
                    f"{name} does not fit private training on the scheme's batches; leave it out"
                )
        first = self._own_steps()
        if first < self._taken:
            raise StateError(
                f"the model was set back to step {first} after {self._taken} steps, so that its noise would be used again; load"
                " the weights into a new run, and account for both"
            )
        each = self._steps_per_epoch(first, epochs, steps_per_epoch)
        self.sampler[0].take((x, y))  # wrong data are refused here, not at the first step
        batches = CappedBatches(x, y, self.sampler, first)
        counter = _StepCounter(each)  # the first callback, before others change the weights
        options["callbacks"] = [counter, *keras.tree.flatten(options.get("callbacks") or [])]
        try:
            return type(self.model).fit(
                self.model, batches, epochs=epochs, steps_per_epoch=each, shuffle=False, **options
            )
        finally:
            self._taken = first + counter.steps
            self._keep_state(counter.state)

    def _keep_state(self, state: list[Any] | None) -> None:
        """Let steps and noise go on where a callback has set the model back to earlier weights."""
        if state is not None and self._own_steps() < self._taken == int(state[1].item()):
            for variable, value in zip(self.model.non_trainable_variables, state, strict=False):
                variable.assign(value)

    def _steps_per_epoch(self, first: int, epochs: int, given: int | None) -> int:
        """The steps of an epoch, if the run has as many left."""
        epochs = _checks.integer("epochs", epochs, low=1, remedy="pass the number of epochs")
        each = (
            (self.steps - first) // epochs
            if given is None
            else _checks.integer("steps_per_epoch", given, low=1, remedy="pass the steps of one epoch")
        )
        count = each * epochs
        if count < 1 or first + count > self.steps:
            raise StateError(
                f"{count} steps after the {first} that were taken are not within the run's steps={self.steps}; take fewer, or"
                " make a new run, and account for both"
            )
        at_once = self.model.steps_per_execution
        if each % at_once:  # Keras would take more, up to the next multiple
            raise InvalidArgumentError(
                f"{each} steps an epoch are not a multiple of the model's steps_per_execution={at_once}; compile it with a"
                " divisor"
            )
        return each


def _refuse_batch_statistics(model: keras.Model) -> None:
    """Refuse batch normalisation, which sees no batch here, and whose averages would never move."""
    for layer in _layers(model):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable:
            raise InvalidArgumentError(
                f"layer {layer.name!r} is a BatchNormalization, which has no meaning where every"
                " example is differentiated alone; use GroupNormalization or LayerNormalization, or"
                " freeze it with trainable=False"
            )


def _layers(layer: Any) -> list[Any]:
    """A layer and all layers inside it."""
    inner = getattr(layer, "_layers", [])  # also of layers that hold others, such as Bidirectional
    return [layer, *(deeper for one in inner for deeper in _layers(one))]


def _call_the_other_fit(*_: Any, **__: Any) -> NoReturn:
    raise StateError("this model is trained privately; call fit of its CappedKerasTraining")
