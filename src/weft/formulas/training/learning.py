"""Values for what is known about a training: its time by workers and servers, its loss so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Law = Callable[[Any], Any]


class Ratios(NamedTuple):
    """Seconds of a whole training on w workers and p servers, as a sum of ratios."""

    fixed: float = 0.0
    over_w: float = 0.0
    w_over_p: float = 0.0
    over_p: float = 0.0

    def at(self, w: Any, p: Any) -> Any:
        """In seconds."""
        return self.fixed + self.over_w / w + self.w_over_p * w / p + self.over_p / p
