"""Which rank of a gang is always the last, and whether its device or its program is to blame. Pure.

A round is over when every rank has reported what its steps took by themselves. A rank that was last
by much in each of many rounds is slow, and so is its device, as far as one can see. If the same
rank of the same job is slow on another device too, it is the program that gives this rank more to
do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from weft.core.model.job import JobId, NodeId
from weft.frozen import frozen

ROUNDS = 10  # in a row: five minutes
SLOW = 1.3  # times what the others take
GAIN = 0.1  # part of a step that all would be faster without it: it costs a restart
MOST_JOBS = 10_000  # that are remembered

Device = tuple[NodeId, int]


@frozen
class Pace:
    """What a step took one rank: alone (`own_s`), and with waiting for the others."""

    rank: int
    device: Device
    own_s: float
    step_s: float


@frozen
class SlowRank:
    """The one that is always last; it takes at least `times` what the others do."""

    rank: int
    device: Device
    times: float


@dataclass(slots=True)
class GangPaces:
    """Of one attempt: `take` says which rank is slow when that is clear."""

    _told: dict[int, Pace] = field(default_factory=dict)
    _last: SlowRank | None = None
    _rounds: int = 0

    def take(self, paces: Iterable[Pace], ranks: int) -> SlowRank | None:
        """What some of its `ranks` tell; None where no round is over or nothing follows yet."""
        self._told |= {pace.rank: pace for pace in paces}
        if ranks < 2 or len(self._told) < ranks:
            return None
        last, self._told = find_last(self._told.values()), {}
        before = self._last
        if last is None or before is None or last.rank != before.rank:
            self._last, self._rounds = last, int(last is not None)
        else:
            times = min(last.times, before.times)
            self._last, self._rounds = SlowRank(last.rank, last.device, times), self._rounds + 1
        return self._last if self._rounds >= ROUNDS else None


def find_last(paces: Iterable[Pace]) -> SlowRank | None:
    """The rank that the others wait for; None where it is not late by much."""
    *others, last = sorted(paces, key=lambda pace: pace.own_s)
    usual = median(pace.own_s for pace in others)
    late = last.own_s - usual
    if usual <= 0.0 or last.own_s < SLOW * usual or late < GAIN * last.step_s:
        return None
    return SlowRank(last.rank, last.device, last.own_s / usual)


@dataclass(slots=True)
class SlowDevices:
    """Devices whose ranks are slow, with why; of those `withdrawn` the program was to blame."""

    faults: dict[Device, str] = field(default_factory=dict)
    withdrawn: dict[Device, str] = field(default_factory=dict)
    _gangs: dict[JobId, tuple[int, GangPaces]] = field(default_factory=dict)
    _found: dict[JobId, tuple[SlowRank, str]] = field(default_factory=dict)
    _uneven: dict[JobId, None] = field(default_factory=dict)

    def take(self, job: JobId, attempt: int, paces: tuple[Pace, ...], ranks: int) -> None:
        """What some ranks of an attempt tell."""
        if job in self._uneven or not paces:
            return
        if job not in self._gangs or self._gangs[job][0] != attempt:
            self._gangs[job] = attempt, GangPaces()
            for jobs in (self._gangs, self._found, self._uneven):
                if len(jobs) > MOST_JOBS:
                    del jobs[next(iter(jobs))]  # the oldest
            for pace in paces:  # the job that uses it now reports its state again
                self.faults.pop(pace.device, None)
        slow = self._gangs[job][1].take(paces, ranks)
        if slow is None:
            return
        before = self._found.get(job)
        if before is not None and before[0].device == slow.device:
            self.faults[slow.device] = before[1]
            return
        if before is not None and before[0].rank == slow.rank:
            self._uneven[job] = None
            self.faults.pop(before[0].device, None)
            self.withdrawn[before[0].device] = before[1]
            return
        why = (
            f"slow: rank {slow.rank} of {job} took {slow.times:.1f} times as long as the others "
            "before it met them, in each half a minute of five"
        )
        self._found[job] = slow, why
        self.faults[slow.device] = why
        self.withdrawn.pop(slow.device, None)
