# mypy: disable-error-code="import-untyped, import-not-found, no-any-return", allow-subclassing-any
"""The population of a federation: the nodes of the scheme's clients.

Flower's node ids change whenever a node connects anew, and in its simulation with every run. The
scheme counts clients, so a run that is resumed needs names that stay.
"""

from __future__ import annotations

from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("flower"):
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict

_ACTION = "filet_partition"
_RECORD, _PARTITION = "filet", "partition-id"


def by_node_id(grid: Any, timeout: float) -> dict[int, int]:
    """The connected nodes in the order of their ids, as the clients 0, 1, 2, ...

    For runs that are not resumed, or whose ids stay: SuperNodes that the SuperLink knows by their keys.
    """
    return dict(enumerate(sorted(grid.get_node_ids())))


def by_partition(grid: Any, timeout: float) -> dict[int, int]:
    """Each connected node by the partition of the data that it says it has.

    The clients answer by `say_partition`. The number is the `partition-id` of a node's configuration:
    Flower's simulation sets it, a SuperNode is started with `--node-config 'partition-id=3'`.
    """
    nodes = sorted(grid.get_node_ids())
    asked = [
        Message(content=RecordDict(), message_type=f"{MessageType.QUERY}.{_ACTION}", dst_node_id=node) for node in nodes
    ]
    found: dict[int, int] = {}
    for reply in grid.send_and_receive(asked, timeout=timeout):
        if reply.has_error():
            raise InvalidArgumentError(
                "a client does not say which partition it has; call say_partition(client_app) where"
                " the ClientApp is made, and start every node with a partition-id"
            )
        client = int(reply.content[_RECORD][_PARTITION])
        if client in found:
            raise InvalidArgumentError(
                f"two nodes say that they have partition {client}; give every client a partition-id of its own"
            )
        found[client] = reply.metadata.src_node_id
    return found


def say_partition(client_app: Any) -> Any:
    """Let a Flower `ClientApp` answer `by_partition`; returns the app."""

    def answer(message: Any, context: Any) -> Any:
        known = context.node_config.get(_PARTITION)
        if known is None:
            raise InvalidArgumentError(
                "the node has no partition-id; start it with --node-config 'partition-id=NUMBER'"
            )
        number = _checks.integer(_PARTITION, known, low=0, remedy="number the clients from 0")
        return Message(content=RecordDict({_RECORD: ConfigRecord({_PARTITION: number})}), reply_to=message)

    client_app.query(_ACTION)(answer)
    return client_app
