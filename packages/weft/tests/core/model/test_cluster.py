"""Clusters from text, and what is read off them."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import MAX_GPUS, NAMED_CLUSTERS, Cluster, Node, parse_cluster
from weft.core.model.job import Allocation, NodeId, Slice


def test_parts_become_nodes_with_their_hosts_in_proportion() -> None:
    cluster = parse_cluster("1x4:t4+2x8:a100")

    assert cluster.nodes == (
        Node(NodeId("t4-0"), "t4", 4, 32.0, 256.0),
        Node(NodeId("a100-1"), "a100", 8, 64.0, 512.0),
        Node(NodeId("a100-2"), "a100", 8, 64.0, 512.0),
    )
    assert cluster.name == "1x4:t4+2x8:a100"


def test_counts_are_known_by_kind_in_order_of_appearance() -> None:
    cluster = parse_cluster("1x4:t4+2x8:a100+3x2:t4")

    assert cluster.kinds == ("t4", "a100")
    assert cluster.gpus_by_kind == {"t4": 10, "a100": 16}
    assert cluster.gpus == 26
    assert (cluster.node_size("t4"), cluster.node_size("a100")) == (4, 8)


def test_spaces_around_parts_do_not_matter() -> None:
    assert parse_cluster(" 1x4:t4 + 2x8:a100 ") == parse_cluster("1x4:t4+2x8:a100")


def test_a_name_stands_for_its_nodes_and_is_kept() -> None:
    cluster = parse_cluster("sia-hetero")

    assert cluster == parse_cluster("6x4:t4+3x8:rtx+2x8:a100")
    assert cluster.name == "sia-hetero"
    assert cluster.gpus == 64


@pytest.mark.parametrize("name", NAMED_CLUSTERS)
def test_every_named_cluster_can_be_read(name: str) -> None:
    cluster = parse_cluster(name)

    assert len({node.id for node in cluster.nodes}) == len(cluster.nodes)


@pytest.mark.parametrize(
    "text", ["", "8x8", "8:v100", "x8:v100", "8x8:", "8x8:8", "1x1:t4+", "-1x2:t4"]
)
def test_what_is_not_a_cluster_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_cluster(text)

    assert f"cannot read cluster {text!r}" in caught.value.what
    assert "8x8:v100" in caught.value.hint


def test_the_message_names_the_part_that_cannot_be_read() -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_cluster("2x8:a100+4by4:t4")

    assert caught.value.what == (
        "cannot read cluster '2x8:a100+4by4:t4': '4by4:t4' is not NODESxGPUS:KIND"
    )


def test_a_misspelt_name_is_answered_with_the_closest() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'sia-hetero'"):
        parse_cluster("sia-hetro")


@pytest.mark.parametrize("text", ["0x4:t4", "4x0:t4", f"{MAX_GPUS}x2:t4"])
def test_no_gpus_and_too_many_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"has [\d,]+ GPUs\n  hint: use at least 1"):
        parse_cluster(text)


def test_losing_a_node_leaves_the_others() -> None:
    cluster = parse_cluster("3x4:t4")

    rest = cluster.without(NodeId("t4-1"))

    assert [node.id for node in rest.nodes] == ["t4-0", "t4-2"]
    assert rest.index == {"t4-0": 0, "t4-2": 1}


def test_a_node_comes_back_to_its_place_and_a_new_one_to_the_end() -> None:
    whole = parse_cluster("3x4:t4")
    order = {node.id: i for i, node in enumerate(whole.nodes)}
    rest = whole.without(NodeId("t4-1"))

    again = rest.having(whole.nodes[1], order)
    more = rest.having(Node(NodeId("new"), "a100", 8), order)

    assert again == whole
    assert [node.id for node in more.nodes] == ["t4-0", "t4-2", "new"]
    assert more.index == {"t4-0": 0, "t4-2": 1, "new": 2}


def test_a_node_that_comes_twice_is_there_once() -> None:
    whole = parse_cluster("2x4:t4")
    larger = Node(NodeId("t4-0"), "t4", 8)

    changed = whole.having(larger, {node.id: i for i, node in enumerate(whole.nodes)})

    assert changed.nodes == (larger, whole.nodes[1])


def test_the_kind_of_an_allocation_is_its_nodes() -> None:
    cluster = parse_cluster("1x4:t4+1x4:a100")

    assert cluster.kind_of(Allocation((Slice(NodeId("a100-1"), (0,)),))) == "a100"


def test_clusters_with_the_same_nodes_are_equal_whatever_their_name() -> None:
    assert Cluster((), "a") == Cluster((), "b")
