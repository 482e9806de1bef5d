"""A session whose processes sleep is not idle: nobody can use it then."""

from __future__ import annotations

import selectors
import time
from pathlib import Path

import pytest

from weft.node.sessions.terminal import Terminal


def test_the_time_asleep_does_not_count_as_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    terminal = Terminal(tmp_path, selectors.DefaultSelector(), 60.0)
    terminal.connect(1, lambda: None)

    for asleep in (True, False):
        for _ in range(7):
            clock["now"] += 10.0
            terminal.note_asleep(asleep=asleep)
            why = terminal.poll()
        assert bool(why) is not asleep
    assert terminal.idled
