"""Deadlines as promises: which jobs are admitted, and the least that each must hold from now on.

A job that has been promised its deadline keeps it: a later job is admitted only if every job
still ends in time, as far as their speeds and lengths are known. How long a job takes is what its
predictor says, where that is one number; where it is a range, what nine of ten such jobs stay
within. Restarts are planned for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, inf, isfinite

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Config, Demand, JobId, Or
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable
from weft.pieces.size.min_share import DeadlineDemand, Promises, ShareSchedule, fill_all, shift

SLACK_S = 1.0  # of what is rounded


class PromisedDemand:
    """The needs of jobs, by what is believed about their speeds and lengths."""

    def __init__(self, view: View, quantile: float, *, sized: bool) -> None:
        self._view, self._sized = view, sized
        self._left = seconds_left(view, quantile)
        self._restart = view.restart_seconds()
        self._restoring, self._ran = view.restoring(), view.ran()
        self._known: dict[tuple[int, str, int], DeadlineDemand] = {}

    def of(self, row: int, kind: str, room: int, less: float = 0.0) -> DeadlineDemand:
        """One job on one kind, `less` seconds before its deadline."""
        key = (row, kind, room)
        if key not in self._known:
            self._known[key] = self._make(row, kind, room)
        ask = self._known[key]
        return replace(ask, deadline=ask.deadline - less) if less else ask

    def restart_s(self, row: int) -> float:
        """Seconds that a restart costs a job; none where it may not be stopped."""
        return 0.0 if self._fixed(row) else float(self._restart[row])

    def _fixed(self, row: int) -> bool:
        return self._view.allocation(row) is not None and not self._view.job(row).preemptible

    def _make(self, row: int, kind: str, room: int) -> DeadlineDemand:
        view, job = self._view, self._view.job(row)
        on, fixed = view.allocation(row), self._fixed(row)
        held = 0 if on is None else on.gpus
        levels = (held,) if fixed else levels_of(job.demand, view.cluster, kind, room)
        if not (fixed or self._sized):
            levels = (job.demand.gpus,)
        elif not fixed and job.plans:  # what a promise starts runs by the job's own plan
            levels = tuple(n for n in levels if job.plans[0].on(n)) or (job.demand.gpus,)
        asked = max(job.demand.gpus, 1)
        rates = _rates(view, row, kind, (*levels, asked))
        speeds = _rising(levels, rates[:-1])
        work, deadline = float(self._left[row]) * rates[-1], job.deadline or inf
        if fixed and speeds.get(held):  # it goes on from now, however late its deadline is
            deadline = min(deadline, view.now + work / speeds[held] + SLACK_S)
        return DeadlineDemand(
            work,
            deadline,
            tuple(speeds),
            tuple(speeds.values()),
            -1 if self._restoring[row] else held,
            self.restart_s(row) if held or self._ran[row] > 0.0 else 0.0,
        )


def config_of(cluster: Cluster, kind: str, gpus: int) -> Config:
    """A size on as few nodes as it needs."""
    return Config(kind, ceil(gpus / max(cluster.node_size(kind), 1)), gpus)


def levels_of(demand: Demand, cluster: Cluster, kind: str, room: int) -> tuple[int, ...]:
    """Powers of two inside a node and of whole nodes that a job takes; its size if it has one."""
    if demand.rigid:
        return (demand.gpus,)
    size = max(cluster.node_size(kind), 1)
    inside = [2**i for i in range(size.bit_length()) if 2**i <= size]
    whole = [size * 2**i for i in range(1, 20)]
    most = min(demand.max, max(room, demand.min))
    return tuple(n for n in (*inside, *whole) if demand.min <= n <= most) or (demand.gpus,)


def seconds_left(view: View, quantile: float) -> Floats:
    """Seconds that rows still take on what they asked for: as they count, or as predicted."""
    left = np.array(view.remaining())
    predictor = view.predictor()
    sure = np.isfinite(predictor.known_lengths(view.table, view.now))
    for job in view.knowledge.counted:
        if (row := view.table.find(job)) is not None:
            sure[row] = True
    if sure.all():
        return left
    far = predictor.quantiles(view.table, view.now, (quantile,))[:, 0]
    return np.where(sure, left, far)


def _rates(view: View, row: int, kind: str, sizes: Sequence[int]) -> list[float]:
    """Believed speeds; in proportion to GPUs where nothing is."""
    if view.beliefs is None:
        return [float(size) for size in sizes]
    mask = np.zeros(len(view.table), dtype=bool)
    mask[row] = True
    configs = [config_of(view.cluster, kind, size) for size in sizes]
    goodputs = view.beliefs.goodputs(view.table.pick(mask), configs)[0]
    known = np.isfinite(goodputs) & (goodputs > 0.0)
    return goodputs.tolist() if known[-1] and known.any() else [float(size) for size in sizes]


def _rising(levels: Sequence[int], rates: Sequence[float]) -> dict[int, float]:
    """Levels up to where the speed is highest, each faster than the one below."""
    rising: dict[int, float] = {}
    for level, rate in zip(levels, rates, strict=True):
        if isfinite(rate) and rate > max(rising.values(), default=0.0):
            rising[level] = rate
    return rising or {levels[0]: 1e-12}


MORE_GPUS = tuple(2**i for i in range(10))


@frozen
class Promise:
    """A promise to a job: a schedule on GPUs of one kind."""

    kind: str
    schedule: ShareSchedule


@frozen
class PromiseMemory:
    """Promises by job, and deadlines that could not be promised to jobs that run all the same."""

    promises: Mapping[JobId, Promise] = field(default_factory=dict)
    refused: tuple[JobId, ...] = ()
    inner: object = None
    told: Mapping[JobId, str] = field(default_factory=dict)


@frozen
class SlotTerms:
    """The terms of promises: slots of that many seconds, and what is kept in reserve.

    A deadline is promised only if it is met with `restarts` restarts more than planned.
    `quantile` is of the predicted range of lengths that is believed. Without `sized` jobs have the
    size that they ask for.
    """

    slot_s: float = 60.0
    quantile: float = 0.9
    restarts: int = 2
    sized: bool = True


def check_terms(name: str, slot: float, quantile: float, restarts: int) -> None:
    """Raise InvalidConfig if nothing could be promised so."""
    if not (slot > 0.0 and 0.0 < quantile < 1.0 and restarts >= 0):
        raise InvalidConfig(
            f"{name}: slot={slot:g}, quantile={quantile:g}, restarts={restarts}",
            hint="slot is above 0, quantile between 0 and 1, restarts 0 or more",
        )


class PromiseLedger:
    """Promises of one decision: earlier ones, checked again, and those to newer jobs."""

    def __init__(self, view: View, memory: PromiseMemory, terms: SlotTerms) -> None:
        self.view, self.terms = view, terms
        self.asks = PromisedDemand(view, terms.quantile, sized=terms.sized)
        self.tables: dict[str, Promises] = {}
        self.kept: dict[int, Promise] = {}
        self.declined: dict[JobId, str] = {}
        self.warned: dict[JobId, str] = {}
        self.away: dict[JobId, Promise] = {}  # of jobs that others keep waiting: not forgotten
        self.refused = {job for job in memory.refused if job in view.table or _hidden(view, job)}
        rows: dict[int, Promise] = {}
        lost = dict[int, Promise | None].fromkeys(self._forgotten())
        for job, promise in memory.promises.items():
            if (row := view.table.find(job)) is None:
                if _hidden(view, job):
                    self.away[job] = promise
            elif (view.job(row).deadline or inf) <= view.now:
                self.refused.add(job)  # broken: it goes on with what the others leave
            elif promise.kind in view.cluster.kinds:
                rows[row] = promise
                lost.pop(row, None)
            else:
                lost[row] = promise
        self.owed = {*rows, *lost}
        self.room = _room(view, self.owed)
        held = {job.id for job, _, _ in view.held_out_of_sight()}  # what they hold is not in `room`
        self._reserved = [promise for job, promise in self.away.items() if job not in held]
        for kind in view.cluster.kinds:
            self._keep(
                kind, {row: promise for row, promise in rows.items() if promise.kind == kind}
            )
        self._recover(lost)

    def admit(self, rows: Iterable[int]) -> None:
        """Promise the deadlines of new jobs, the earliest first, or say what is possible."""
        jobs = self.view.table.jobs
        for row in sorted(rows, key=lambda row: (jobs[row].deadline or inf, row)):
            if any(self._try(row, kind) for kind in self._kinds(row)):
                continue
            job = jobs[row]
            text = self._refuse(row)
            if job.deadline_or is Or.WARN or self.view.allocation(row) is not None:
                self.refused.add(job.id)
                self.warned[job.id] = text
            else:
                self.declined[job.id] = text

    def promised(self) -> frozenset[JobId]:
        """Jobs that are newly promised a deadline."""
        jobs = self.view.table.jobs
        return frozenset(jobs[row].id for row in self.kept) - self.view.table.promised

    def due(self) -> float | None:
        """The time at which the first schedule changes."""
        now = self.view.now
        steps = (
            (*(at for at, _ in schedule.steps), schedule.end)
            for schedule in self.schedules().values()
        )
        return min((at for times in steps for at in times if now < at < inf), default=None)

    def newcomers(self) -> list[int]:
        """Rows with a deadline about which nothing was said yet."""
        jobs, known = enumerate(self.view.table.jobs), {*self.kept, *self.owed}
        return [
            row
            for row, job in jobs
            if job.deadline is not None and row not in known and job.id not in self.refused
        ]

    def schedules(self) -> dict[int, ShareSchedule]:
        """Schedules that have been promised, by row."""
        return {row: promise.schedule for row, promise in self.kept.items()}

    def memory(self, inner: object = None) -> PromiseMemory:
        """Promises kept and refused, as the memory of a policy."""
        jobs = self.view.table.jobs
        shown = {jobs[row].id: promise for row, promise in sorted(self.kept.items())}
        return PromiseMemory({**shown, **self.away}, tuple(sorted(self.refused)), inner)

    def _forgotten(self) -> list[int]:
        """Rows that were promised their deadline, whatever is remembered of it.

        A service that starts again, or a policy that is new, remembers nothing.
        """
        view, rows = self.view, []
        for job in sorted(view.table.promised):
            row = view.table.row(job)
            if (view.job(row).deadline or inf) <= view.now:
                self.refused.add(job)  # broken before
            elif job not in self.refused:
                rows.append(row)
        return rows

    def _recover(self, rows: Mapping[int, Promise | None]) -> None:
        """Plan again for jobs with a promised deadline; if it cannot be met, it gets all GPUs.

        Where all machines that a job may use are away, its promise waits for them.
        """
        jobs = self.view.table.jobs
        for row in sorted(rows, key=lambda row: (jobs[row].deadline or inf, row)):
            kinds = self._kinds(row)
            if on := self.view.allocation(row):
                held = self.view.cluster.kind_of(on)
                kinds = [held, *(kind for kind in kinds if kind != held)]
            was = rows[row]
            if not kinds and was is not None:
                self.away[jobs[row].id] = was
            elif kinds and not any(self._try(row, kind, reserve=0) for kind in kinds):
                table = self.tables[kinds[0]]
                best = table.fill(self.asks.of(row, kinds[0], self.room[kinds[0]]))
                table.add(best)
                self.kept[row] = Promise(kinds[0], best)

    def _keep(self, kind: str, rows: Mapping[int, Promise]) -> None:
        """Fill again by what is left; where that would break a promise, go on as promised."""
        table, filled = self._fill(kind, rows)
        for keep in (rows, self._late(rows, filled)):
            late = self._late(rows, filled)
            again = self._table(kind)
            old = {row: shift(rows[row].schedule, self.view.now) for row in keep} if late else {}
            if not old or any(schedule.end <= self.view.now for schedule in old.values()):
                continue
            for schedule in old.values():
                again.add(schedule)
            if min(again.free) < 0:
                continue
            rest = [row for row in rows if row not in old]
            asks = [self.asks.of(row, kind, self.room[kind]) for row in rest]
            old |= dict(zip(rest, fill_all(again, asks), strict=True))
            other = [old[row] for row in rows]
            if len(self._late(rows, other)) < len(late):
                table, filled = again, other
        self.tables[kind] = table
        self.kept |= {
            row: Promise(kind, schedule) for row, schedule in zip(rows, filled, strict=True)
        }

    def _fill(
        self, kind: str, rows: Mapping[int, Promise], *new: DeadlineDemand
    ) -> tuple[Promises, list[ShareSchedule]]:
        """Schedules of these and a new one, with time for more restarts where there is some."""
        reserve = {row: self.terms.restarts * self.asks.restart_s(row) for row in rows}
        while True:
            table = self._table(kind)
            asks = [self.asks.of(row, kind, self.room[kind], less=reserve[row]) for row in rows]
            filled = fill_all(table, [*asks, *new])
            late = self._late(rows, filled)
            if not (late or (new and not filled[-1].met)) or not any(reserve.values()):
                return table, filled
            some = late if any(reserve[row] for row in late) else reserve
            reserve |= dict.fromkeys(some, 0.0)

    @staticmethod
    def _late(rows: Mapping[int, Promise], filled: Sequence[ShareSchedule]) -> list[int]:
        """Rows whose promise these schedules would break."""
        pairs = zip(rows.items(), filled, strict=False)
        return [row for (row, was), new in pairs if was.schedule.met and not new.met]

    def _table(self, kind: str) -> Promises:
        """GPUs that can be promised: those that were to jobs out of sight are not."""
        table = Promises(self.view.now, self.room[kind], self.terms.slot_s)
        for promise in self._reserved:
            if promise.kind == kind:
                table.add(shift(promise.schedule, self.view.now))
        return table

    def _try(self, row: int, kind: str, reserve: int | None = None) -> bool:
        """True if a deadline can be promised with that many restarts more than planned."""
        room = self.room[kind]
        new = self.asks.of(row, kind, room)
        restarts = self.terms.restarts if reserve is None else reserve
        reserve_s = restarts * self.asks.restart_s(row)
        tight = replace(new, deadline=new.deadline - reserve_s)
        others = {r: promise for r, promise in self.kept.items() if promise.kind == kind}
        table, filled = self._fill(kind, others, tight)
        if filled[-1].met and not self._late(others, filled):
            self.tables[kind] = table
            for r, schedule in zip((*others, row), filled, strict=True):
                self.kept[r] = Promise(kind, schedule)
            return True
        alone = self.tables[kind].fill(tight)
        if alone.met:
            self.tables[kind].add(alone)
            self.kept[row] = Promise(kind, alone)
        return alone.met

    def _kinds(self, row: int) -> Sequence[str]:
        kinds = acceptable(self.view.job(row), self.view.free)
        return sorted(kinds, key=lambda kind: -self.asks.of(row, kind, self.room[kind]).rates[-1])

    def _refuse(self, row: int) -> str:
        """A refusal: when it could end at the earliest, and with how many more GPUs in time."""
        job, now = self.view.job(row), self.view.now
        asks = {k: self.asks.of(row, k, self.room[k]) for k in acceptable(job, self.view.free)}
        within = _span((job.deadline or inf) - now)
        if not asks:
            return f"no deadline can be promised: no machine that {job.id} may use is there"
        if not any(isfinite(ask.work) for ask in asks.values()):
            return f"no deadline can be promised: the length of {job.id} is unknown"
        ends = [self.tables[kind].fill(ask).real_end for kind, ask in asks.items()]
        soonest = min(ends) - now
        when = f"not before {_span(soonest)} from now" if isfinite(soonest) else "too few GPUs"
        text = f"it cannot end within {within}: {when}"
        for more in MORE_GPUS:
            for kind in asks:
                table = self.tables[kind].copy()
                table.free = [free + more for free in table.free]
                if table.fill(self.asks.of(row, kind, self.room[kind] + more)).met:
                    several = f" {kind}" if len(self.tables) > 1 else ""
                    return f"{text}, or in time with {more} more{several} GPU{'s' * (more > 1)}"
        return text


def _hidden(view: View, job: JobId) -> bool:
    return any(job in part.table for part in view.out_of_sight)


def _room(view: View, rows: Container[int]) -> dict[str, int]:
    """Devices of each kind for promises: idle ones, or held by jobs that may be stopped."""
    room = dict(zip(view.free.kinds, view.free.idle_by_kind(), strict=True))
    seen: set[tuple[str, int]] = set()
    for row, on in enumerate(view.table.allocations):
        if on is None or not (row in rows or view.job(row).stoppable):
            continue
        for part in on.slices:
            kind = view.cluster.nodes[view.cluster.index[part.node]].kind
            fresh = {(part.node, gpu) for gpu in part.gpus} - seen
            seen |= fresh
            room[kind] += len(fresh)
    return room


def _span(seconds: float) -> str:
    if seconds >= 2 * 3600.0:
        return f"{seconds / 3600.0:.1f} h"
    return f"{seconds / 60.0:.0f} min" if seconds >= 120.0 else f"{max(seconds, 0.0):.0f} s"
