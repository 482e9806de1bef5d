"""When to let idle nodes sleep: the rule of CES (Hu et al., SC 2021), and a forecast for it.

Time goes in bins of ten minutes. Nodes in use are known up to the present bin; a forecast says how
many will be in use from here on, by what is known now. A node short of what is needed is woken at
once with some to spare, and no node sleeps for a while after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.state.cells import Floats
from weft.frozen import frozen

BINS_A_DAY = 144
Forecast = Callable[[int, int], Floats]


@frozen
class SleepRule:
    """CES with its published parameters for Philly.

    Nodes sleep if those in use fell by `fell` below the mean of the last `look_back` bins, will
    fall by `will_fall` on the mean of the next `look_ahead`, and do not rise after that. `spare`
    nodes stay awake; fewer than `fewest` are not worth it; for `keep` bins after a wake-up no node
    sleeps.
    """

    look_back: int = 2
    look_ahead: int = 30
    fell: float = 0.1
    will_fall: float = 0.0
    fewest: int = 1
    spare: int = 20
    keep: int = 10

    def __post_init__(self) -> None:
        if min(self.look_back, self.look_ahead, self.fewest) < 1 or min(self.spare, self.keep) < 0:
            raise InvalidConfig(
                f"node sleep: {self}", hint="bins and nodes are 1 or more, spare and keep 0 or more"
            )

    def awake(
        self, used: Sequence[float] | Floats, awake: int, kept: int, ahead: Floats, nodes: int
    ) -> int:
        """Nodes that should be awake now.

        `used` are nodes in use, the present bin last; `kept` counts bins since the last wake-up;
        `ahead` is the forecast from the present bin on, twice `look_ahead` long if it can be.
        """
        present = used[-1]
        if awake < present:
            return min(int(present) + self.spare, nodes)
        if kept < self.keep or len(used) <= self.look_back or not len(ahead):
            return awake
        fell = float(np.mean(used[-self.look_back - 1 : -1])) - present
        soon = float(np.mean(ahead[: self.look_ahead]))
        later = float(np.mean(ahead[: 2 * self.look_ahead]))
        if fell < self.fell or present - soon < self.will_fall or soon < later:
            return awake
        fewer = min(awake, int(present) + self.spare)
        return fewer if awake - fewer >= self.fewest else awake


@frozen
class Slept:
    """Awake nodes in each bin, and what that saved and cost."""

    awake: Floats
    wake_ups: int
    woken: int
    short: float

    def asleep(self, nodes: int) -> float:
        """Nodes asleep on average."""
        return nodes - float(self.awake.mean())

    def utilisation(self, used: Floats) -> float:
        """The part of awake nodes that is in use, on average over bins."""
        return float((used / self.awake).mean())


def sleep_nodes(
    used: Floats, nodes: int, rule: SleepRule, forecast: Forecast, first: int = 6
) -> Slept:
    """Follow the rule bin by bin; in the first bins as many are awake as are in use, and to spare.

    `forecast(i, length)` is asked at bin `i` for that bin and those after it.
    """
    awake = np.zeros(len(used))
    now, kept, wake_ups, woken, short = nodes, rule.keep, 0, 0, 0.0
    for i in range(len(used)):
        kept += 1
        if i < first:
            now = min(int(used[i]) + rule.spare, nodes)
        else:
            was = now
            ahead = forecast(i, 2 * rule.look_ahead)
            now = rule.awake(used[: i + 1], now, kept, ahead, nodes)
            if now > was:
                wake_ups, woken, kept = wake_ups + 1, woken + now - was, 0
                short += float(used[i]) - was
        awake[i] = now
    return Slept(awake, wake_ups, woken, short)


def daily_profile(used: Floats, days: int = 14, follow: float = 1.0) -> Forecast:
    """The mean of the same time over the last days, moved towards the present value by `follow`.

    Only bins that were over when it is asked count: a forecast reaches less than a day ahead.
    """

    def forecast(i: int, length: int) -> Floats:
        ahead = np.arange(i, i + min(length, BINS_A_DAY))
        before = ahead[None, :] - BINS_A_DAY * np.arange(1, days + 1)[:, None]
        there = before >= 0
        seen = np.where(there, used[np.maximum(before, 0)], 0.0).sum(axis=0)
        count = there.sum(axis=0)
        if not count[0]:
            return np.full(length, used[i])
        mean = np.where(count > 0, seen / np.maximum(count, 1), used[i])
        return np.asarray(np.floor(mean + follow * (used[i] - mean[0])))

    return forecast
