"""Times of checkpoints: soon after the start, then ever more rarely up to an interval."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_S = 5.0  # until the first one; each pause is twice the one before it
COST = 0.01  # of the time that may go into checkpoints


class SaveTimes:
    """The times of one attempt's checkpoints.

    A process that is killed loses at most about as much as it has done since it began, and never
    more than `every_s`. An `every_s` of 0 asks for a checkpoint after every step.
    """

    def __init__(
        self, every_s: float, first_s: float = FIRST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s, self._clock = every_s, clock
        self._pause_s = min(first_s, every_s)
        self._due_at = float("inf")
        self._asked = False

    def start_clock(self) -> None:
        """Training begins: checkpoints are due from now on."""
        self._due_at = self._clock() + self._pause_s

    def is_due(self) -> bool:
        return self._clock() >= self._due_at

    def ask(self) -> bool:
        """Return true once when a checkpoint is due; the ranks' answer comes a while later."""
        if self._asked or not self.is_due():
            return False
        self._asked = self._every_s > 0.0
        return True

    def ask_again(self) -> None:
        """Ask again, because the ranks did not save."""
        self._asked = False

    def note_saved(self, took_s: float = 0.0) -> None:
        """A checkpoint was taken; those that take long come more rarely."""
        self._asked = False
        self._pause_s = min(2.0 * self._pause_s, self._every_s)
        pause_s = max(self._pause_s, took_s / COST) if self._every_s else 0.0
        self._due_at = self._clock() + pause_s
