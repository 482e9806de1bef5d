"""Clusters from YAML files, and what is wrong with a file that is not one."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.app.simulate.clusters import find_cluster, read_cluster
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node, parse_cluster
from weft.core.model.job import NodeId


def write(folder: Path, text: str) -> Path:
    path = folder / "lab.yaml"
    path.write_text(text)
    return path


def wrong(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(InvalidConfig) as caught:
        read_cluster(path)
    return str(caught.value).replace(str(path), "lab.yaml")


def test_a_file_lists_nodes_with_their_hosts(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
nodes:
  - {count: 2, gpus: 4, kind: t4}
  - {name: big, gpus: 8, kind: a100, cpus: 96, mem_gb: 1024.5, rack: r1}
  - {count: 2, name: twin, gpus: 1, kind: a100}
""",
    )

    cluster = find_cluster(str(path))

    assert cluster.nodes == (
        Node(NodeId("t4-0"), "t4", 4, 32.0, 256.0),
        Node(NodeId("t4-1"), "t4", 4, 32.0, 256.0),
        Node(NodeId("big"), "a100", 8, 96.0, 1024.5, "r1"),
        Node(NodeId("twin-3"), "a100", 1, 8.0, 64.0),
        Node(NodeId("twin-4"), "a100", 1, 8.0, 64.0),
    )
    assert cluster.name == "lab"


def test_a_file_says_the_same_as_the_string(tmp_path: Path) -> None:
    path = write(tmp_path, "nodes: [{count: 2, gpus: 8, kind: a100}]")

    assert read_cluster(path) == parse_cluster("2x8:a100")


def test_what_is_no_file_is_a_string() -> None:
    assert find_cluster("2x8:a100") == parse_cluster("2x8:a100")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lab.yaml has no list of nodes\n  hint: for example nodes: [{count: 2,"),
        ("nodes: []", "lab.yaml has no list of nodes"),
        ("nodes: 3", "lab.yaml has no list of nodes"),
        ("[1, 2]", "lab.yaml has no list of nodes"),
        ("nodes: [", "lab.yaml, line "),
        ("nodes: [7]", "lab.yaml, node 1: expected fields, found 7"),
        (
            "nodes: [{gpus: 1, kind: t4}, {gpu: 1}]",
            "lab.yaml, node 2: unknown field 'gpu'; did you mean 'gpus'?\n"
            "  hint: known fields are count, gpus, kind, cpus, mem_gb, rack, name",
        ),
        ("nodes: [{gpus: 1}]", "lab.yaml, node 1: gpus and kind are needed"),
        ("nodes: [{kind: t4}]", "lab.yaml, node 1: gpus and kind are needed"),
        ("nodes: [{gpus: 0, kind: t4}]", "lab.yaml, node 1: count=1 and gpus=0 must be at least 1"),
        (
            "nodes: [{gpus: 1, count: -2, kind: t4}]",
            "lab.yaml, node 1: count=-2 and gpus=1 must be at least 1",
        ),
        ("nodes: [{gpus: many, kind: t4}]", "lab.yaml, node 1: gpus='many' is not a whole number"),
        ("nodes: [{gpus: 2.5, kind: t4}]", "lab.yaml, node 1: gpus=2.5 is not a whole number"),
        ("nodes: [{gpus: true, kind: t4}]", "lab.yaml, node 1: gpus=True is not a whole number"),
        ("nodes: [{gpus: 1, kind: t4, cpus: x}]", "lab.yaml, node 1: cpus='x' is not a number"),
        (
            "nodes: [{gpus: 1, kind: t4, cpus: -4}]",
            "lab.yaml, node 1: cpus=-4.0 must not be below 0",
        ),
        (
            "nodes: [{gpus: 1, kind: t4, mem_gb: .nan}]",
            "lab.yaml, node 1: mem_gb=nan must not be below 0",
        ),
        (
            "nodes: [{gpus: 1000, count: 2000, kind: t4}]",
            "lab.yaml, node 1: 2,000,000 GPUs\n  hint: use at most 1,000,000",
        ),
        (
            "nodes: [{gpus: 1, kind: t4, name: n}, {gpus: 2, kind: t4, name: n}]",
            "lab.yaml: node 'n' is named twice",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    assert wrong(tmp_path, text).startswith(message)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*none\.yaml: No such file"):
        find_cluster(str(tmp_path / "none.yaml"))


def test_a_file_that_is_not_text_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "binary.yml"
    path.write_bytes(b"\xff\xfe\x00nodes")

    with pytest.raises(InvalidConfig, match=r"binary\.yml is not text"):
        find_cluster(str(path))


def test_a_file_says_how_gpus_racks_and_spines_are_joined(tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(
        '{"sockets": [[0, 1], [2, 3]], "links": [[0, 1, 2, 50], [2, 3, 2, 50]], "host_gb_s": 12}'
    )
    path = tmp_path / "lab.json"
    path.write_text(
        '{"nodes": [{"count": 2, "gpus": 4, "kind": "v100", "rack": "r1", "nic_gbps": 25,'
        ' "topology": "box.json"},'
        ' {"gpus": 8, "kind": "a100", "rack": "r2", "topology": "dgx-a100"}],'
        ' "racks": {"r1": {"gbps": 100, "spine": "s1"}, "r2": 200}, "spines": {"s1": 400}}'
    )

    first, _, last = find_cluster(str(path)).nodes

    assert first.topology is not None
    assert last.topology is not None
    assert (first.topology.name, first.topology.bandwidths[0][2]) == ("box", 12.0)
    assert [(link.name, link.gbps) for link in first.uplinks] == [
        ("v100-0", 25.0),
        ("r1", 100.0),
        ("s1", 400.0),
    ]
    assert [link.name for link in last.uplinks] == ["r2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{gpus: 4, kind: t4, topology: dgx-1v}]", "node 1: a dgx-1v has 8 GPUs"),
        ("nodes: [{gpus: 4, kind: t4, topology: {link: []}}]", "did you mean 'links'"),
        ("nodes: [{gpus: 4, kind: t4, topology: {links: [[0, 1, 2]]}}]", "lanes, GB/s"),
        ("nodes: [{gpus: 4, kind: t4, topology: {sockets: [[0, x]]}}]", "sockets: 'x'"),
        ("nodes: [{gpus: 4, kind: t4, topology: 4}]", "topology: expected fields"),
        ("{nodes: [{gpus: 4, kind: t4, rack: r}], racks: {r: fast}}", "racks.r.gbps: 'fast'"),
        ("{nodes: [{gpus: 4, kind: t4}], racks: {r: 5}}", "no node is in rack 'r'"),
        (
            "{nodes: [{gpus: 4, kind: t4, rack: r}], racks: {r: {gbps: 5, spine: s}}}",
            "racks.r.spine: no spine 's'",
        ),
        ("{nodes: [{gpus: 4, kind: t4}], rack: {r: 5}}", "did you mean 'racks'"),
    ],
)
def test_a_wrong_field_about_links_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(text)

    with pytest.raises(InvalidConfig, match=message):
        find_cluster(str(path))
