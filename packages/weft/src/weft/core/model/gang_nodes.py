"""Gangs that ask for a number of nodes: what that means, and which nodes have room for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Slice
from weft.core.state.capacity import Capacity
from weft.plural import say_gpus


def keeps_nodes(demand: Demand, on: Allocation) -> bool:
    """True if an allocation is on as many nodes as asked for, with as many GPUs on each."""
    if not demand.nodes:
        return True
    each = {len(part.gpus) for part in on.slices}
    return len(on.slices) == demand.nodes and len(each) == 1


def place_on_nodes(free: Capacity, kind: str, demand: Demand) -> tuple[Slice, ...] | None:
    """Wholly free devices on as many nodes as asked for, the fullest that have room first."""
    each, slices = demand.per_node, list[Slice]()
    for size in range(each, free.cluster.node_size(kind) + 1):
        for node in free.nodes_with(kind, size):
            slices.append(free.slice(node, each))
            if len(slices) == demand.nodes:
                return tuple(slices)
    return None


def count_large_nodes(demand: Demand, nodes: Iterable[Node]) -> int:
    """Nodes that have what a gang asks for on each, of the kind with most of them."""
    counts = Counter(
        node.kind
        for node in nodes
        if node.gpus >= demand.per_node and (not demand.kinds or node.kind in demand.kinds)
    )
    return max(counts.values(), default=0)


def explain_too_few_nodes(demand: Demand, cluster: Cluster) -> tuple[str, str]:
    """The reason why no state of a cluster holds a gang, and a hint; empty texts where one does."""
    if not demand.nodes or not demand.gpus:
        return "", ""
    there = count_large_nodes(demand, cluster.nodes)
    if there >= demand.nodes:
        return "", ""
    what = f"asks for {describe_nodes(demand)}; there {'is' if there == 1 else 'are'} {there} of "
    what += "one kind with that many"
    return what, "ask for fewer GPUs on each node, for fewer nodes, or leave nodes out"


def describe_nodes(demand: Demand) -> str:
    """`2 nodes with 4 GPUs each`."""
    if demand.nodes == 1:
        return f"1 node with {say_gpus(demand.per_node)}"
    return f"{demand.nodes} nodes with {say_gpus(demand.per_node)} each"


def describe_parts(on: Allocation) -> str:
    """`4+3+1 GPUs of 3 nodes`."""
    if len(on.slices) == 1:
        return f"{say_gpus(on.gpus)} of 1 node"
    counts = "+".join(str(len(part.gpus)) for part in on.slices) + " GPUs"
    return f"{counts} of {len(on.slices)} nodes"
