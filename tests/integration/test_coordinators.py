"""One coordinator for a discipline, whoever started it and died right after."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.waiting import LIMIT_S
from weft.engines.attempts.own_processes import Coordinators
from weft.wire.processes import start_time


def pid_of(coordinators: Coordinators) -> int:
    until = time.monotonic() + LIMIT_S
    while (pid := coordinators.pid("lockstep")) is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    return pid


def test_a_second_one_leaves_and_the_next_engine_ends_the_first(tmp_path: Path) -> None:
    former, late = Coordinators(tmp_path), Coordinators(tmp_path)
    former.socket("lockstep")
    late.socket("lockstep")  # of an engine that cannot know yet of the first

    first = pid_of(former)
    codes = sorted(os.waitpid(pid, 0)[1] for pid in late._children.values() if pid != first)
    codes += sorted(os.waitpid(pid, 0)[1] for pid in former._children.values() if pid != first)

    assert codes == [0]
    assert pid_of(late) == first
    Coordinators(tmp_path).end()
    until = time.monotonic() + LIMIT_S
    while start_time(first) is not None:
        assert time.monotonic() < until
        time.sleep(0.02)
