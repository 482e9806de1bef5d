"""What the Ray engine says to Ray and reads from it, without any Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptPhase, Key, NodeHealth
from weft.engines.ray.agents import read_attempts
from weft.engines.ray.joining import check_address, unit_text
from weft.engines.ray.labels import kind_of, name_nodes, read_machine, reserved
from weft.engines.ray.node_files import ServicePaths
from weft.engines.ray.starting import NodeSetup, find_setup, head_command, ray_environment
from weft.engines.ray.starting import worker_command as worker

KEY: Key = (JobId("j"), 1)
A, B = NodeId("a"), NodeId("b")


def row(name: str = "", **fields: Any) -> dict[str, Any]:
    labels = {"weft/node": name, "weft/kind": "a100"} if name else {}
    common = {
        "id": f"{name or 'x'}0123456789",
        "alive": True,
        "address": "10.0.0.1",
        "host": "box",
        "labels": labels,
        "resources": {"GPU": 4.0, "CPU": 8.0, "memory": 64e9},
        "reason": "",
        "draining": False,
        "runner": {"version": "0", "agents": []},
    }
    return {**common, **fields}


def test_a_node_is_read_from_its_labels_and_resources() -> None:
    machine = read_machine(row("a1"), "a1", None)

    assert machine is not None
    assert (machine.node.id, machine.node.kind, machine.node.gpus) == ("a1", "a100", 4)
    assert (machine.node.cpus, machine.node.mem_gb, machine.health) == (8.0, 64.0, NodeHealth.UP)


def test_a_node_without_gpus_has_slots_or_else_its_cpus() -> None:
    resources = {"CPU": 8.0, "weft_slots": 3.0, "memory": 1e9}

    slots = read_machine(row("a1", resources=resources), "a1", None)
    cpus = read_machine(row("a1", resources={"CPU": 8.0}), "a1", None)

    assert slots is not None
    assert cpus is not None
    assert (slots.node.kind, slots.node.gpus, cpus.node.gpus) == ("cpu", 3, 8)


def test_kinds_are_ours_whatever_they_are_called() -> None:
    assert kind_of({"ray.io/accelerator-type": "NVIDIA-A100"}, 4) == "a100"
    assert kind_of({"ray.io/accelerator-type": "Tesla-V100"}, 4) == "v100"
    assert kind_of({}, 4) == "gpu"
    assert kind_of({"weft/kind": "a100"}, 0) == "cpu"


def test_nodes_of_one_machine_get_names_of_their_own() -> None:
    named = name_nodes([row(id="aaaaaaaa"), row(id="bbbbbbbb")])

    assert sorted(named) == ["box-aaaaaa", "box-bbbbbb"]


def test_a_node_that_came_back_is_the_one_that_is_up() -> None:
    old = row("a1", id="old", alive=False)

    assert name_nodes([row("a1", id="new"), old])["a1"]["id"] == "new"


@pytest.mark.parametrize(
    ("fields", "health"),
    [
        ({"alive": False, "reason": "it broke", "resources": {}}, NodeHealth.DOWN),
        ({"draining": True}, NodeHealth.DRAINING),
        ({"runner": None}, NodeHealth.DOWN),
        ({"runner": {"dead": "killed", "agents": []}}, NodeHealth.DOWN),
    ],
)
def test_the_health_of_a_node(fields: dict[str, Any], health: NodeHealth) -> None:
    up = read_machine(row("a1"), "a1", None)
    assert up is not None

    machine = read_machine(row("a1", **fields), "a1", up.node)

    assert machine is not None
    assert machine.health is health
    assert machine.reason
    assert machine.node == up.node


def test_a_runner_reserves_all_that_its_node_gives_to_jobs() -> None:
    assert reserved({"GPU": 2.0, "CPU": 8.0, "memory": 1e9}) == {"GPU": 2.0, "CPU": 8.0}


@pytest.mark.parametrize(
    ("codes", "lost", "phase", "nodes"),
    [
        ({A: None, B: None}, {}, AttemptPhase.RUNNING, ()),
        ({A: 0, B: None}, {}, AttemptPhase.RUNNING, ()),
        ({A: None}, {B: "gone"}, AttemptPhase.RUNNING, (B,)),
        ({A: 0, B: 0}, {}, AttemptPhase.ENDED, ()),
        ({A: 3}, {B: "gone"}, AttemptPhase.LOST, (B,)),
        ({}, {A: "gone", B: "gone"}, AttemptPhase.LOST, (A, B)),
    ],
)
def test_an_attempt_is_what_its_agents_and_nodes_are(
    codes: dict[NodeId, int | None],
    lost: dict[NodeId, str],
    phase: AttemptPhase,
    nodes: tuple[NodeId, ...],
) -> None:
    seen = read_attempts({KEY: (A, B)}, {KEY: codes}, lost)[KEY]

    assert (seen.phase, seen.nodes) == (phase, nodes)


def test_an_attempt_of_which_nothing_is_left_is_told_once() -> None:
    gangs: dict[Key, tuple[NodeId, ...]] = {KEY: (A,)}

    first, second = read_attempts(gangs, {}, {}), read_attempts(gangs, {}, {})

    assert first[KEY].phase is AttemptPhase.ENDED
    assert second == {}


def test_a_node_is_started_with_labels_devices_and_nothing_else() -> None:
    setup = NodeSetup("a1", "a100", 4, cpus=8, ip="10.0.0.2")

    command = worker(setup, "10.0.0.1:6379")

    assert {"--address=10.0.0.1:6379", "--num-gpus=4", "--num-cpus=8"} <= set(command)
    assert "--labels=weft/node=a1,weft/kind=a100" in command
    assert "--head" not in command


def test_a_head_listens_where_it_is_told_and_shows_no_dashboard() -> None:
    command = head_command(NodeSetup("h", slots=2, ip="10.0.0.1", port=7000))

    assert {"--head", "--port=7000", "--node-ip-address=10.0.0.1"} <= set(command)
    assert "--include-dashboard=false" in command
    assert '--resources={"weft_slots": 2}' in command


def test_a_token_turns_authentication_on() -> None:
    env = ray_environment(Path("/t"))

    assert (env["RAY_AUTH_MODE"], env["RAY_AUTH_TOKEN_PATH"]) == ("token", "/t")
    assert "RAY_AUTH_MODE" not in ray_environment(None)


def test_a_name_that_no_label_can_have_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="cannot be a label"):
        find_setup("my box")


@pytest.mark.parametrize("text", ["", "host", "host:", ":6379", "host:0", "host:99999", "h:x"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(InvalidConfig, match="not the address"):
        check_address(text)


def test_a_unit_joins_at_every_boot_and_leaves_in_time() -> None:
    text = unit_text(["weft", "join", "h:1", "--files", "/a b"], "h:1", 60.0, system=True)

    assert "ExecStart=weft join h:1 --files '/a b'" in text
    assert "Restart=always" in text
    assert "TimeoutStopSec=90" in text
    assert "WantedBy=multi-user.target" in text


def test_what_an_attempt_is_told_names_the_folders_of_its_node(tmp_path: Path) -> None:
    files = ServicePaths(Path("/srv/state"), tmp_path)
    spec = {"checkpoints": "/srv/state/jobs/j/checkpoints", "workdir": "/home/x", "devices": [0]}

    files.write(Path("/srv/state/jobs/j/1/a/spec.json"), json.dumps(spec).encode(), 0o600)

    written = json.loads((tmp_path / "jobs/j/1/a/spec.json").read_text())
    assert written == {**spec, "checkpoints": str(tmp_path / "jobs/j/checkpoints")}


def test_news_of_a_folder_is_what_was_not_told_yet(tmp_path: Path) -> None:
    files, events = ServicePaths(tmp_path, None), tmp_path / "events.jsonl"
    events.write_bytes(b"one\n")
    ((name, inode, offset, at, body),) = files.changed_files(tmp_path, {})
    events.write_bytes(b"one\ntwo\n")

    ((_, _, offset2, _, body2),) = files.changed_files(
        tmp_path, {name: (inode, offset + len(body), at)}
    )
    rest = files.changed_files(tmp_path, {name: (inode, 8, at)})

    assert (body, offset2, body2, rest) == (b"one\n", 4, b"two\n", [])


def test_locks_and_what_is_being_written_are_not_carried(tmp_path: Path) -> None:
    for name in ("step-1/data", ".running", ".fresh/data"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    listed = [name for name, *_ in ServicePaths(tmp_path, None).list_files(tmp_path)]

    assert listed == ["step-1/data"]


def test_a_log_that_was_brought_before_is_not_brought_again(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"one\ntwo\n")

    ((_, _, offset, _, body),) = ServicePaths(tmp_path, None).changed_files(
        tmp_path, {"events.jsonl": (0, 4, 0)}
    )

    assert (offset, body) == (4, b"two\n")
