"""Every machine that there is or was since the service began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.core.errors import UnknownName
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import NodeId


class NodeList:
    """Machines by name, and all of them as a cluster, whether they are up or not."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes = {node.id: node for node in nodes}
        self.whole = Cluster(tuple(self._nodes.values()))

    def note(self, node: Node) -> None:
        """One that came up: it may not have been there when the service began."""
        if self._nodes.get(node.id) != node:
            self._nodes[node.id] = node
            self.whole = Cluster(tuple(self._nodes.values()))

    def find(self, node: NodeId) -> Node:
        """The machine of that name; UnknownName if there is none."""
        if node not in self._nodes:
            raise UnknownName.among("node", node, self._nodes, "weft nodes")
        return self._nodes[node]

    def with_words(self, words: Mapping[NodeId, str]) -> list[tuple[Node, str]]:
        """Every machine with the word for its state; `down` where there is none."""
        return [(node, words.get(name, "down")) for name, node in self._nodes.items()]
