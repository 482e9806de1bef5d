"""CPU time that is left for an answer; what is too dear is left out of it."""

from __future__ import annotations

import math
import time
from dataclasses import field

from weft.frozen import frozen

SLACK = 1.1  # that a decision may take longer than is believed


@frozen
class CpuBudget:
    """Seconds of a processor, from when it was made; `inf` never ends.

    `step_s` is what a decision is believed to take: one that is not paid for is not begun.
    """

    cpu_s: float = float("inf")
    step_s: float = 0.0
    _began: float = field(default_factory=time.thread_time)

    def share_of_rest(self, share: float) -> CpuBudget:
        """A share of what is left, for one of several questions; a decision where there is one."""
        left_s = self.left_s
        return CpuBudget(max(share * left_s, min(SLACK * self.step_s, left_s)), self.step_s)

    @property
    def left_s(self) -> float:
        """Seconds that are not spent yet."""
        return max(self.cpu_s - (time.thread_time() - self._began), 0.0)

    @property
    def spent(self) -> float:
        """The part of it that is spent, 0 to 1."""
        return 1.0 - self.left_s / self.cpu_s if 0.0 < self.cpu_s < math.inf else 0.0

    @property
    def empty(self) -> bool:
        """True if too little is left: what was not begun by then is left out."""
        return time.thread_time() - self._began + self.step_s >= self.cpu_s
