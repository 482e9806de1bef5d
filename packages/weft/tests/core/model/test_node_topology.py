from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refused import refused

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig
from weft.core.knowledge.traffic import Traffic, TrafficPhase
from weft.core.model.cluster import Node, parse_cluster
from weft.core.model.job import Allocation, NodeId, Slice
from weft.core.model.node_types import NODE_TYPES
from weft.core.model.topology import GpuLink, NodeTopology


def on(*parts: tuple[str, tuple[int, ...]]) -> Allocation:
    return Allocation(tuple(Slice(NodeId(node), gpus) for node, gpus in parts))


def test_a_dgx_1v_has_600_gb_s_of_nvlink_and_pcie_elsewhere() -> None:
    dgx = NODE_TYPES["dgx-1v"]

    pairs = [(a, b) for a in range(8) for b in range(a)]

    assert sum(dgx.bandwidths[a][b] for a, b in pairs if dgx.widths[a][b]) == 600.0
    assert dgx.bandwidths[0][3] == 50.0
    assert dgx.bandwidths[0][1] == 25.0
    assert dgx.bandwidths[0][5] == 10.0
    assert dgx.distances[0][4] == 1.0  # NVLink across sockets
    assert dgx.distances[0][5] == 20.0
    assert not dgx.uniform


@pytest.mark.parametrize("name", ["dgx-2", "dgx-a100", "hgx-h200"])
def test_pairs_behind_nvswitch_are_all_alike(name: str) -> None:
    assert NODE_TYPES[name].uniform


def test_links_are_told_in_a_word() -> None:
    summaries = {
        name: NODE_TYPES[name].summary for name in ("dgx-1v", "hgx-h200", "pcie-8", "dgx-1p")
    }

    assert summaries == {
        "dgx-1v": "NVLink, 2 lanes at most",
        "hgx-h200": "NVSwitch, 18 lanes",
        "pcie-8": "PCIe",
        "dgx-1p": "NVLink, 1 lane at most",
    }


def test_a_pcie_machine_tells_switches_from_sockets() -> None:
    pcie = NODE_TYPES["pcie-8"]

    assert pcie.bandwidths[0][1] > pcie.bandwidths[0][4]
    assert (pcie.distances[0][1], pcie.distances[0][4]) == (2.0, 20.0)


def test_a_cluster_string_says_how_gpus_and_nodes_are_joined() -> None:
    cluster = parse_cluster("4x8:v100@dgx-1v/nic=50/rack=2:80+1x4:t4")

    assert cluster.joined
    assert cluster.nodes[0].topology is NODE_TYPES["dgx-1v"]
    assert [node.rack for node in cluster.nodes] == ["rack-0", "rack-0", "rack-1", "rack-1", ""]
    assert cluster.links["rack-1"].gbps == 80.0
    assert not parse_cluster("4x8:v100").joined


def test_traffic_crosses_what_is_above_some_of_its_nodes_and_not_above_all() -> None:
    cluster = parse_cluster("4x8:v100/nic=50/rack=2:80")

    def names(*nodes: str) -> list[str]:
        return [link.name for link in cluster.crossed(on(*((n, (0,)) for n in nodes)))]

    assert names("v100-0") == []
    assert names("v100-0", "v100-1") == ["v100-0", "v100-1"]
    assert names("v100-1", "v100-2") == ["v100-1", "rack-0", "v100-2", "rack-1"]


@refused(
    InvalidConfig,
    {
        "2x8:v100@dgx-1x": "did you mean 'dgx-1v'",
        "2x4:v100@dgx-1v": "a dgx-1v has 8 GPUs, not 4",
        "2x8:v100/nic=0": "gbps is 0",
        "2x8:v100/nic=1.2.3": "nic='1.2.3' is not a number",
        "2x8:v100/rack=0:10": "rack=0 nodes",
        "2x8:v100/nick=3": "is not NODESxGPUS:KIND",
    },
)
def test_a_wrong_part_of_a_cluster_string_is_named(text: str) -> None:
    parse_cluster(text)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.sampled_from(("8:v100@dgx-1v", "8:a100", "16:v100@dgx-2", "6:v100@power9")),
            st.sampled_from(("", "/nic=50", "/nic=12.5/rack=2:80", "/rack=3:400")),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_node_is_logged_as_it_is_read(parts: list[tuple[int, str, str]]) -> None:
    cluster = parse_cluster("+".join(f"{count}x{what}{net}" for count, what, net in parts))

    assert [decode(Node, encode(node)) for node in cluster.nodes] == list(cluster.nodes)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gpus": 0}, "gpus=0"),
        ({"host_gb_s": 0.0}, "host_gb_s=0"),
        ({"fabric_gb_s": 300.0}, "fabric_width=0"),
        ({"links": (GpuLink(0, 4, 1, 25.0),)}, "links=.*4"),
        ({"links": (GpuLink(0, 1, 1, 25.0), GpuLink(1, 0, 1, 25.0))}, "links="),
        ({"links": (GpuLink(0, 1, 0, 25.0),)}, "links="),
        ({"sockets": ((0, 1), (2,))}, "sockets="),
        ({"switches": ((0, 1), (1, 2, 3))}, "switches="),
    ],
)
def test_a_topology_that_cannot_be_names_its_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        NodeTopology(**{"name": "mine", "gpus": 4, **fields})  # type: ignore[arg-type]


def test_an_iteration_takes_its_computation_and_its_bits_over_the_bandwidth() -> None:
    traffic = Traffic(iteration_s=1.0, share=0.5, gbit=40.0)

    assert traffic.seconds_at(10.0) == pytest.approx(1.0)
    assert traffic.seconds_at(5.0) == pytest.approx(1.5)
    assert traffic.talking == (TrafficPhase(0.5, 0.5, 80.0),)
    assert Traffic(1.0, 0.5, 40.0, sensitive=False).seconds_at(1.0) == 1.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"iteration_s": 0.0}, "iteration_s"),
        ({"share": 1.5}, "share"),
        ({"share": 0.5}, "gbit=0"),
        ({"phases": (TrafficPhase(0.5, 0.6, 10.0),)}, "inside the iteration"),
        ({"phases": (TrafficPhase(0.5, 0.5, -1.0),)}, "Gbit/s"),
    ],
)
def test_traffic_that_cannot_be_names_its_field(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Traffic(**fields)  # type: ignore[arg-type]
