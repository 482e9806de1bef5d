"""Jobs come and go while Slurm is asked: its answers are read with those there are by then."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptPhase, Key
from weft.engines.slurm.accounts import Charges, Submitters
from weft.engines.slurm.answers import JOBS, NODES, USED, SlurmJob, observe_attempt, write_tag
from weft.engines.slurm.clients import QUESTION as RESERVATIONS
from weft.engines.slurm.native import NativeSlurm
from weft.engines.slurm.script import SbatchOptions

FIRST: Key = (JobId("first"), 1)
OURS: Key = (JobId("ours"), 1)
USED_LINE = f"{'a1':100}{'gpu:a100:2(IDX:0-1)':400}{'2/6/0/8':40}\n"
FAILED = "".join(
    f"{number}|FAILED|NonZeroExitCode|a1|gpu:1|{os.getuid()}||{write_tag('own', key)}\n"
    for number, key in enumerate((FIRST, OURS))
)


@pytest.fixture
def manager() -> NativeSlurm:
    return NativeSlurm(Charges(SbatchOptions("python", owner="own")), 0, (), Submitters(Path(), {}))


def test_a_job_that_begins_while_gpus_in_use_are_asked_for_is_ours(
    manager: NativeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager._jobs[FIRST] = [SlurmJob("1", "PENDING", "", "")]

    async def ask(*words: str) -> str:
        if words == NODES:
            return "a1|mixed|8|16000|gpu:a100:4|a1|none\n"
        if words == RESERVATIONS:
            return ""
        assert words == USED
        manager._jobs[OURS] = [SlurmJob("2", "RUNNING", "", "a1", 2)]
        return USED_LINE

    monkeypatch.setattr(manager._clients, "ask", ask)

    (machine,) = asyncio.run(manager.nodes())

    assert (machine.node.id, machine.taken) == (NodeId("a1"), 0)


def test_a_job_that_slurm_forgets_while_its_exit_code_is_asked_for_is_told_all_the_same(
    manager: NativeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [FAILED, ""]

    async def ask(*words: str) -> str:
        await asyncio.sleep(0)
        if words[: len(JOBS)] == JOBS:
            return answers.pop(0)
        others, asked = {"job_id": 99, "exit_code": 256}, {"job_id": int(words[-1])}
        return json.dumps({"jobs": [others, {**asked, "exit_code": 1792}]})

    async def look_twice() -> Any:
        seen, later = await asyncio.gather(manager.poll(), manager.poll())
        return seen[FIRST].code, seen[OURS].code, later

    monkeypatch.setattr(manager._clients, "ask", ask)

    assert asyncio.run(look_twice()) == (7, 7, {})


@pytest.mark.parametrize(("state", "left"), [("PENDING", False), ("CONFIGURING", True)])
def test_a_job_whose_node_is_switched_on_waits_and_one_whose_gpus_others_took_does_not(
    manager: NativeSlurm, monkeypatch: pytest.MonkeyPatch, state: str, left: bool
) -> None:
    line = f"7|{state}|Resources||gpu:1|{os.getuid()}|a1|{write_tag('own', OURS)}\n"
    cancelled: list[Key] = []

    async def ask(*words: str) -> str:
        assert words[: len(JOBS)] == JOBS
        return line

    async def cancel(key: Key) -> None:
        cancelled.append(key)

    monkeypatch.setattr(manager._clients, "ask", ask)
    monkeypatch.setattr(manager, "cancel", cancel)
    manager._taken = {NodeId("a1"): 4}
    manager._pending = {OURS: -1000.0}

    seen = asyncio.run(manager.poll())

    assert (seen[OURS].phase is AttemptPhase.PENDING) is left
    assert cancelled == ([] if left else [OURS])


def test_a_job_whose_nodes_are_switched_on_says_so() -> None:
    seen = observe_attempt([SlurmJob("1", "CONFIGURING", "", "t1")])

    assert seen.phase is AttemptPhase.PENDING
    assert "switched on" in seen.reason
