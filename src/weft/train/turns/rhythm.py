"""Iterations that begin at the times the scheduler said, so that jobs on one link take turns."""

from __future__ import annotations

import time

from weft.perf.network.alignment import Alignment


class Rhythm:
    """Waits before an iteration while a job is off its beat; without one it never does."""

    def __init__(self) -> None:
        self._alignment = Alignment()

    def change(self, period_s: float, shift_s: float) -> None:
        """Begin iterations every `period_s` seconds, `shift_s` after a multiple; 0 for no beat."""
        self._alignment.change(period_s, shift_s)

    def wait(self) -> None:
        """Until this iteration may begin."""
        if self._alignment.period_s and (wait_s := self._alignment.measure_wait(time.time())) > 0.0:
            time.sleep(wait_s)
