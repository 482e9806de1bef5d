"""Machines that another cluster lends while it does not need them: an inference cluster at night.

Whole machines come and go. How many are needed there is given, or drawn from a day's rhythm; what
is not needed, and not kept as headroom, is lent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from math import ceil, pi, sin
from typing import Protocol

import numpy as np

from weft.core.errors import InvalidConfig, bad_values
from weft.core.events.event import Event, LoanRecalled
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, JobId, NodeId
from weft.frozen import frozen

DAY = 86_400.0
MOST_SAME = 300
Held = dict[JobId, Allocation]


class MachineDemand(Protocol):
    """The number of machines that their owner needs itself."""

    def over_time(self, machines: int, seed: int) -> Iterator[tuple[float, int]]:
        """(from when on, how many), in order of time."""
        ...


@frozen
class RecordedDemand:
    """As a trace tells: `points` of (from when on, how many); the last holds forever."""

    points: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        times = [at for at, _ in self.points]
        if not times or sorted(set(times)) != times or min(n for _, n in self.points) < 0:
            raise InvalidConfig(
                "loan: a trace needs rows of growing time_s, and needed not below 0",
                hint="for example 0,6 and 300,4: six machines are needed at first, then four",
            )

    def over_time(self, machines: int, seed: int) -> Iterator[tuple[float, int]]:  # noqa: ARG002
        yield from self.points


@frozen
class DailyDemand:
    """A rhythm of `period_s`: parts of the machines from `low` to `high`, with normal `noise`.

    The least is needed at time 0, the most half a period later; it is looked at every `interval_s`.
    """

    low: float = 0.3
    high: float = 0.95
    noise: float = 0.03
    period_s: float = DAY
    interval_s: float = 300.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0 or self.noise < 0.0:
            raise bad_values(
                "loan",
                self,
                "low high noise",
                "0 <= low <= high <= 1, as parts of the machines, and noise not below 0",
            )
        if self.period_s <= 0.0 or self.interval_s <= 0.0:
            raise bad_values("loan", self, "period_s interval_s", "both are above 0")

    def over_time(self, machines: int, seed: int) -> Iterator[tuple[float, int]]:
        """Yield loans without end, interval by interval."""
        rng = np.random.default_rng([seed, 3])
        middle, swing = (self.low + self.high) / 2.0, (self.high - self.low) / 2.0
        for step in count():
            at = step * self.interval_s
            wave = middle + swing * sin(2.0 * pi * (at / self.period_s - 0.25))
            part = wave + self.noise * float(rng.standard_normal())
            yield at, ceil(min(max(part, 0.0), 1.0) * machines - 1e-9)


@frozen
class Loans:
    """Machines that are lent when their owner does not need them.

    `headroom` is the part of them that is never lent; one of their GPUs is `speed` times as fast as
    one of the cluster's own.
    """

    nodes: tuple[Node, ...] = ()
    needed: MachineDemand = field(default_factory=DailyDemand)
    headroom: float = 0.02
    speed: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.headroom <= 1.0 or not self.speed > 0.0:
            raise bad_values(
                "loan", self, "headroom speed", "headroom is a part from 0 to 1, speed is above 0"
            )

    def lent(self, seed: int) -> Iterator[tuple[float, int]]:
        """(from when on, how many are lent): where that changes, and at times where not."""
        machines, last, same = len(self.nodes), 0, 0
        kept = ceil(self.headroom * machines - 1e-9)
        for at, needed in self.needed.over_time(machines, seed) if machines else ():
            spare = max(machines - needed - kept, 0)
            same = same + 1 if spare == last else 0
            if same % MOST_SAME == 0:  # a rhythm that never changes is no reason to wait forever
                last = spare
                yield at, spare


@dataclass(slots=True)
class LoanCounts:
    """Counts of loans: servers that went back, and what that did to jobs.

    `gpu_s` is what was lent, `nodes` are all that ever were. A job was `stopped` by a recall if it
    then held nothing, or only other devices; it was `scaled_in` if it kept a part.
    """

    recalls: int = 0
    returned: int = 0
    stopped: int = 0
    scaled_in: int = 0
    gpu_s: float = 0.0
    nodes: set[NodeId] = field(default_factory=set)
    _since: dict[str, tuple[float, int]] = field(default_factory=dict)

    def count_lent(self, now: float, node: Node) -> None:
        """A machine is lent."""
        self._since[node.id] = (now, node.gpus)
        self.nodes.add(node.id)

    def count_returned(self, now: float, node: Node) -> None:
        """A machine is given back."""
        since, gpus = self._since.pop(node.id)
        self.gpu_s += (now - since) * gpus
        self.returned += 1

    def close(self, now: float) -> None:
        """The end: whatever is still lent was lent until now."""
        self.gpu_s += sum((now - since) * gpus for since, gpus in self._since.values())
        self._since.clear()

    def count_recall(self, before: Held, after: Held) -> None:
        """Count what a recall did to jobs that held devices."""
        self.recalls += 1
        for job, was in before.items():
            on = after.get(job)
            if on is was:
                continue
            devices = {(part.node, gpu) for part in was.slices for gpu in part.gpus}
            kept = (
                0 if on is None else sum((p.node, g) in devices for p in on.slices for g in p.gpus)
            )
            self.stopped += kept == 0
            self.scaled_in += 0 < kept < was.gpus


def recalls(events: list[Event]) -> bool:
    """True if loaned machines are wanted back."""
    return any(isinstance(event, LoanRecalled) for event in events)
