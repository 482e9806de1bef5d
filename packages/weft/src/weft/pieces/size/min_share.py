"""The least GPUs over time that meet a deadline, by progressive filling (ElasticFlow, ASPLOS 2023).

`Promises` is how many GPUs of one kind are not promised to a job, from now on. A job gets the
smallest of its levels that ends in time, begun as late as possible, with one level less before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, inf

from weft.frozen import frozen

EPS = 1e-9
Step = tuple[float, int]


@frozen
class DeadlineDemand:
    """So much work by a deadline; `rates` is work per second at each of the ascending `levels`.

    It holds that many GPUs now, and loses `restart_s` whenever that number changes.
    """

    work: float
    deadline: float
    levels: tuple[int, ...]
    rates: tuple[float, ...]
    held: int = 0
    restart_s: float = 0.0

    def rate(self, gpus: int) -> float:
        """Work per second; none at no GPUs."""
        return self.rates[self.levels.index(gpus)] if gpus else 0.0

    def at_most(self, gpus: int) -> int:
        """The largest level within that many GPUs; 0 where none is."""
        place = bisect_right(self.levels, gpus)
        return self.levels[place - 1] if place else 0

    def next_level(self, gpus: int) -> int:
        """The level above; `gpus` where there is none."""
        place = bisect_right(self.levels, gpus)
        return self.levels[place] if place < len(self.levels) else gpus


@frozen
class ShareSchedule:
    """GPUs from each step's time on, until `end`; the work is done at `real_end`, `met` in time."""

    steps: tuple[Step, ...]
    real_end: float
    end: float
    met: bool

    def at(self, time: float) -> int:
        """GPUs at a time."""
        if time >= self.end:
            return 0
        return next((gpus for start, gpus in reversed(self.steps) if start <= time), 0)

    @property
    def gpu_s(self) -> float:
        """GPU-seconds up to its end."""
        stops = [*(start for start, _ in self.steps[1:]), self.end]
        return sum(g * (stop - at) for (at, g), stop in zip(self.steps, stops, strict=True))


class Promises:
    """GPUs not promised to any job: `free[i]` from `times[i]` to the next time, for good last."""

    def __init__(self, now: float, gpus: int, slot_s: float = 60.0) -> None:
        self.now, self.slot_s = now, slot_s
        self.times, self.free = [now], [gpus]

    def copy(self) -> Promises:
        """Return a copy for trials."""
        twin = Promises(self.now, 0, self.slot_s)
        twin.times, twin.free = list(self.times), list(self.free)
        return twin

    def add(self, schedule: ShareSchedule, sign: int = -1) -> None:
        """Promise a schedule; with `sign` 1 take it back."""
        stops = [*(start for start, _ in schedule.steps[1:]), schedule.end]
        for (start, gpus), stop in zip(schedule.steps, stops, strict=True):
            if gpus and stop > self.now:
                first, last = self._cut(max(start, self.now)), self._cut(stop)
                for i in range(first, last):
                    self.free[i] += sign * gpus

    def fill(self, ask: DeadlineDemand, first: int = 0) -> ShareSchedule:
        """The schedule of a job, not yet promised; with `first` GPUs until the next change."""
        bound = self._align(ask.deadline)
        periods = list(self._periods(bound, ask.deadline))
        if first and periods:
            periods = [(*periods[0][:2], first), *periods[1:]]
        below = 0
        for level in ask.levels if periods else ():
            if schedule := self._fill_level(ask, periods, level, below, first):
                return schedule
            below = level
        return self._late(ask, periods, bound, first)

    def _fill_level(
        self,
        ask: DeadlineDemand,
        periods: Sequence[tuple[float, float, int]],
        level: int,
        below: int,
        first: int,
    ) -> ShareSchedule | None:
        done = 0.0
        for i in range(len(periods) - 1, -1, -1):
            start, stop, free = periods[i]
            gpus = first if first and i == 0 else ask.at_most(min(level, free))
            done += (stop - start) * ask.rate(gpus)
            if done >= ask.work - EPS:
                counts = [
                    ask.at_most(min(level if j >= i else below, p[2]))
                    for j, p in enumerate(periods)
                ]
                if first:
                    counts[0] = first
                schedule = self.run(ask, [(p[0], p[1]) for p in periods], counts)
                if schedule is not None and schedule.real_end <= ask.deadline + EPS:
                    return schedule
        return None

    def run(
        self, ask: DeadlineDemand, spans: Sequence[tuple[float, float]], counts: Sequence[int]
    ) -> ShareSchedule | None:
        """The schedule of these counts; None if the work is not done by then."""
        left, before = ask.work, ask.held
        steps: list[Step] = []
        for (start, stop), gpus in zip(spans, counts, strict=True):
            begins = start + (ask.restart_s if gpus and gpus != before else 0.0)
            if not steps or steps[-1][1] != gpus:
                steps.append((start, gpus))
            before, rate = gpus, ask.rate(gpus)
            takes = left / rate if rate else inf
            if takes < inf and begins + takes <= stop + EPS:
                real = self._whole_seconds(start, begins + takes)
                end = start + ceil((real - start) / self.slot_s - EPS) * self.slot_s
                return ShareSchedule(tuple(steps), real, end, met=real <= ask.deadline + EPS)
            left -= max(stop - begins, 0.0) * rate
        return None

    def _late(
        self,
        ask: DeadlineDemand,
        periods: Sequence[tuple[float, float, int]],
        bound: float,
        first: int,
    ) -> ShareSchedule:
        """Schedule all that is free up to the deadline, and the most that fits afterwards."""
        spans = [(start, stop) for start, stop, _ in periods]
        counts = [ask.at_most(free) for _, _, free in periods]
        if first and counts:
            counts[0] = first
        start = max(bound, self.now)
        after = [t for t in self.times if t > start]
        for begin, stop in zip((start, *after), (*after, inf), strict=True):
            spans.append((begin, stop))
            counts.append(ask.at_most(self.free[bisect_right(self.times, begin) - 1]))
        schedule = self.run(ask, spans, counts)
        return schedule or ShareSchedule(((self.now, 0),), inf, inf, met=False)

    def _periods(self, bound: float, deadline: float) -> Iterator[tuple[float, float, int]]:
        """Start, stop and free GPUs of each period up to `bound`; the last counts to `deadline`."""
        for i, start in enumerate(self.times):
            if start >= bound:
                return
            stop = self.times[i + 1] if i + 1 < len(self.times) else bound
            yield start, deadline if stop >= bound else stop, self.free[i]

    @staticmethod
    def _whole_seconds(start: float, end: float) -> float:
        # Never nothing: a job that is about to end holds its GPUs until then.
        return start + max(ceil(end - start - 1e-6), 1)

    def _align(self, time: float) -> float:
        """The end of the slot that a time is in."""
        return self.now + ceil((time - self.now) / self.slot_s - EPS) * self.slot_s

    def _cut(self, time: float) -> int:
        """The place of a time, which is a break point from now on."""
        place = bisect_right(self.times, time) - 1
        if self.times[place] == time:
            return place
        self.times.insert(place + 1, time)
        self.free.insert(place + 1, self.free[place])
        return place + 1


