"""Asks a node itself whether its GPUs work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from weft.core.model.job import NodeId


class NodeChecks(Protocol):
    """Opens GPUs of nodes on request."""

    async def check_node(self, node: NodeId, gpus: Sequence[int]) -> Mapping[int, str]:
        """The fault of each of these GPUs, empty for one that works.

        Without those that could not be tried. EngineError if the node does not answer in time.
        """
        ...
