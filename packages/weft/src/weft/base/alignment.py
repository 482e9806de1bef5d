"""Waits of a job with a time shift before its next iteration.

Simulated and real jobs keep to their beat by this one rule (CASSINI, NSDI 2024, section 5): a job
that is a little early waits, and one that is late by more than a twentieth of an iteration waits
for the next beat.
"""

from __future__ import annotations

from dataclasses import dataclass

TOLERANCE = 0.05  # of the period
SHORT = 2.0 * TOLERANCE  # a wait that is always worth it
REST = 50  # iterations from one long wait to the next: they cost at most a fiftieth of the time


@dataclass(slots=True)
class Alignment:
    """The beat of one job; a period of 0 is none.

    Periods are a little longer than iterations, so that a job that is early waits and one that is a
    little late catches up. One that is later has missed the beat and would wait for most of an
    iteration, which it does at once after a new beat was set and then rarely: where links are too
    narrow for all, all jobs are late in every iteration.
    """

    period_s: float = 0.0
    shift_s: float = 0.0
    _since_long: int = REST

    def change(self, period_s: float, shift_s: float) -> None:
        """Keep to another beat from now on; the same one again changes nothing."""
        if (period_s, shift_s) != (self.period_s, self.shift_s):
            self.period_s, self.shift_s, self._since_long = period_s, shift_s, REST

    def measure_wait(self, now: float) -> float:
        """Seconds to wait, where an iteration could begin at `now`; asked once for each."""
        if self.period_s <= 0.0:
            return 0.0
        late = (now - self.shift_s) % self.period_s
        early = self.period_s - late
        self._since_long += 1
        if late <= TOLERANCE * self.period_s:
            return 0.0
        if early > SHORT * self.period_s:
            if self._since_long <= REST:
                return 0.0
            self._since_long = 0
        return early
