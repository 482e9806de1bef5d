"""How much CPU time is left for an answer; what is too dear is left out of it."""

from __future__ import annotations

import math
import time
from dataclasses import field

from weft.frozen import frozen


@frozen
class Purse:
    """Seconds of a processor, from when it was made; `inf` never ends."""

    cpu_s: float = float("inf")
    _began: float = field(default_factory=time.thread_time)

    def part(self, share: float) -> Purse:
        """A share of what is left, for one of several questions."""
        return Purse(share * self.left_s)

    @property
    def left_s(self) -> float:
        """What is not spent yet."""
        return max(self.cpu_s - (time.thread_time() - self._began), 0.0)

    @property
    def spent(self) -> float:
        """The part of it that is spent, 0 to 1."""
        return 1.0 - self.left_s / self.cpu_s if 0.0 < self.cpu_s < math.inf else 0.0

    @property
    def empty(self) -> bool:
        """Whether all is spent: what was not begun by then is left out."""
        return time.thread_time() - self._began >= self.cpu_s
