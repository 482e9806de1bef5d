"""Chooses the rung of the ladder that each job goes down when a plan takes its GPUs away.

The plan says which job has what; how a job is stopped is chosen here, below all policies: the
cheapest way that frees what the plan gives to others.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from math import inf

from weft.core.asleep.rules import UNKNOWN_HOST_GB, StopRules
from weft.core.asleep.sleeping import DOWN, UP, Sleeping
from weft.core.knowledge.costs import RESTART_S
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import CPU, Node
from weft.core.model.job import Allocation, Job, JobId, Stage
from weft.core.plan.plan import Plan
from weft.core.state.cells import TableColumns
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.core.stops import Rung

Changes = Mapping[JobId, Allocation | None]
Device = tuple[str, int]
MARGIN = 0.95  # of a device's memory that jobs may hold together


class Stops:
    """Chooses by `rules`; with none every stop is a restart."""

    def __init__(self, rules: StopRules | None) -> None:
        self._rules = rules

    def savers(self, state: State) -> Container[JobId]:
        """Jobs that have a checkpoint."""
        everybody = self._rules is not None and self._rules.all_save
        return state.table if everybody else state.asleep.savers

    def choose(
        self, state: State, knowledge: Knowledge, now: float, plan: Plan, live: Collection[JobId]
    ) -> dict[JobId, Rung]:
        """The rung on which each job that loses its devices sleeps; not ones that change live."""
        if self._rules is None or not (plan.changes or state.asleep):
            return {}
        chosen = StopChoice(self._rules, state, plan.changes, knowledge, now).choose()
        return {job: rung for job, rung in chosen.items() if job not in live}

    def choose_one(self, state: State, knowledge: Knowledge, now: float, job: JobId) -> Rung:
        """The rung for one job that has to give its devices back."""
        if self._rules is None or job not in state.table:
            return Rung.RESTART
        choice = StopChoice(self._rules, state, {job: None}, knowledge, now)
        return choice.rung_of(job) or Rung.RESTART


class StopChoice:
    """The choice for one plan."""

    def __init__(
        self, rules: StopRules, state: State, changes: Changes, knowledge: Knowledge, now: float
    ) -> None:
        self._rules, self._state, self._changes = rules, state, changes
        self._costs, self._programs, self._now = knowledge.costs, knowledge.programs, now
        self._sleepers = dict(state.asleep.sleepers)
        self._coming = self._find_coming()

    def choose(self) -> dict[JobId, Rung]:
        """Rungs for jobs that lose their devices, and for sleepers that must go deeper.

        Jobs that it does not name are stopped, as they would be without a ladder.
        """
        chosen: dict[JobId, Rung] = {}
        for job, to in self._changes.items():
            if to is None and (rung := self.rung_of(job)) is not None:
                chosen[job] = rung
        if Rung.FREEZE in self._rules.rungs:
            for sleeping in [*self._sleepers.values()]:
                if sleeping.job not in chosen and not self._fits_on_devices(sleeping.job, sleeping):
                    deeper = self._deeper(sleeping)
                    if deeper is not None:
                        chosen[sleeping.job] = deeper
        return chosen

    def rung_of(self, job: JobId) -> Rung | None:
        """The cheapest way for a running job to sleep; None if it is better stopped."""
        state = self._state
        row = state.table.row(job)
        on, attempt = state.table.allocations[row], int(state.table.get(row, TableColumns.ATTEMPT))
        running = state.table.get(row, TableColumns.STAGE) == Stage.RUNNING
        if on is None or not running or job in state.live.under_way or not on.gpus:
            return None
        sleeper = Sleeping(job, attempt, Rung.FREEZE, on, self._now)
        rungs = self._rules.rungs - {*state.asleep.unable.get(job, ())}
        if Rung.FREEZE in rungs and self._fits_on_devices(job, sleeper):
            self._sleepers[job] = sleeper
            return Rung.FREEZE
        if Rung.SUSPEND in rungs and self._can_suspend(sleeper) and self._pays(sleeper):
            gb = self._gb(sleeper.job, on)
            self._sleepers[job] = Sleeping(
                job, attempt, Rung.SUSPEND, on, self._now, device_gb=gb, host_gb=gb
            )
            return Rung.SUSPEND
        return None

    # ---- what fits

    def has_room(self, sleeper: Sleeping) -> bool:
        """True if a job that holds memory and no time fits beside the job that has its devices."""
        return self._fits_on_devices(sleeper.job, sleeper)

    def _fits_on_devices(self, job: JobId, sleeper: Sleeping) -> bool:
        """True if a frozen job leaves room on its devices for the jobs that the plan puts there."""
        if sleeper.rung is not Rung.FREEZE:
            return True
        machine = self._machine(sleeper)
        if machine.kind == CPU or machine.device_gb == inf:
            return self._host_left(sleeper) >= self._host_gb(job)
        for device in devices_of(sleeper.on):
            used = self._gb(job, sleeper.on)
            for other in self._sleepers.values():
                if other.job != job and other.rung is Rung.FREEZE and _is_on(other.on, device):
                    used += self._gb(other.job, other.on)
            for other_job, on in self._coming.get(device, ()):
                if other_job != job:
                    used += self._gb(other_job, on)
            if used > MARGIN * machine.device_gb:
                return False
        return True

    def _can_suspend(self, sleeper: Sleeping) -> bool:
        """True if a job can be moved to host memory: one GPU, and room for all of it."""
        return sleeper.on.gpus == 1 and self._host_left(sleeper) >= self._gb(
            sleeper.job, sleeper.on
        )

    def _host_left(self, sleeper: Sleeping) -> float:
        """GB of its node that jobs which sleep do not hold yet."""
        machine = self._machine(sleeper)
        left = self._rules.host_part * machine.mem_gb if machine.mem_gb else inf
        for other in self._sleepers.values():
            if other.job != sleeper.job and other.is_on(sleeper.node):
                at_host = machine.kind == CPU or machine.device_gb == inf
                left -= self._host_gb(other.job) if at_host else other.host_gb
        return left

    def _deeper(self, sleeper: Sleeping) -> Rung | None:
        """The deeper rung for a frozen job whose memory others need.

        None to stay, for want of better.
        """
        row = self._state.table.row(sleeper.job)
        if not sleeper.there or self._state.table.allocations[row] is not None:
            return None
        unable = self._state.asleep.unable.get(sleeper.job, ())
        rungs = self._rules.rungs - {*unable}
        if Rung.SUSPEND in rungs and self._can_suspend(sleeper):
            gb = self._gb(sleeper.job, sleeper.on)
            self._sleepers[sleeper.job] = Sleeping(
                sleeper.job,
                sleeper.attempt,
                Rung.SUSPEND,
                sleeper.on,
                self._now,
                device_gb=gb,
                host_gb=gb,
            )
            return Rung.SUSPEND
        return Rung.RESTART if self._saves(sleeper.job) else None

    # ---- what it costs

    def _pays(self, sleeper: Sleeping) -> bool:
        """True if moving a job to host memory and back costs less than starting it again."""
        job = self._job(sleeper.job)
        gb, times = self._gb(sleeper.job, sleeper.on), self._state.asleep.times
        moves = sum(times.seconds(job, sleeper.node, Rung.SUSPEND, way, gb) for way in (DOWN, UP))
        lost = 0.0 if self._saves(sleeper.job) else self._ran(sleeper.job)
        kind = self._state.cluster.kind_of(sleeper.on)
        costs = self._costs
        restart_s = RESTART_S if costs is None else costs.costs(job, kind).restart_s
        return moves <= restart_s + lost

    def _saves(self, job: JobId) -> bool:
        return self._rules.all_save or job in self._state.asleep.savers

    def _ran(self, job: JobId) -> float:
        table, row = self._state.table, self._state.table.row(job)
        base, rate = table.get(row, TableColumns.RAN_BASE), table.get(row, TableColumns.RAN_RATE)
        return base + rate * (self._now - table.get(row, TableColumns.RAN_SINCE))

    # ---- facts

    def _gb(self, job: JobId, on: Allocation) -> float:
        """GB that a job holds of each of its devices; all of it where unknown."""
        if self._rules.memory is not None:
            known = self._rules.memory(self._job(job), on)
        else:
            known = (
                _reported_gb(self._state, job) or on.sharing.gpu_mem_gb or self._need_gb(job, on)
            )
        if known is None:
            return self._state.cluster.nodes[self._state.cluster.index[on.slices[0].node]].device_gb
        return known

    def _need_gb(self, job: JobId, on: Allocation) -> float | None:
        """GB that a job declared, or that its program was seen to hold; None if unknown."""
        if self._programs is None:
            return None
        return self._programs.need_gb(self._job(job), self._state.cluster.kind_of(on))

    def _host_gb(self, job: JobId) -> float:
        if self._rules.memory is not None:
            return 0.0
        return _reported_gb(self._state, job) or UNKNOWN_HOST_GB

    def _job(self, job: JobId) -> Job:
        return self._state.table.jobs[self._state.table.row(job)]

    def _machine(self, sleeper: Sleeping) -> Node:
        cluster = self._state.cluster
        return cluster.nodes[cluster.index[sleeper.on.slices[0].node]]

    def _find_coming(self) -> dict[Device, list[tuple[JobId, Allocation]]]:
        """The jobs that hold devices once the plan is carried out."""
        coming: dict[Device, list[tuple[JobId, Allocation]]] = {}
        for job, on in self._after():
            for device in devices_of(on):
                coming.setdefault(device, []).append((job, on))
        return coming

    def _after(self) -> Iterator[tuple[JobId, Allocation]]:
        table = self._state.table
        for job, on in zip(table.jobs, table.allocations, strict=True):
            to = self._changes.get(job.id, on)
            if to is not None:
                yield job.id, to


def _reported_gb(state: State, job: JobId) -> float | None:
    reported = state.reports.get(job)
    return None if reported is None else reported.report.mem_gb


def _is_on(on: Allocation, device: Device) -> bool:
    return any(device == held for held in devices_of(on))
