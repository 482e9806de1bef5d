"""Machines that people know by name, with the links inside them: nominal figures, one way.

DGX-1 and Summit nodes are as the public MAPA repository has them; NVSwitch machines by the number
of NVLink lanes of a GPU; POWER8 and plain PCIe machines by their vendors' block diagrams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.topology import GpuLink, Groups, NodeTopology
from weft.plural import say_gpus

HALVES: Groups = ((0, 1, 2, 3), (4, 5, 6, 7))
PAIRS: Groups = ((0, 1), (2, 3), (4, 5), (6, 7))
# The hybrid cube mesh of a DGX-1: on V100 the first eight pairs have two lanes.
DGX_1_FIRST = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
DGX_1_SECOND = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
# MAPA's fit of NCCL's all-reduce on a DGX-1V, in the order of `formulas.link_scores`.
DGX_1V_FIT = (
    16.39670455,
    4.536821878,
    1.55623404,
    -20.69484581,
    -9.467461958,
    7.615106783,
    -7.973335727,
    12.73323772,
    -4.195655221,
    -8.413419363,
    62.85125807,
    27.41832588,
    -5.114108079,
    -46.97390071,
)


def _links(pairs: Iterable[tuple[int, int]], width: int, gb_s: float) -> tuple[GpuLink, ...]:
    return tuple(GpuLink(a, b, width, width * gb_s) for a, b in pairs)


def _switched(name: str, gpus: int, lanes: int, per_lane: float = 25.0) -> NodeTopology:
    half = gpus // 2
    sockets = (tuple(range(half)), tuple(range(half, gpus)))
    return NodeTopology(
        name, gpus, sockets=sockets, fabric_gb_s=lanes * per_lane, fabric_width=lanes
    )


NODE_TYPES: Mapping[str, NodeTopology] = {
    topology.name: topology
    for topology in (
        NodeTopology(
            "dgx-1v",
            8,
            _links(DGX_1_FIRST, 2, 25.0) + _links(DGX_1_SECOND, 1, 25.0),
            HALVES,
            PAIRS,
            ring_fit=DGX_1V_FIT,
        ),
        NodeTopology("dgx-1p", 8, _links((*DGX_1_FIRST, *DGX_1_SECOND), 1, 20.0), HALVES, PAIRS),
        _switched("dgx-2", 16, 6),
        _switched("dgx-a100", 8, 12),
        _switched("dgx-h100", 8, 18),
        _switched("hgx-h200", 8, 18),
        NodeTopology("power8", 4, _links(((0, 1), (2, 3)), 2, 20.0), ((0, 1), (2, 3))),
        NodeTopology(
            "power9",
            6,
            _links(((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)), 2, 25.0),
            ((0, 1, 2), (3, 4, 5)),
        ),
        NodeTopology("pcie-8", 8, (), HALVES, HALVES, host_gb_s=8.0, switch_gb_s=12.0),
    )
}


def find_node_type(name: str, gpus: int, where: str) -> NodeTopology:
    """The links of a machine of that type; InvalidConfig if there is none with that many GPUs."""
    topology = NODE_TYPES.get(name)
    if topology is None:
        raise InvalidConfig(
            f"{where}: no node type {name!r}{did_you_mean(name, NODE_TYPES)}",
            hint="`weft list node-type` shows all; a cluster file takes one of your own",
        )
    if topology.gpus != gpus:
        raise InvalidConfig(
            f"{where}: a {name} has {say_gpus(topology.gpus)}, not {gpus}",
            hint=f"write {say_gpus(topology.gpus)}, or describe your own node in a cluster file",
        )
    return topology
