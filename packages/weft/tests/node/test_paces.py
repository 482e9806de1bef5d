"""What a step took a rank alone, from what its watcher counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.base.messages import Counted
from weft.core.model.job import JobId, NodeId
from weft.engines.attempts.watch import AgentProcess
from weft.engines.fleet.gang import GangWatch
from weft.engines.fleet.port import AttemptPart, Gang
from weft.node.attempt_log import Journal
from weft.node.measuring import outside as health
from weft.node.measuring.outside import HealthLines, Paces
from weft.wire.attempt import AttemptSpec


def word(rank: int, at: float, own_s: float, own_steps: float, pid: int = 0) -> Counted:
    return Counted("j", 1, rank, pid or rank, at, at * 10.0, own_s=own_s, own_steps=own_steps)


def test_a_window_has_what_came_since_the_last_one() -> None:
    paces = Paces()
    for message in (word(0, 1.0, 1.0, 5.0), word(1, 1.0, 9.0, 5.0)):
        paces.take(message)
    assert paces.window() == []

    for message in (word(0, 3.0, 3.0, 25.0), word(1, 3.0, 13.0, 25.0)):
        paces.take(message)

    assert paces.window() == [(0, 0.1, 0.1), (1, 0.2, 0.1)]
    assert paces.window() == []


def test_another_process_of_the_same_rank_begins_anew() -> None:
    paces = Paces()
    paces.take(word(0, 1.0, 1.0, 5.0))
    paces.window()
    paces.take(word(0, 3.0, 3.0, 25.0, pid=7))

    assert paces.window() == []


def test_a_rank_that_counts_no_steps_of_its_own_is_not_judged() -> None:
    paces = Paces()
    paces.take(word(0, 1.0, 0.0, 0.0))
    paces.window()
    paces.take(word(0, 3.0, 0.0, 0.0))

    assert paces.window() == []


def test_the_engine_reads_what_is_told_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.0)
    spec = AttemptSpec("j", 1, ("true",), "/", "", (2, 3), world_size=2)
    journal = Journal(tmp_path, "")
    journal.write("ranks", ranks={"0": (11, 1), "1": (12, 1)})
    lines = HealthLines(spec, journal)
    for at in (1.0, 3.0):
        for rank in (0, 1):
            lines.take(word(rank, at, at, 10.0 * at))
        lines.poll()

    journal.close()

    part = AttemptPart(NodeId("here"), (2, 3), 0.0, 0.0, tmp_path)
    gang = Gang(JobId("j"), 1, "j", "", (part,))
    watched = GangWatch(gang, agent=AgentProcess(tmp_path, spawned=0.0))
    assert watched.read(0.0) == []

    (line,) = watched.health
    assert (line.ranks, [gpu for _, gpu, *_ in line.paces]) == (2, [2, 3])
    assert watched.parts[0].pids == {0: 11, 1: 12}
