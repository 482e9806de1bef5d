"""A job that ends by itself in the moment in which it is stopped has succeeded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S, wait_until
from weft.node.agent import Agent
from weft.node.ranks.rank import Rank, held_still
from weft.wire.attempt import AttemptSpec
from weft.wire.processes import start_time


@contextmanager
def reader() -> Iterator[tuple[subprocess.Popen[bytes], Rank]]:
    """A process that ends by itself, and well, once it can read a line."""
    with subprocess.Popen(
        ["sh", "-c", "read line"], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        wait_until(lambda: start_time(process.pid))
        yield process, Rank(0, process.pid, start_time(process.pid) or 0, -1, None)


def end_by_itself(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"now\n")
    process.stdin.flush()


@contextmanager
def agent_of(rank: Rank, folder: Path) -> Iterator[Agent]:
    agent = Agent(folder, AttemptSpec("job", 1, ("true",), "/", "/", ()), None)
    agent._ranks[0] = rank
    try:
        yield agent
    finally:
        agent._select.close()
        agent.journal._bell.close()
        os.close(agent.journal._out)


def test_a_rank_does_not_end_by_itself_while_it_is_asked_to_leave() -> None:
    with reader() as (process, rank):
        with held_still([rank]) as runs:
            assert runs
            end_by_itself(process)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.wait(LIMIT_S) == 0


def test_a_rank_that_had_ended_is_not_asked_to_stop(tmp_path: Path) -> None:
    with reader() as (process, rank), agent_of(rank, tmp_path) as agent:
        end_by_itself(process)
        wait_until(lambda: start_time(process.pid) is None)  # a zombie, until it is reaped

        agent._ask_to_stop(10.0)

        assert agent._stop is None
        assert process.wait(LIMIT_S) == 0


def test_a_rank_that_comes_to_its_end_meanwhile_is_stopped_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was recorded as stopped although it had ended with 0, and ran again in full."""
    with reader() as (process, rank), agent_of(rank, tmp_path) as agent:
        signalled = Rank.signal

        def end_just_before(it: Rank, what: int) -> None:
            if what == 15:  # it was seen to run
                end_by_itself(process)
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
            signalled(it, what)  # type: ignore[arg-type]

        monkeypatch.setattr(Rank, "signal", end_just_before)

        agent._ask_to_stop(10.0)

        assert agent._stop is not None
        assert process.wait(LIMIT_S) == -15
