"""Federated learning with Flower: cohorts of at most 24 of 100 clients, clipped and noised on the server.

Run it with `python examples/federate_flower.py [--rounds N] [--checkpoint FILE.npz]`. It starts
Flower's simulation on this machine. With a checkpoint it may be killed at any moment; started again
it goes on, to the same weights. It needs `pip install 'filet[flower]' 'flwr[simulation]'`.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

import filet
from filet.integrations.flower import CappedCohorts, by_partition, say_partition

CLIENTS, ROWS, FEATURES, CLASSES = 100, 40, 8, 3
DELTA, EPSILON, CLIPPING_NORM = 1e-3, 8.0, 1.0
KEY = b"for an example only"  # of cohorts and noise; a real run draws it by secrets.token_bytes(32), and keeps it
SCHEME = filet.CappedPoisson(CLIENTS, sampling_probability=0.2, max_batch_size=24)


def data(client: int) -> tuple[Any, Any]:
    """The rows that one client has: three clouds of points, which every client sees in its own shares."""
    rng = np.random.default_rng([1, client])
    centres = np.random.default_rng(0).normal(size=(CLASSES, FEATURES))
    labels = rng.choice(CLASSES, size=ROWS, p=rng.dirichlet(np.full(CLASSES, 2.0)))
    return centres[labels] + rng.normal(size=(ROWS, FEATURES)), labels


def probabilities(weights: Any, features: Any) -> Any:
    scores = features @ weights
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


client_app = say_partition(ClientApp())


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Ten steps of gradient descent on a client's own rows."""
    features, labels = data(int(context.node_config["partition-id"]))
    weights = message.content["arrays"]["weights"].numpy()
    for _ in range(10):
        errors = probabilities(weights, features) - np.eye(CLASSES)[labels]
        weights = weights - 0.2 * features.T @ errors / ROWS
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": MetricRecord()})
    return Message(content=content, reply_to=message)


def accuracy(weights: Any) -> float:
    """On rows that belong to nobody: clients are not asked, as their answers would have no noise."""
    features, labels = (np.concatenate(parts) for parts in zip(*map(data, range(CLIENTS, CLIENTS + 50)), strict=True))
    return float((probabilities(weights, features).argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    noise = filet.calibrate_noise_multiplier(
        SCHEME, steps=options.rounds, epsilon=EPSILON, delta=DELTA, adjacency="zero-out"
    )
    strategy = CappedCohorts(
        SCHEME,
        noise_multiplier=noise,
        clipping_norm=CLIPPING_NORM,
        rounds=options.rounds,
        adjacency="zero-out",
        key=KEY,
        clients=by_partition,
        checkpoint=options.checkpoint,
    )
    if strategy.rounds_done:
        print(f"resumed at step {strategy.rounds_done}", flush=True)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        def report(_: int, arrays: ArrayRecord) -> None:
            print(f"step {strategy.rounds_done} of {options.rounds}", flush=True)

        start = ArrayRecord({"weights": Array(np.zeros((FEATURES, CLASSES)))})
        weights = strategy.start(grid, start, evaluate_fn=report).arrays["weights"].numpy()
        digest = hashlib.sha256(weights.tobytes()).hexdigest()
        print(
            f"accuracy {accuracy(weights):.3f}, epsilon {strategy.epsilon(DELTA):.4f}, weights {digest[:16]}",
            flush=True,
        )

    run_simulation(server_app, client_app, num_supernodes=CLIENTS)


if __name__ == "__main__":
    main()
