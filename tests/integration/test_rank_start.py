"""A rank obeys from its first moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from weft.node.ranks.rank import Rank, RankLimits, start_rank


@pytest.fixture
def deaf() -> Iterator[None]:
    """A parent that ignores SIGTERM, as agents do."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGTERM, before)


def ended_by(rank: Rank, within_s: float = 10.0) -> int | None:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid:
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        time.sleep(0.005)
    os.kill(rank.pid, signal.SIGKILL)
    os.waitpid(rank.pid, 0)
    return None


@pytest.mark.usefixtures("deaf")
def test_a_stop_right_after_the_start_is_not_lost() -> None:
    for _ in range(25):
        rank = start_rank(
            0, command=("sleep", "1000"), env=os.environ, workdir="/", limits=RankLimits()
        )
        rank.signal(signal.SIGTERM)
        how = ended_by(rank)
        os.close(rank.output)
        if rank.pidfd is not None:
            os.close(rank.pidfd)

        assert how == signal.SIGTERM


@pytest.mark.parametrize(("command", "code"), [("/", 126), ("no-such-program", 127)])
def test_what_cannot_be_run_ends_as_in_a_shell(command: str, code: int) -> None:
    rank = start_rank(0, command=(command,), env=os.environ, workdir="/", limits=RankLimits())
    _, status = os.waitpid(rank.pid, 0)
    os.close(rank.output)
    if rank.pidfd is not None:
        os.close(rank.pidfd)

    assert os.waitstatus_to_exitcode(status) == code
