"""Processes that an attempt leaves are ended; others that look at its files are not."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from weft.engines.attempts.watch import Footprint, end_all, processes_of
from weft.wire.attempt import EVENTS


def test_a_rank_that_was_frozen_before_it_began_is_ended_and_a_reader_is_not(
    tmp_path: Path,
) -> None:
    """Between fork and exec it has neither a mark of its own nor, any more, an agent."""
    events = tmp_path / EVENTS
    events.touch()
    with events.open("a") as log, events.open() as file:
        forked = subprocess.Popen(["sleep", "1000"], stdout=log)
        reader = subprocess.Popen(["sleep", "1000"], stdin=file)
    os.kill(forked.pid, signal.SIGSTOP)
    try:
        assert processes_of(Footprint(tmp_path)) == {forked.pid}

        left = end_all(Footprint(tmp_path), within_s=30.0)

        assert left == []
        assert forked.wait() == -signal.SIGKILL
        assert reader.poll() is None
    finally:
        forked.kill()
        reader.kill()
        forked.wait()
        reader.wait()
