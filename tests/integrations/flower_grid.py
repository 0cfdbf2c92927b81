"""A federation in one process: Flower's own messages and ClientApps, without its network."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import filet
from filet.integrations.flower import CappedCohorts, by_partition, say_partition

KEY = b"a key for tests of Flower's cohorts"
SCHEME = filet.CappedPoisson(dataset_size=12, sampling_probability=0.3, max_batch_size=4)
SHAPES = {"weight": (3, 2), "bias": (2,)}

# Messages say which run and node they are of; Flower's own entry points set it for a process.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class LocalGrid(Grid):
    """Runs every message's ClientApp at once; `silent` nodes do not answer, `broken` ones with an error."""

    def __init__(self, client_app, nodes):
        self.client_app = client_app
        self.nodes = dict(nodes)  # node id: partition
        self.silent, self.broken = set(), set()
        self.asked = []

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *arguments, **options):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.nodes)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        trained = [message for message in messages if message.metadata.message_type == "train"]
        if trained:
            self.asked.append(sorted(self.nodes[message.metadata.dst_node_id] for message in trained))
        replies = []
        for message in reversed(messages):  # in any order
            node = message.metadata.dst_node_id
            if message in trained and node in self.silent:
                continue
            if message in trained and node in self.broken:
                replies.append(Message(Error(code=0, reason="the device was switched off"), reply_to=message))
                continue
            config = {"partition-id": self.nodes[node]}
            context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
            replies.append(self.client_app(message, context))
        return replies


def client_app(update):
    """Clients whose model moves by `update(partition, round)`, a dict of arrays."""
    app = say_partition(ClientApp())

    @app.train()
    def train(message, context):
        arrays = message.content["arrays"]
        moves = update(context.node_config["partition-id"], message.content["config"]["server-round"])
        moved = {name: Array(arrays[name].numpy() + moves[name]) for name in moves}
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord({"loss": 1.0})})
        return Message(content=content, reply_to=message)

    return app


def updates(partition, round_number):
    """An update of a norm that some clients have above 1."""
    rng = np.random.default_rng([partition, round_number])
    return {name: 0.1 * partition * rng.normal(size=shape) for name, shape in SHAPES.items()}


def grid(update=updates, clients=12, first_id=1_000):
    """Node ids that have nothing to do with the partitions, nor with their order."""
    return LocalGrid(client_app(update), {first_id + 7 * (17 * client % clients): client for client in range(clients)})


def model(value=0.0, dtype=np.float32):
    return ArrayRecord({name: Array(np.full(shape, value, dtype=dtype)) for name, shape in SHAPES.items()})


def cohorts(scheme=SCHEME, **options):
    given = {
        "noise_multiplier": 1.0, "clipping_norm": 0.5, "rounds": 6, "adjacency": "zero-out", "key": KEY,
        "clients": by_partition, "patience": 0.5, **options,
    }  # fmt: skip
    return CappedCohorts(scheme, **given)


def flat(arrays):
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])
