"""What a step took a rank alone, from what its watcher counts."""

from __future__ import annotations

from weft.node.measuring.health import Paces
from weft.wire.messages import Counted


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