def fill_all(
    promises: Promises, asks: Sequence[DeadlineDemand], *, late_last: bool = True
) -> list[ShareSchedule]:
    """Schedules of all, earliest deadline first; they are promised.

    A job that cannot end in time gets what the others leave; without `late_last` it takes its turn.
    """
    schedules: dict[int, ShareSchedule] = {}
    order = sorted(range(len(asks)), key=lambda i: asks[i].deadline)
    late: list[int] = []
    for i in order:
        schedule = promises.fill(asks[i])
        if late_last and not schedule.met:
            late.append(i)
            continue
        promises.add(schedule)
        schedules[i] = schedule
    for i in late:
        schedules[i] = promises.fill(asks[i])
        promises.add(schedules[i])
    return [schedules[i] for i in range(len(asks))]


def grow_shares(
    promises: Promises,
    asks: Sequence[DeadlineDemand],
    schedules: Sequence[ShareSchedule],
    *,
    worst_first: bool = False,
) -> list[ShareSchedule]:
    """Schedules with spare GPUs given to the jobs that need the fewest more GPU-seconds for it.

    Jobs without any come first. With `worst_first` the order is the published code's: the most
    GPU-seconds first. No job is grown that would then miss a deadline that it met; one without a
    deadline is promised nothing.
    """
    schedules = list(schedules)
    while promises.free[0] > 0:
        best: tuple[float, int, ShareSchedule] | None = None
        for i, ask in enumerate(asks):
            if (grown := _grow(promises, ask, schedules[i])) is None:
                continue
            had = schedules[i].at(promises.now)
            cost = (grown.gpu_s - schedules[i].gpu_s) / (grown.at(promises.now) - had)
            key = -inf if had == 0 else -cost if worst_first else cost
            if best is None or key < best[0]:
                best = (key, i, grown)
        if best is None:
            break
        _, i, grown = best
        if asks[i].deadline == inf:
            promises.free[0] += schedules[i].at(promises.now) - grown.at(promises.now)
        else:
            promises.add(schedules[i], 1)
            promises.add(grown)
        schedules[i] = grown
    return schedules


def _grow(promises: Promises, ask: DeadlineDemand, schedule: ShareSchedule) -> ShareSchedule | None:
    """The schedule with the next level until something changes; None where it cannot grow."""
    now = promises.now
    has = schedule.at(now)
    more = ask.next_level(has)
    if more == has or more - has > promises.free[0]:
        return None
    if ask.deadline == inf:
        end = now + ask.work / ask.rate(more)
        return ShareSchedule(((now, more),), end, end, met=True)
    trial = promises.copy()
    trial.add(schedule, 1)
    grown = trial.fill(ask, more)
    return None if schedule.met and not grown.met else grown


def shift(schedule: ShareSchedule, now: float) -> ShareSchedule:
    """The part of a schedule from now on."""
    later = tuple(step for step in schedule.steps if step[0] > now)
    return replace(schedule, steps=((now, schedule.at(now)), *later))


def end_of(ask: DeadlineDemand, schedule: ShareSchedule, now: float) -> float:
    """Return when a schedule has done the work that is left; inf if it never has."""
    steps = shift(schedule, now).steps
    starts = [start for start, _ in steps]
    spans = list(zip(starts, (*starts[1:], inf), strict=True))
    run = Promises(now, 0).run(ask, spans, [gpus for _, gpus in steps])
    return inf if run is None else run.real_end
