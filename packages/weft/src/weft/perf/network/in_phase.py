"""Jobs that cross the same network links, with their phases in time and their time shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from weft.base.alignment import Alignment
from weft.core.knowledge.traffic import Traffic
from weft.core.model.job import TimeShift
from weft.core.model.topology import Uplink
from weft.core.protocols import Resident

DIGITS = 9  # of a second: shifts that differ by less are one

Key = tuple[Traffic, TimeShift | None, tuple[int, ...]]


class InPhase:
    """The truth where jobs say when they send: links are shared while several do so.

    Of jobs that a neighbour meets elsewhere nothing is seen.
    """

    def gb_s(self, resident: Resident, crossing: Mapping[Uplink, Sequence[Resident]]) -> float:
        """The GB/s at which it would take as long, were they its own all the time."""
        traffic = resident.job.traffic
        if traffic is None or not traffic.talking or not crossing:
            return inf
        seconds = iteration_seconds(resident, crossing)
        longer = sum(seconds) / len(seconds) - traffic.compute_s
        return traffic.gbit / (8.0 * longer) if longer > 0.0 else inf


def iteration_seconds(
    sender: Resident, crossing: Mapping[Uplink, Sequence[Resident]]
) -> tuple[float, ...]:
    """Iterations of a job beside others on its links, as they come."""
    links = list(crossing)
    on: dict[int, tuple[Resident, list[int]]] = {id(sender): (sender, list(range(len(links))))}
    for i, link in enumerate(links):
        for other in crossing[link]:
            on.setdefault(id(other), (other, []))[1].append(i)
    keys = [_key(resident, at) for resident, at in on.values()]
    own, order = keys[0], sorted(keys, key=_rank)
    seen = _simulate(tuple(order), tuple(link.gbps for link in links))
    return seen[order.index(own)]


def _key(resident: Resident, links: Sequence[int]) -> Key:
    traffic, shift = resident.job.traffic, resident.on.time_shift
    assert traffic is not None
    if shift is not None:
        shift = TimeShift(shift.period_s, round(shift.shift_s, DIGITS) % shift.period_s)
    return traffic, shift, tuple(links)


def _rank(key: Key) -> tuple[object, ...]:
    """An order that is the same whichever job is asked about."""
    traffic, shift, links = key
    beat = (0.0, 0.0) if shift is None else (shift.period_s, shift.shift_s)
    phases = tuple((phase.start_s, phase.seconds, phase.gbps) for phase in traffic.phases)
    return (traffic.iteration_s, traffic.gbit, traffic.share, phases, beat, links)


@lru_cache(maxsize=1 << 14)
def _simulate(keys: tuple[Key, ...], gbps: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    seen = simulate_iterations([Sender(*key) for key in keys], gbps)
    return tuple(tuple(times) for times in seen)


# Iterations of jobs that send over the same links, from moment to moment. A job that sends gets a
# max-min fair part of its links, no more than it sends alone, until one begins or ends; what is
# left to send keeps an iteration from ending. Computation takes a little longer or shorter each
# time. Jobs without a time shift begin anywhere in their iteration: several beginnings are drawn,
# for over a long time they drift through all of them. Jobs with one keep to their beat.

JITTER = 0.005  # of a stretch of computation: beats are then lost about every hundredth iteration
DRAWS, ITERATIONS, SETTLE = 6, 12, 2
STEADY = 40  # iterations where all jobs have a beat, and one beginning is as good as another
EPS = 1e-9


class Sender(NamedTuple):
    """A job that sends: one iteration of it, its beat if it has one, and the links it crosses."""

    traffic: Traffic
    beat: TimeShift | None
    links: tuple[int, ...]


def simulate_iterations(senders: Sequence[Sender], gbps: Sequence[float]) -> list[list[float]]:
    """Seconds of iterations of each sender; `gbps` is what each link carries."""
    rng = np.random.default_rng(0)
    held = all(sender.beat is not None for sender in senders)
    draws, count = (1, STEADY) if held else (DRAWS, ITERATIONS)
    seconds: list[list[float]] = [[] for _ in senders]
    for _ in range(draws):
        jobs = [_Running(sender, rng.standard_normal(256), rng.random()) for sender in senders]
        _run(jobs, gbps, count + SETTLE)
        for seen, job in zip(seconds, jobs, strict=True):
            seen += job.seconds[SETTLE : count + SETTLE]
    return seconds


@dataclass(slots=True, eq=False)
class _Running:
    """A job in the middle of an iteration: it computes `until`, or has `left` Gbit to send."""

    sender: Sender
    noise: np.ndarray[tuple[int], np.dtype[np.float64]]
    start: float
    seconds: list[float] = field(default_factory=list)
    until: float = 0.0
    left: float = 0.0
    want: float = 0.0
    rate: float = 0.0
    _stretches: list[tuple[float, float, float]] = field(default_factory=list)
    _at: int = 0
    _drawn: int = 0
    _began: float = 0.0
    _beat: Alignment = field(default_factory=Alignment)

    def __post_init__(self) -> None:
        traffic, beat = self.sender.traffic, self.sender.beat
        now = 0.0
        for phase in sorted(traffic.talking, key=lambda part: part.start_s):
            self._stretches.append((max(phase.start_s - now, 0.0), phase.seconds, phase.gbps))
            now = max(now, phase.start_s) + phase.seconds
        self._stretches.append((max(traffic.iteration_s - now, 0.0), 0.0, 0.0))
        self._began = self.start * traffic.iteration_s
        if beat is not None:
            self._beat.change(beat.period_s, beat.shift_s)
            self._began = beat.shift_s
        self.until = self._began + self._compute()

    def advance(self, now: float) -> None:
        """End the present step, sending or computing, and begin the next."""
        if self.until < inf:
            _, seconds, gbps = self._stretches[self._at]
            self.until, self.want, self.left = inf, gbps, seconds * gbps
            if self.left > EPS:
                return
        self.want = self.left = 0.0
        self._at += 1
        begin = now
        if self._at == len(self._stretches):
            self._at = 0
            begin += self._beat.measure_wait(now)
            self.seconds.append(begin - self._began)
            self._began = begin
        self.until = begin + self._compute()

    def _compute(self) -> float:
        self._drawn = (self._drawn + 1) % len(self.noise)
        return self._stretches[self._at][0] * (1.0 + JITTER * float(self.noise[self._drawn]))


def _run(jobs: list[_Running], gbps: Sequence[float], count: int) -> None:
    """Until every job has done `count` iterations."""
    now = 0.0
    while any(len(job.seconds) < count for job in jobs):
        sending = [job for job in jobs if job.left > 0.0]
        _share(sending, gbps)
        then = min(job.until for job in jobs)
        for job in sending:
            then = min(then, now + job.left / job.rate)
        for job in sending:
            job.left -= job.rate * (then - now)
        now = then
        for job in jobs:
            if job.until <= now or (job.until == inf and job.left <= EPS):
                job.advance(now)


def _share(sending: list[_Running], gbps: Sequence[float]) -> None:
    """Max-min fair rates: the narrowest link first, no job more than it wants."""
    for job in sending:
        job.rate = job.want
    room = dict.fromkeys((link for job in sending for link in job.sender.links), 0.0)
    for job in sending:
        for link in job.sender.links:
            room[link] += job.want
    if all(wanted <= gbps[link] + EPS for link, wanted in room.items()):
        return
    room = {link: gbps[link] for link in room}
    open_jobs = list(sending)
    while open_jobs:
        counts = dict.fromkeys(room, 0)
        for job in open_jobs:
            for link in job.sender.links:
                counts[link] += 1
        level, narrow = min((room[link] / n, link) for link, n in counts.items() if n)
        done = [job for job in open_jobs if job.want <= level + EPS]
        done = done or [job for job in open_jobs if narrow in job.sender.links]
        for job in done:
            job.rate = max(min(job.want, level), EPS)
            for link in job.sender.links:
                room[link] = max(room[link] - job.rate, 0.0)
        open_jobs = [job for job in open_jobs if job not in done]
