"""A budget of work: what a question may cost before it is refused, counted in nodes, the same on every machine."""

from __future__ import annotations

_NODES = 1_500_000  # about half a second


class Budget:
    """Nodes that lines may still take. Searches end when it is spent, with what is proven by then."""

    def __init__(self, nodes: int = _NODES) -> None:
        self.left = nodes

    @property
    def spent(self) -> bool:
        return self.left <= 0

    def spend(self, nodes: int) -> None:
        self.left -= nodes
