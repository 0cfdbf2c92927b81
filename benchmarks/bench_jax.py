"""Batches for JAX: drawn on the device or on the host, by filet, JAX, JAX Privacy and grain, in one run.

    python benchmarks/bench_jax.py [--quick]

Prints a table and writes results/jax.json. Times are processor time a batch, on one thread, of turns that all take
in every round, medians of five; a ratio is the median of the rounds' quotients.

`device`: indices and a mask inside `jax.jit`. filet's `device_sampler` draws a capped Poisson batch. `jax.random.choice`
draws a batch of a fixed size without replacement, which is no Poisson batch: it is what a user would write, and it
shuffles all n, and stops at 10^6 here. JAX Privacy draws on the host: its loop is the iterator, its padding and the transfer.

`host`: rows of two arrays (16 numbers and a label) with a mask, as device arrays. JAX Privacy's loop is its iterator, its
padding to the cap, and NumPy's indexing with zeros in padding. grain's loops are a `MapDataset` of filet's batches, and
a shuffled one of the same rows one by one in batches of B, which is no Poisson batch either.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
from bench_loaders import COLUMNS, KEY, rotated, scheme_for
from common import machine, write_json

from filet.integrations.grain import CappedBatchSource
from filet.integrations.jax import batches, device_sampler, secret_key

SIZES = (60_000, 10**6, 10**7)
BATCHES = (64, 256, 4096)
ROUNDS = 5
MOST_FOR_CHOICE = 10**6  # it sorts n numbers, half a second at 10^6
ENDLESS = 10**9

Turns = dict[str, Callable[[], Any]]


def device_turns(n: int, batch: int) -> Turns:
    """A call of each draws one batch and waits for it."""
    scheme = scheme_for(n, batch)
    draw = jax.jit(device_sampler(scheme))
    choice = jax.jit(lambda key, step: jax.random.choice(jax.random.fold_in(key, step), n, (batch,), replace=False))
    key, counter, peers = secret_key(KEY), itertools.count(), peer_indices(n, batch)

    def peer() -> Any:
        indices = next(peers)
        return jnp.asarray(indices), jnp.asarray(indices >= 0)

    turns = {"filet": lambda: draw(key, next(counter)), "JAX Privacy": peer}
    if n <= MOST_FOR_CHOICE:
        turns["jax.random.choice"] = lambda: choice(key, next(counter))
    return turns


def peer_indices(n: int, batch: int) -> Iterator[np.ndarray]:
    """JAX Privacy's capped Poisson batches, padded by its own function."""
    selection = import_module("jax_privacy.batch_selection")
    cap = scheme_for(n, batch).max_batch_size
    strategy = selection.CyclicPoissonSampling(sampling_prob=batch / n, iterations=ENDLESS, truncated_batch_size=cap)
    for indices in strategy.batch_iterator(n, rng=1):
        padded = selection.pad_to_multiple_of(indices, cap)
        yield padded if len(padded) else np.full(cap, -1)


def host_turns(n: int, batch: int) -> Turns:
    data = {"x": np.random.default_rng(0).random((n, COLUMNS), dtype=np.float32), "y": np.arange(n)}
    sampler = scheme_for(n, batch).sampler(KEY)
    own, peer = batches(data, sampler, ENDLESS), peer_rows(data, n, batch)
    turns: Turns = {"filet": lambda: next(own), "JAX Privacy": lambda: next(peer)}
    if n == SIZES[0]:
        turns |= grain_turns(data, sampler, batch)
    return turns


def peer_rows(data: Any, n: int, batch: int) -> Iterator[Any]:
    for indices in peer_indices(n, batch):
        mask = indices >= 0
        rows = {name: leaf[indices] for name, leaf in data.items()}
        for leaf in rows.values():
            leaf[~mask] = 0
        yield jax.tree.map(jnp.asarray, rows), jnp.asarray(mask)


def grain_turns(data: Any, sampler: Any, batch: int) -> Turns:
    grain = import_module("grain")
    ours = iter(grain.MapDataset.source(CappedBatchSource(data, sampler, 10**6)))
    rows = grain.MapDataset.source(Rows(data)).shuffle(seed=1).repeat().batch(batch, drop_remainder=True)
    plain = iter(rows)
    return {
        "filet in grain": lambda: jax.tree.map(jnp.asarray, next(ours)),
        "grain": lambda: jax.tree.map(jnp.asarray, next(plain)),
    }


class Rows:
    """Single records of arrays."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data["y"])

    def __getitem__(self, place: Any) -> Any:
        return {name: leaf[place] for name, leaf in self._data.items()}


KINDS: dict[str, Callable[[int, int], Turns]] = {"device": device_turns, "host": host_turns}


def measured(turns: Turns, seconds: float, rounds: int) -> dict[str, Any]:
    """Microseconds a batch of each, and filet's speed over each other's."""
    for turn in turns.values():  # compiles, and sets up
        jax.block_until_ready(turn())  # type: ignore[no-untyped-call]
        jax.block_until_ready(turn())  # type: ignore[no-untyped-call]
    found = [{name: one_turn(turns[name], seconds) for name in rotated(tuple(turns), k)} for k in range(rounds)]
    answer: dict[str, Any] = {}
    for name in turns:
        quotients = [one[name] / one["filet"] for one in found]
        answer[name] = {
            "us": statistics.median(one[name] for one in found),
            "ratio": statistics.median(quotients),
        }
    return answer


def one_turn(turn: Callable[[], Any], seconds: float) -> float:
    gc.collect()
    start, count = time.process_time(), 0
    while not count or time.process_time() - start < seconds:
        jax.block_until_ready(turn())  # type: ignore[no-untyped-call]
        count += 1
    return 1e6 * (time.process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one point of each kind")
    quick = parser.parse_args().quick
    sizes, sides = ((SIZES[0],), (256,)) if quick else (SIZES, BATCHES)
    rows = []
    for kind, n, batch in itertools.product(KINDS, sizes, sides):
        found = measured(KINDS[kind](n, batch), 0.02 if quick else 0.15, 1 if quick else ROUNDS)
        rows.append({"kind": kind, "n": n, "batch": batch, "times": found})
        shown = "  ".join(f"{name} {one['us']:,.0f} us ({one['ratio']:.2f})" for name, one in found.items())
        print(f"{kind:>8} {n:>10} {batch:>6}  {shown}", flush=True)
    about = machine("jax", "jax_privacy", "grain", "numpy", "filet")
    write_json("jax", {"machine": about, "quick": quick, "rows": rows})


if __name__ == "__main__":
    main()
