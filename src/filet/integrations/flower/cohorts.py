# mypy: disable-error-code="import-untyped, import-not-found, misc", allow-subclassing-any
"""A strategy for Flower: cohorts of at most B clients, clipped and noised on the server, of one accounted run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName
from filet.errors import InvalidArgumentError, StateError
from filet.sampling.mechanism import add_noise, clipped_sum
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("flower"):
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.serverapp.strategy import Result, Strategy

from .adaptive import AdaptiveNorm
from .clients import by_node_id
from .state import read_state, write_state

Clients = Callable[[Any, float], dict[int, int]]
_POLL = 0.5  # seconds between two queries of the connected nodes
_DROPOUTS = ("refuse", "zero")


class CappedCohorts(Strategy):
    """Federated averaging of clipped updates with noise, on the cohorts of a capped Poisson scheme.

    Round `t` asks exactly the clients of `scheme.sampler(key)[t]`, at most `max_batch_size` of them.
    Each client's update, over all its arrays, is clipped to `clipping_norm`. The model moves by
    `server_learning_rate` times their sum plus noise, divided by the constant
    `scheme.expected_batch_size`. A cohort may be empty: its round is noise, and counts.

    Guarantees: `epsilon(delta)` is a proven bound for all rounds released so far; the unit is a
    client. One client moves a round's sum by `clipping_norm` at most, in exact arithmetic, and the
    noise is drawn from the key and the round (`filet.add_noise`). Nothing is released of a round
    whose cohort is incomplete: it is asked again, as the same round, with the same cohort.
    Clients' metrics are not read, and clients evaluate nothing, as no noise is added to either.

    Arguments:
        scheme: how cohorts are drawn; `dataset_size` is the number of clients, which must stay.
        noise_multiplier: standard deviation of the noise, divided by `clipping_norm`.
        clipping_norm: the largest norm of a client's update; or an `AdaptiveNorm`, which releases a
            noisy count in every round, inside the same epsilon.
        rounds: the rounds of the whole run, resumed parts included; more are refused.
        adjacency: "add-remove", "zero-out" or "replace-one", of clients.
        key: secret bytes of the run; None draws fresh ones, for a run that is never resumed.
        server_learning_rate: factor of the mean update.
        dropouts: what a missing or failed reply means. "refuse": the round is not released. "zero":
            the client's update counts as zero, which is private if whether a client answers does
            not depend on other clients' data.
        clients: names the nodes: `by_node_id`, or `by_partition` for runs that are resumed.
        checkpoint: a file for the model and the number of rounds, written before a round is released.
        patience: seconds to wait for the scheme's clients to connect, and to say who they are.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        *,
        noise_multiplier: float,
        clipping_norm: float | AdaptiveNorm,
        rounds: int,
        adjacency: Adjacency | AdjacencyName,
        key: bytes | int | None = None,
        server_learning_rate: float = 1.0,
        dropouts: Literal["refuse", "zero"] = "refuse",
        clients: Clients = by_node_id,
        checkpoint: str | Path | None = None,
        patience: float = 600.0,
    ) -> None:
        self._sampler = Sampler(scheme, key)
        self.scheme = scheme
        self.noise_multiplier = _checks.noise_multiplier(noise_multiplier)
        self._adaptive = clipping_norm if isinstance(clipping_norm, AdaptiveNorm) else None
        if self._adaptive is not None:
            self._adaptive.rows(np.zeros((0, 1)), 1.0, self.noise_multiplier)  # whether the count has its noise
        first = clipping_norm if self._adaptive is None else self._adaptive.initial
        self.clipping_norm = _positive("clipping_norm", first, "pass the largest norm of a client's update")
        self.rounds = _checks.step_count(rounds, "rounds")
        self.adjacency = _checks.choice("adjacency", adjacency, Adjacency)
        self.server_learning_rate = _positive("server_learning_rate", server_learning_rate, "pass 1.0 for the mean")
        self.patience = _positive("patience", patience, "pass seconds")
        if dropouts not in _DROPOUTS:
            raise _checks.fail(f"dropouts={_checks.show(dropouts)} is unknown; pass 'refuse' or 'zero'")
        self.dropouts = dropouts
        self._clients = clients
        self._checkpoint = None if checkpoint is None else Path(_checks.path(checkpoint))
        self._known: tuple[set[int], dict[int, int]] = (set(), {})
        self._open: tuple[dict[int, int], ArrayRecord] | None = None
        self._saved: ArrayRecord | None = None
        self.rounds_done = 0
        if self._checkpoint is not None:
            self._resume(key)

    # --- the run ----------------------------------------------------------------------------------

    @property
    def rounds_left(self) -> int:
        return self.rounds - self.rounds_done

    def curve(self) -> PrivacyCurve:
        """The privacy of the rounds released so far."""
        return account(
            self.scheme,
            noise_multiplier=self.noise_multiplier,
            steps=self.rounds_done,
            adjacency=self.adjacency,
        )

    def epsilon(self, delta: float) -> float:
        """A proven bound of epsilon of the rounds released so far, for clients."""
        return float(self.curve().epsilon(delta))

    def start(self, grid: Any, initial_arrays: Any, num_rounds: int | None = None, **options: Any) -> Any:
        """Run the rounds that are left, or `num_rounds` of them.

        A run with a checkpoint goes on from its model; `initial_arrays` are those of the first start.
        """
        most = self.rounds_left
        wanted = (
            most
            if num_rounds is None
            else _checks.integer(
                "num_rounds",
                num_rounds,
                low=0,
                high=most,
                remedy=f"{most} of rounds={self.rounds} are left, pass no more",
            )
        )
        arrays = initial_arrays if self._saved is None else self._saved
        if wanted == 0:
            return Result(arrays=arrays)
        return super().start(grid, arrays, wanted, **options)

    def summary(self) -> None:
        """Print nothing: the public facts of a run are in its attributes."""

    def _settings(self) -> dict[str, Any]:
        """Settings that a run must share with its checkpoint; the key's fingerprint tells nothing of the key."""
        return {
            **self.scheme.to_dict(),
            "key": self._sampler.fingerprint,
            "noise_multiplier": self.noise_multiplier,
            "clipping_norm": self.clipping_norm if self._adaptive is None else dataclasses.asdict(self._adaptive),
            "server_learning_rate": self.server_learning_rate,
            "rounds": self.rounds,
            "adjacency": self.adjacency.value,
            "dropouts": self.dropouts,
        }

    def _resume(self, key: Any) -> None:
        assert self._checkpoint is not None
        if key is None:
            raise InvalidArgumentError(
                "checkpoint is given without a key, so that no other process could go on; pass key=secrets.token_bytes(32)"
                " and keep it"
            )
        if self._checkpoint.exists():
            self.rounds_done, self.clipping_norm, arrays = read_state(self._checkpoint, self._settings())
            self._saved = ArrayRecord({name: Array(value) for name, value in arrays.items()})

    # --- one round --------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Messages to the clients of the next round's cohort."""
        if self.rounds_left < 1:
            raise InvalidArgumentError(
                f"rounds={self.rounds} have been released; a longer run needs another scheme or noise"
            )
        values = _floats(arrays)
        largest = max((float(np.abs(value).max(initial=0.0)) for value in values.values()), default=0.0)
        if not math.isfinite(largest):
            raise InvalidArgumentError("the model holds values that are not finite; begin again from a sound one")
        cohort = self._cohort(grid)
        self._open = (cohort, arrays)
        instructions = ConfigRecord({**config, "server-round": self.rounds_done + 1})
        content = RecordDict({"arrays": arrays, "config": instructions})
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node)
            for node in cohort.values()
            if node is not None
        ]

    def _cohort(self, grid: Any) -> dict[int, Any]:
        """The node of every client of this round; None for one that is not connected, if that counts as zero."""
        batch = self._sampler[self.rounds_done]
        population = self._population(grid)
        cohort = {int(client): population.get(int(client)) for client in batch.indices[: batch.size]}
        if None in cohort.values() and self.dropouts == "refuse":
            raise InvalidArgumentError(self._incomplete())
        return cohort

    def _population(self, grid: Any) -> dict[int, int]:
        nodes = self._connected(grid)
        if nodes != self._known[0]:
            size = self.scheme.dataset_size
            found = self._clients(grid, self.patience)
            short = len(found) < size and self.dropouts == "refuse"
            if short or not found.keys() <= set(range(size)):
                raise InvalidArgumentError(
                    f"{len(nodes)} nodes are connected and {len(found)} known as clients, not scheme.dataset_size={size}"
                    " numbered from 0; the population must stay as it was when the run began"
                )
            self._known = (nodes, found)
        return self._known[1]

    def _connected(self, grid: Any) -> set[int]:
        """The nodes, as soon as they are all there, or as many as were there before, or patience is at its end."""
        end = time.monotonic() + self.patience
        while True:
            nodes = set(grid.get_node_ids())
            known = bool(nodes) and nodes == self._known[0]
            if known or len(nodes) >= self.scheme.dataset_size or time.monotonic() > end:
                return nodes
            time.sleep(_POLL)

    def _incomplete(self) -> str:
        # How many are missing, and who, is as secret as the cohort.
        return (
            f"the cohort of round {self.rounds_done + 1} is incomplete, and nothing was released; start again to ask the same"
            " cohort, or pass dropouts='zero' from the beginning if who drops out does not depend on other clients' data"
        )

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, None]:
        """The next model: the last one, plus the clipped and noised mean of the cohort's updates."""
        if self._open is None:
            raise InvalidArgumentError("no round was configured; let Flower's start call the strategy, once a round")
        (cohort, arrays), self._open = self._open, None
        values = _floats(arrays)
        total, norm = self._noisy_sum(self._updates(cohort, values, replies))
        moved = _moved(values, total * (self.server_learning_rate / self.scheme.expected_batch_size))
        if self._checkpoint is not None:
            write_state(self._checkpoint, self.rounds_done + 1, norm, self._settings(), moved)
        self.rounds_done, self.clipping_norm = self.rounds_done + 1, norm
        self._saved = ArrayRecord({name: Array(value) for name, value in moved.items()})
        return self._saved, None

    def _noisy_sum(self, updates: Any) -> tuple[Any, float]:
        """The round's release, and the clipping norm of the next round."""
        norm, noise = self.clipping_norm, self.noise_multiplier
        rows = updates / norm if self._adaptive is None else self._adaptive.rows(updates, norm, noise)
        total = clipped_sum(rows, self.scheme.max_batch_size)
        noisy = add_noise(total, self._sampler, noise_multiplier=noise, step=self.rounds_done)
        if self._adaptive is None:
            return noisy * norm, norm
        return self._adaptive.read(noisy, norm, noise, self.scheme.expected_batch_size)

    def _updates(self, cohort: dict[int, Any], values: dict[str, Any], replies: Iterable[Any]) -> Any:
        """One row a client of the cohort that has answered."""
        open_nodes = set(cohort.values()) - {None}
        rows = []
        for reply in replies:
            if reply.metadata.src_node_id not in open_nodes:
                raise InvalidArgumentError(
                    f"a reply in round {self.rounds_done + 1} is not of its cohort, or the second of one client; nothing"
                    " was released"
                )
            open_nodes.remove(reply.metadata.src_node_id)
            if not reply.has_error():
                rows.append(_row(reply.content, values))
        if len(rows) < len(cohort) and self.dropouts == "refuse":
            raise InvalidArgumentError(self._incomplete())
        return np.stack(rows) if rows else np.zeros((0, sum(value.size for value in values.values())))

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Ask no client to evaluate: its report would have no noise. Evaluate on public data by `evaluate_fn`."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> None:
        """Return nothing, as nobody was asked."""


