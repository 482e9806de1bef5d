"""Ranks that a signal has stopped from outside: they would stand still forever, with their peers.

A stopped rank is sent SIGCONT. One that someone keeps still is ended, and its attempt goes
on from the last checkpoint. What the service itself has frozen is left alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from weft.node.ranks.rank import Rank
from weft.wire.processes import is_frozen

STILL_S = 8.0  # how long a rank may be found stopped, again and again


class FrozenRanks:
    """Since when each rank is found to be stopped; `is_member` says whose end is the attempt's.

    `asleep` says whether they are frozen because that was asked for.
    """

    def __init__(
        self,
        ranks: Mapping[int, Rank],
        notice: Callable[[str, str], None],
        is_member: Callable[[int], bool],
        asleep: Callable[[], bool],
    ) -> None:
        self._asleep, self._ranks, self._notice = asleep, ranks, notice
        self._is_member = is_member
        self._since: dict[int, float] = {}

    def poll(self, now: float) -> str:
        """Wake those that are stopped, end those that are kept still; why the attempt must end."""
        awake = {} if self._asleep() else self._ranks
        frozen = [number for number, rank in awake.items() if is_frozen(rank.pid)]
        self._since = {rank: since for rank, since in self._since.items() if rank in frozen}
        why = ""
        for number in frozen:
            if number not in self._since:
                self._since[number] = now
                text = f"rank {number} was stopped by a signal, and is sent SIGCONT"
                self._notice("warning", text)
            if now - self._since[number] <= STILL_S:
                self._ranks[number].signal(signal.SIGCONT)
                continue
            self._ranks[number].signal(signal.SIGKILL)
            if self._is_member(number):
                why = f"rank {number} was kept still by signals for {STILL_S:g} s"
        return why
