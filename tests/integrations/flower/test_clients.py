"""The names of clients: from the partition that a node says it has, or from the order of ids."""

from __future__ import annotations

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from tests.integrations.flower_grid import LocalGrid, grid

import filet
from filet.integrations.flower import by_node_id, by_partition, say_partition


def test_nodes_are_named_by_the_partition_that_they_say():
    nodes = grid()
    assert by_partition(nodes, 1.0) == {partition: node for node, partition in nodes.nodes.items()}
    assert by_node_id(nodes, 1.0) == dict(enumerate(sorted(nodes.nodes)))
    assert nodes.asked == []


def test_a_node_without_a_partition_is_told_how_to_get_one():
    app = say_partition(ClientApp())
    question = Message(content=RecordDict(), message_type="query.filet_partition", dst_node_id=3)
    context = Context(run_id=1, node_id=3, node_config={}, state=RecordDict(), run_config={})
    with pytest.raises(filet.InvalidArgumentError, match="--node-config 'partition-id=NUMBER'"):
        app(question, context)


def test_clients_that_do_not_answer_are_told_what_is_missing():
    class Erring(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            from flwr.app import Error

            return [Message(Error(code=0, reason="no such action"), reply_to=message) for message in messages]

    with pytest.raises(filet.InvalidArgumentError, match=r"call say_partition\(client_app\)"):
        by_partition(Erring(ClientApp(), {1: 0}), 1.0)
