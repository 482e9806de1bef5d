"""What nvidia-smi prints of links, as recorded, and what we make of it."""

from __future__ import annotations

import pytest

from weft.core.model.node_types import NODE_TYPES
from weft.engines.machine.devices import (
    Gpu,
    LinkMatrix,
    find_links,
    parse_topo,
    read_links,
    this_machine,
)


def printed(rows: list[str], numa: list[str]) -> str:
    """As `nvidia-smi topo -m` lays it out: tabs, a legend below."""
    count = len(rows)
    head = "\t" + "\t".join(f"GPU{i}" for i in range(count)) + "\tCPU Affinity\tNUMA Affinity"
    lines = [
        f"GPU{i}\t" + "\t".join(row.split()) + f"\t0-19\t{numa[i]}" for i, row in enumerate(rows)
    ]
    legend = ["", "Legend:", "", "  X    = Self", "  NV#  = a bonded set of # NVLinks"]
    return "\n".join([head, *lines, *legend])


DGX_1V = printed(
    [
        "X NV1 NV1 NV2 NV2 SYS SYS SYS",
        "NV1 X NV2 NV1 SYS NV2 SYS SYS",
        "NV1 NV2 X NV2 SYS SYS NV1 SYS",
        "NV2 NV1 NV2 X SYS SYS SYS NV1",
        "NV2 SYS SYS SYS X NV1 NV1 NV2",
        "SYS NV2 SYS SYS NV1 X NV2 NV1",
        "SYS SYS NV1 SYS NV1 NV2 X NV2",
        "SYS SYS SYS NV1 NV2 NV1 NV2 X",
    ],
    ["0"] * 4 + ["1"] * 4,
)
PCIE = printed(
    [
        "X PIX PHB SYS SYS",
        "PIX X PHB SYS SYS",
        "PHB PHB X SYS SYS",
        "SYS SYS SYS X PXB",
        "SYS SYS SYS PXB X",
    ],
    ["N/A"] * 5,
)


def matrix_of(text: str) -> LinkMatrix:
    matrix = parse_topo(text)
    assert matrix is not None
    return matrix


def test_a_recorded_dgx_1v_is_the_node_type_of_that_name() -> None:
    read, known = read_links("v100", matrix_of(DGX_1V)), NODE_TYPES["dgx-1v"]

    assert read.bandwidths == known.bandwidths
    assert read.widths == known.widths
    assert read.sockets == known.sockets


def test_lanes_that_all_pairs_show_lead_to_a_switch() -> None:
    rows = [" ".join("X" if a == b else "NV18" for b in range(8)) for a in range(8)]
    links = read_links("h200", matrix_of(printed(rows, ["0"] * 4 + ["1"] * 4)))

    assert links.uniform
    assert (links.fabric_gb_s, links.fabric_width) == (450.0, 18)
    assert links.bandwidths == NODE_TYPES["hgx-h200"].bandwidths


def test_two_gpus_with_a_bridge_have_a_link_of_their_own() -> None:
    links = read_links("a100", matrix_of(printed(["X NV12", "NV12 X"], ["0", "0"])))

    assert links.fabric_gb_s == 0.0
    assert links.bandwidths[0][1] == 300.0


def test_pcie_switches_and_sockets_are_told_without_numa_nodes() -> None:
    links = read_links("t4", matrix_of(PCIE))

    assert links.sockets == ((0, 1, 2), (3, 4))
    assert links.switches == ((0, 1), (2,), (3, 4))
    assert links.links == ()


def test_colours_and_network_cards_do_not_get_in_the_way() -> None:
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
        "GPU0\t X \tNV4\tPIX\t0-7\t0\tN/A\n"
        "GPU1\tNV4\t X \tSYS\t8-15\t1\tN/A\n"
        "NIC0\tPIX\tSYS\t X \n"
    )

    assert matrix_of(text) == LinkMatrix((("X", "NV4"), ("NV4", "X")), (0, 1))


@pytest.mark.parametrize("text", ["", "No devices were found", "\tGPU0\tGPU1\nGPU0\tX\tSYS\n"])
def test_what_is_no_matrix_is_not_taken_for_one(text: str) -> None:
    assert parse_topo(text) is None


def test_some_of_the_gpus_keep_their_own_links() -> None:
    links = read_links("v100", matrix_of(DGX_1V).restrict((0, 3, 4)))

    assert links.bandwidths == ((0.0, 50.0, 50.0), (50.0, 0.0, 10.0), (50.0, 10.0, 0.0))


def test_the_node_of_a_machine_carries_its_links_and_does_without() -> None:
    gpus = tuple(Gpu(i, "Tesla V100-SXM2-16GB", 16.0) for i in range(8))
    links = read_links("v100", matrix_of(DGX_1V))

    assert this_machine("here", 0, gpus, links).node.topology == links
    assert this_machine("here", 2, ()).node.topology is None
    assert find_links("h200", [0]) is None  # a single one is joined to nobody
