"""What Slurm is told and what it says, as text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from weft.core.errors import EngineError
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import (
    AttemptPart,
    AttemptPhase,
    ControllerUnreachable,
    Gang,
    NodeHealth,
)
from weft.engines.slurm.answers import (
    SlurmJob,
    health_of,
    observe_attempt,
    read_exit_code,
    read_gres,
    read_nodes,
    read_tag,
    write_tag,
)
from weft.engines.slurm.clients import client_error
from weft.engines.slurm.script import SbatchOptions, batch_script, pilot_script, step_command

ANSWER = """a1|idle|8|16000|gpu:a100:4|10.0.0.1|none
a2|mixed*|8|16000|gpu:a100:4(S:0-1)|10.0.0.2|none
t1|drained|8|16000|gpu:t4:4|10.0.0.3|fan broken
c1|down*|64|256000|(null)|10.0.0.4|Not responding
"""
NODES = read_nodes(ANSWER, 0)
WISHES = SbatchOptions(python="/opt/weft/bin/python", owner="0123456789ab", partition="gpu")


def part(node: str, gpus: int, cpus: float = 2.0) -> AttemptPart:
    return AttemptPart(
        NodeId(node), tuple(range(gpus)), cpus, 0.0, Path(f"/nfs/weft/jobs/j/1/{node}")
    )


def gang(*parts: AttemptPart) -> Gang:
    return Gang(JobId("j"), 1, "my job", "vision", parts)


def test_one_node_needs_no_step() -> None:
    text = batch_script(gang(part("a1", 2)), NODES, WISHES)

    assert text.splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=weft-my_job-1",
        "#SBATCH --comment=weft:0123456789ab:j:1",
        "#SBATCH --no-requeue",
        "#SBATCH --output=/nfs/weft/jobs/j/1/a1/slurm.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --nodes=1",
        "#SBATCH --nodelist=a1",
        "#SBATCH --ntasks=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --cpus-per-task=2",
        "#SBATCH --partition=gpu",
        "#SBATCH --gres=gpu:a100:2",
        "exec /opt/weft/bin/python -P -m weft.node.agent /nfs/weft/jobs/j/1/a1 "
        ">> /nfs/weft/jobs/j/1/a1/agent.log 2>&1",
    ]


def test_an_even_gang_is_one_job_with_a_step_on_its_nodes() -> None:
    text = batch_script(gang(part("a2", 4), part("a1", 4)), NODES, WISHES)

    assert "#SBATCH --nodelist=a2,a1" in text
    assert "hetjob" not in text
    assert "exec srun --kill-on-bad-exit=0 --wait=0 --mpi=none --ntasks=2 --nodes=2" in text
    assert '"$0/$SLURMD_NODENAME"' in text


def test_an_uneven_gang_has_components() -> None:
    text = batch_script(gang(part("a1", 2), part("a2", 1, 1.0)), NODES, WISHES)
    first, second = text.split("#SBATCH hetjob")

    assert "--gres=gpu:a100:2" in first
    assert "--gres=gpu:a100:1" in second
    assert second.count("--comment=weft:0123456789ab:j:1") == 1
    assert "--het-group=0 --ntasks=1" in second
    assert " : --het-group=1 --ntasks=1 --nodes=1 --cpus-per-task=1" in second


def test_memory_and_time_are_asked_for_where_they_count() -> None:
    counted = replace(WISHES, counts_memory=True, time_min=90)
    limited = replace(gang(part("a1", 2)), time_limit_s=3601.0)

    assert "--mem=8000M" in batch_script(gang(part("a1", 2)), NODES, counted)
    assert "--time=90" in batch_script(gang(part("a1", 2)), NODES, counted)
    assert "--time=61" in batch_script(limited, NODES, counted)
    assert "--mem" not in batch_script(gang(part("a1", 2)), NODES, WISHES)


def test_a_step_has_all_devices_of_its_node_and_shares_them() -> None:
    command = step_command(gang(part("a1", 1)), part("a1", 1), NODES[NodeId("a1")], "77", WISHES)

    assert command[:2] == ["bash", "-c"]
    assert command[3:7] == ["/nfs/weft/jobs/j/1/a1/claim.json", "srun", "--jobid=77", "--overlap"]
    assert "--gres=gpu:a100:4" in command
    assert command[-1] == "/nfs/weft/jobs/j/1/a1"


def test_a_pilot_holds_a_whole_node() -> None:
    text = pilot_script(NODES[NodeId("a1")], "tag", "/log", Path("/nfs/weft"), WISHES)

    assert "#SBATCH --gres=gpu:a100:4" in text
    assert "#SBATCH --cpus-per-task=8" in text
    assert "/nfs/weft/tokens/a1" in text
    assert '-m weft.node.tokens "$at" --discipline "$one" --state /nfs/weft' in text


def test_nodes_are_read_with_kind_health_and_address() -> None:
    assert [node.machine.node.kind for node in NODES.values()] == ["a100", "a100", "t4", "cpu"]
    assert [node.machine.health for node in NODES.values()] == [
        *(NodeHealth.UP, NodeHealth.UP),
        *(NodeHealth.DRAINING, NodeHealth.DOWN),
    ]
    assert NODES[NodeId("t1")].machine.reason == "fan broken"
    assert NODES[NodeId("c1")].machine.node.gpus == 64
    assert NODES[NodeId("a1")].machine.address == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", ("gpu", 4, "gpu")),
        ("gpu:tesla_v100:2(S:0),gpu:tesla_v100:2(S:1)", ("v100", 4, "gpu:tesla_v100")),
        ("gpu:nvidia_h200:8,shard:64", ("h200", 8, "gpu:nvidia_h200")),
        ("(null)", ("cpu", 0, "")),
    ],
)
def test_gpus_are_read_however_a_site_counts_them(text: str, gpus: tuple[str, int, str]) -> None:
    assert read_gres(text) == gpus


def test_a_node_that_does_not_answer_is_not_down_yet() -> None:
    assert health_of("allocated*") is NodeHealth.UP
    assert health_of("down*") is NodeHealth.DOWN
    assert health_of("draining") is NodeHealth.DRAINING
    assert health_of("powered_down") is NodeHealth.DOWN


def test_a_tag_is_found_again_whatever_a_job_is_called() -> None:
    tag = write_tag("0123456789ab", (JobId("a:b|c d"), 3))

    assert read_tag("0123456789ab", tag) == ("a:b|c d", 3)
    assert read_tag("ba9876543210", tag) is None
    assert read_tag("0123456789ab", "(null)") is None
    assert "|" not in tag


@pytest.mark.parametrize("number", ["9" * 5000, "²", "٣", "-1", ""])
def test_a_tag_whose_number_is_none_of_ours_is_no_tag(number: str) -> None:
    """Any user can write it: it must not end the round of questions to Slurm."""
    assert read_tag("own", f"weft:own:job:{number}") is None


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        (("RUNNING", "PENDING"), AttemptPhase.RUNNING),
        (("COMPLETING",), AttemptPhase.RUNNING),
        (("PENDING", "PENDING"), AttemptPhase.PENDING),
        (("COMPLETED", "COMPLETED"), AttemptPhase.ENDED),
        (("CANCELLED", "NODE_FAIL"), AttemptPhase.LOST),
        (("PREEMPTED",), AttemptPhase.LOST),
    ],
)
def test_components_amount_to_one(states: tuple[str, ...], phase: AttemptPhase) -> None:
    assert (
        observe_attempt([SlurmJob(str(i), state, "", "") for i, state in enumerate(states)]).phase
        is phase
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1792, 7),
        (9, -9),
        ({"number": 256, "set": True, "infinite": False}, 1),
        ({"status": ["ERROR"], "return_code": {"set": True, "number": 3}, "signal": {}}, 3),
        ({"return_code": 0, "signal": {"signal_id": 15, "name": "SIGTERM"}}, -15),
        ({"signal": {"id": {"set": True, "number": 9}}, "return_code": {"number": 0}}, -9),
        ("7:0", None),
    ],
)
def test_exit_codes_are_read_from_the_json_of_any_release(value: object, code: int | None) -> None:
    others = {"job_id": 6, "exit_code": 15}
    text = json.dumps({"jobs": [others, {"job_id": 7, "exit_code": value}]})

    assert read_exit_code(text, "7") == code


def test_a_refusal_says_what_to_change() -> None:
    printed = (
        "sbatch: error: invalid partition specified: gpus\nsbatch: error: Batch job submission"
    )

    error = client_error("sbatch", printed)

    assert isinstance(error, EngineError)
    assert "invalid partition specified: gpus" in error.what
    assert "sinfo -s" in error.hint


def test_a_controller_that_is_away_refuses_nothing() -> None:
    printed = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"

    assert isinstance(client_error("sbatch", printed), ControllerUnreachable)