def _positive(name: str, value: Any, remedy: str) -> float:
    number = _checks.real(name, value, rule="in (0, inf)", remedy=remedy)
    if not 0.0 < number < math.inf:
        raise _checks.fail(f"{name}={number!r} is not in (0, inf); {remedy}")
    return number


def _floats(arrays: Any) -> dict[str, Any]:
    """A model's arrays by name; all must be of floating point, as noise is added to all."""
    values = {name: array.numpy() for name, array in arrays.items()}
    for name, value in values.items():
        if not np.issubdtype(value.dtype, np.floating):
            raise InvalidArgumentError(
                f"the array {name!r} holds {value.dtype}, which cannot be noised; send trainable parameters only"
            )
    return values


def _row(content: Any, values: dict[str, Any]) -> Any:
    """A client's update as one row."""
    records = list(content.array_records.values())
    sent = {name: array.numpy() for name, array in records[0].items()} if len(records) == 1 else {}
    if {name: value.shape for name, value in sent.items()} != {name: value.shape for name, value in values.items()}:
        raise StateError(
            "a client's reply does not hold the model's arrays, by the same names and shapes; nothing was released, mend the"
            " ClientApp"
        )
    parts = [(sent[name].astype(np.float64) - value.astype(np.float64)).ravel() for name, value in values.items()]
    return np.concatenate(parts)


def _moved(values: dict[str, Any], step: Any) -> dict[str, Any]:
    ends = np.cumsum([value.size for value in values.values()])
    return {
        name: (value + step[end - value.size : end].reshape(value.shape)).astype(value.dtype)
        for (name, value), end in zip(values.items(), ends, strict=True)
    }
