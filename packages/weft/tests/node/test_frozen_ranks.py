"""Ranks that a signal has stopped: told to go on, and ended if somebody keeps them still."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from weft.node.ranks.frozen import STILL_S, FrozenRanks
from weft.node.ranks.rank import Rank
from weft.wire.processes import is_frozen


class Watch:
    """One real process that sleeps, and a clock that the test turns."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.rank = Rank(3, self.child.pid, 0, -1, None)
        self.now, self.notices = 100.0, list[str]()
        ranks = {3: self.rank}
        self.members, self.asleep = {3}, False
        self.frozen = FrozenRanks(
            ranks,
            lambda _, text: self.notices.append(text),
            lambda number: number in self.members,
            lambda: self.asleep,
        )

    def poll(self) -> str:
        return self.frozen.poll(self.now)

    def freeze(self) -> None:
        os.kill(self.child.pid, signal.SIGSTOP)
        while not is_frozen(self.child.pid):
            pass

    @property
    def runs(self) -> bool:
        return self.child.poll() is None and not is_frozen(self.child.pid)


@pytest.fixture
def watch() -> Iterator[Watch]:
    watching = Watch()
    yield watching
    watching.child.kill()
    watching.child.wait()


def test_a_rank_that_was_stopped_is_told_to_go_on(watch: Watch) -> None:
    assert not watch.poll()
    watch.freeze()

    why = watch.poll()

    assert not why
    assert watch.runs
    assert len(watch.notices) == 1
    assert "rank 3 was stopped by a signal" in watch.notices[0]


@pytest.mark.parametrize("member", [True, False], ids=["a member", "a new rank"])
def test_a_rank_that_somebody_keeps_still_is_ended(watch: Watch, member: bool) -> None:
    watch.members = {3} if member else set()
    for _ in range(3):
        watch.freeze()
        assert not watch.poll()
        watch.now += STILL_S / 2.5
    watch.freeze()

    why = watch.poll()

    assert watch.child.wait() == -signal.SIGKILL
    assert why == (f"rank 3 was kept still by signals for {STILL_S:g} s" if member else "")
    assert len(watch.notices) == 1, "said once"


def test_a_rank_that_went_on_begins_anew(watch: Watch) -> None:
    watch.freeze()
    watch.poll()
    watch.now += STILL_S
    assert not watch.poll()
    watch.freeze()

    assert not watch.poll()
    assert watch.runs


def test_a_rank_that_the_service_froze_stays_frozen(watch: Watch) -> None:
    watch.asleep = True
    watch.freeze()
    watch.now += 10 * STILL_S

    assert not watch.poll()
    assert not watch.runs
    assert watch.notices == []
