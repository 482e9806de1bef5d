"""The history of every job and what it used, as a fold of the event log.

The accounts come from here: GPU-seconds run from Started to the end of that attempt, times the
devices held and the share of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any, assert_never

from weft.core.asleep.sleeping import Sleeping
from weft.core.events import event as facts
from weft.core.events.report import NO_REPORT
from weft.core.latency import Histogram
from weft.core.model.job import Allocation, Job, JobId, LinearQuantity, NodeId
from weft.core.plan.reasons import Blocker
from weft.core.state.ended_jobs import EndedJobs
from weft.core.state.live_changes import join
from weft.core.stops import Rung
from weft.runtime.records.cluster_history import ClusterHistory, Measure
from weft.runtime.records.entitlement import Entitlement
from weft.runtime.records.idle_jobs import NOTICED, UNUSED, IdleJobs
from weft.runtime.records.job_records import JobRecord, JobRecords
from weft.runtime.records.sleep_records import goes_on, lies_down, sleep_after
from weft.runtime.records.usage import (
    DAY_S,
    DayUsage,
    ShareWindows,
    TenantUsage,
    day_of,
    first_day,
    past_day,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WAITS_S = (1.0, 10.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 7 * DAY)


class Tallies:
    """`waits` are seconds from submission to the first start; `lost_gpu_s` by tenant.

    Lost is what a job did since its last checkpoint, or since it started, when it was stopped or
    failed and is to go on.
    """

    def __init__(self) -> None:
        self.waits = Histogram(WAITS_S)
        self.lost_gpu_s: defaultdict[str, float] = defaultdict(float)
        self._safe_at: dict[JobId, float] = {}

    def save(self) -> dict[str, Any]:
        lost, safe = dict(self.lost_gpu_s), dict(self._safe_at)  # written later
        return {"waits": self.waits.save(), "lost": lost, "safe": safe}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.waits.load(saved["waits"])
        self.lost_gpu_s.update(saved["lost"])
        self._safe_at = {JobId(job): at for job, at in saved["safe"].items()}

    def count_start(self, job: JobId, at: float, waited: float | None) -> None:
        """An attempt runs; `waited` is set for a job's first attempt."""
        self._safe_at[job] = at
        if waited is not None:
            self.waits.add(waited)

    def count_save(self, job: JobId, at: float) -> None:
        """There is a checkpoint to go on from."""
        if job in self._safe_at:
            self._safe_at[job] = at

    def count_end(self, job: JobId, tenant: str, at: float, gpus: float, *, goes_on: bool) -> float:
        """An attempt of that many GPUs is over; what was not safe is lost if the job goes on.

        Returns since when its work was not safe.
        """
        since = self._safe_at.pop(job, at)
        if goes_on:
            self.lost_gpu_s[tenant] += gpus * max(at - since, 0.0)
        return since


SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"
NOTICES_KEPT = 20
EARLY_S = 600.0  # an attempt that fails within this time did not come far
NO_PROMISES: Mapping[tuple[JobId, int], Allocation] = MappingProxyType({})


class Ledger:
    """Every job there ever was, by id, in order of submission."""

    def __init__(
        self,
        records: Iterable[JobRecord] = (),
        promised: Mapping[tuple[JobId, int], Allocation] = NO_PROMISES,
        days: Iterable[DayUsage] = (),
        *,
        ended: EndedJobs | None = None,
        following: int = 0,
    ) -> None:
        self.jobs = JobRecords(records, ended, following)
        self.usage = TenantUsage(days)
        self.idle = IdleJobs()
        self.tallies = Tallies()
        self.entitlement = Entitlement()
        self.kinds: dict[NodeId, str] = {}  # of nodes
        self.history = ClusterHistory()
        self.jobs.changed = self.history.replace_record
        self._wanted: dict[str, float] = {}
        for record in self.jobs.live.values():
            if not record.outcome and record.suspended is None:
                self._want(record.job, 1.0)
        self._metering = {name for name, record in self.jobs.live.items() if record.gpu_s.rate}
        # What each attempt was promised, until it is over: one that is late to start may
        # already have been replaced by the next.
        self._on: dict[tuple[JobId, int], Allocation] = dict(promised)

    def fold(self, at: float, event: facts.Event) -> None:  # noqa: C901, PLR0912 - one case an event
        """Take in one event of the log."""
        match event:
            case facts.Submitted(job):
                self.jobs.add(job, at)
                self._want(job, 1.0)
                self.usage.submitted(job.tenant, at)
            case facts.Started(job, attempt):
                self._started(at, job, attempt)
            case facts.Reported() | facts.Measured() | facts.Saved() | facts.Noticed():
                self._note_message(at, event)
            case facts.Stopped(job, attempt):
                self._stopped(at, job, attempt)
            case facts.Finished(job, attempt):
                self._left(at, job, attempt, SUCCEEDED, "")
            case facts.Failed():
                self._failed(at, event)
            case facts.StartFailed(job, attempt, reason, lost):
                self._left(at, job, attempt, "", reason, own=not lost)
            case facts.Cancelled(job, reason):
                self._end(at, job, CANCELLED, reason or "cancelled")
            case facts.DeadlineMissed(job):
                self._missed(at, job)
            case facts.Suspended() | facts.Resumed() | facts.PriorityChanged():
                self._commanded(event)
            case facts.NodeUp() | facts.NodeDown():
                self._came_or_went(event)
            case facts.Decided():
                self._decided(at, event)
            case facts.Slept() | facts.SleepFailed() | facts.Awoke() | facts.StartedAhead():
                self._slept_or_woke(at, event)
            case facts.Resized(job, attempt, epoch):
                self._resized(at, job, attempt, epoch)
            case facts.ResizeFailed(job, attempt, epoch):
                self._not_resized(at, job, attempt, epoch)
            case facts.PolicyChanged():
                for name in [name for name in self.jobs.active if self.jobs.live[name].said]:
                    self._set(name, said="")  # the new policy has its own reasons
            case (
                facts.LoanRecalled()
                | facts.Refitted()
                | facts.Foretold()
                | facts.Woken()
                | facts.Resizable()
                | facts.Observed()
            ):
                pass  # nothing that is kept of any job
            case _:
                assert_never(event)

    def release_ended(self, is_leaving: Callable[[JobId], bool]) -> None:
        """Let the store take ended jobs of which nothing is left anywhere."""
        for job in [*self.jobs.leaving]:
            if self.jobs.live[job].running is None and not is_leaving(job):
                for attempt in range(1, self.jobs.live[job].attempt + 1):
                    self._on.pop((job, attempt), None)  # held back and never asked for
                self.jobs.release_to_store(job)

    def promised(self) -> dict[tuple[JobId, int], Allocation]:
        """Allocations promised to attempts that are not over."""
        return dict(self._on)

    def used(self, now: float, since: float = 0.0, until: float = inf) -> dict[str, DayUsage]:
        """Usage of each tenant on the days of `since` to `until`, and up to `now` at most."""
        sums = self.usage.total(since, until)
        first, past = first_day(since) * DAY_S, past_day(until) * DAY_S
        for name in self._metering:
            record = self.jobs.live[name]
            open_s = max(min(now, past) - max(record.gpu_s.since, first), 0.0)
            if open_s:
                was = sums.get(record.job.tenant) or DayUsage(record.job.tenant, day_of(now))
                sums[record.job.tenant] = replace(was, gpu_s=was.gpu_s + record.gpu_s.rate * open_s)
        for tenant, due in self.entitlement.due_between(now, first, past).items():
            was = sums.get(tenant) or DayUsage(tenant, day_of(now))
            sums[tenant] = replace(was, entitled_s=was.entitled_s + due)
        return sums

    def shares(self, now: float) -> ShareWindows:
        """Usage of tenants relative to their entitlement in the windows up to `now`."""
        windows = self.usage.windows.copy()
        for name in self._metering:
            record = self.jobs.live[name]
            windows.spent(record.job.tenant, record.gpu_s.since, now, record.gpu_s.rate)
        begun = self.entitlement.rates_since
        if begun is not None:
            for tenant, gpus in self.entitlement.rates.items():
                windows.entitled(tenant, begun, now, gpus)
        return windows

    def entitle(self, at: float, room: float) -> None:
        """Tenants are entitled to parts of `room` GPUs from here on, by weights and limits."""
        self.entitlement.update_rates(at, self.usage, self._wanted, room)

    def _want(self, job: Job, sign: float) -> None:
        more = sign * job.demand.gpus * job.demand.share
        total = self._wanted.get(job.tenant, 0.0) + more
        self._wanted[job.tenant] = total if total > 1e-9 else 0.0

    # ---- one method an event

    def _note_message(
        self, at: float, event: facts.Reported | facts.Measured | facts.Saved | facts.Noticed
    ) -> None:
        record = self.jobs.changeable(event.job)
        if record is None:
            return
        match event:
            case facts.Reported(job, _, report):
                if report.steps != record.report.steps or (report.sm or 0.0) >= UNUSED:
                    self._use_again(at, record)
                self._set(
                    job, report=report, heard=(at, at - record.heard[0] if record.heard else 0.0)
                )
            case facts.Measured(job):
                self._set(job, metrics=record.metrics.add(at, event))
            case facts.Saved(job, _, step):
                further = step > (record.saved or 0)
                self.tallies.count_save(job, at)
                self._set(job, saved=step)
                if further:
                    self._set(job, failures=0, agents_lost=0, alike=("", 0))
            case facts.Noticed(job, _, level, text):
                self._set(job, notices=(*record.notices, (at, level, text))[-NOTICES_KEPT:])
                if level == NOTICED and record.running == event.attempt:
                    self._note_idle(at, record)
            case _:
                assert_never(event)

    def _decided(self, at: float, decided: facts.Decided) -> None:
        for job, text in decided.reasons.items():
            if job in self.jobs.active and (text or not self.jobs.live[job].gave_way):
                word = decided.blockers.get(job, Blocker.SAID)
                self._set(job, said=text, blocker=word)
        for job, to in decided.changes.items():
            was = self.jobs.live[job]
            if to is None:
                self._set(job, allocation=None, sleeps=lies_down(was, decided.sleeps.get(job)))
            elif was.sleeps is not None and was.allocation is None:
                self._give_to_sleeper(was, to)
            elif job in decided.live:
                self._resize(at, was, to)
            elif was.allocation is None or not was.allocation.stays(to):
                moved = decided.blockers.get(job) is Blocker.MOVED
                text = decided.reasons[job] if moved else ""
                self._next_attempt(was, to, reason="", said=text)
            else:
                self._set(job, allocation=to)
                self._on[job, was.attempt] = to
                if was.running == was.attempt:
                    self._turn(job, at, to)
        for job, reason in decided.rejected.items():
            self._end(at, job, FAILED, f"rejected: {reason}")

    def _give_to_sleeper(self, record: JobRecord, to: Allocation) -> None:
        """A job that sleeps goes on where it is, or starts over elsewhere."""
        if goes_on(record, to):
            self._set(record.job.id, allocation=to)
            self._on[record.job.id, record.attempt] = to
        else:
            self._next_attempt(record, to, reason="", said="", sleeps=None)

    def _slept_or_woke(
        self, at: float, event: facts.Slept | facts.SleepFailed | facts.Awoke | facts.StartedAhead
    ) -> None:
        if isinstance(event, facts.StartedAhead):
            sleeps = Sleeping(event.job, event.attempt, Rung.FREEZE, event.on, at)
            self._set(event.job, attempt=event.attempt, sleeps=sleeps)
            return
        record = self.jobs.changeable(event.job)
        changed = None if record is None else sleep_after(record, at, event)
        if record is not None and changed is not None:
            self._set(event.job, sleeps=changed.sleeps)
            if isinstance(event, facts.Awoke) and record.running is None:
                self._started(at, event.job, event.attempt)  # ahead, until now
            elif changed.gpus is not None:
                self._turn(event.job, at, changed.gpus)

    def _next_attempt(self, record: JobRecord, to: Allocation, **more: object) -> None:
        attempt = record.attempt + 1
        self._set(record.job.id, allocation=to, attempt=attempt, epoch=0, leaves=None, **more)
        self._on[record.job.id, attempt] = to

    def _resize(self, at: float, record: JobRecord, to: Allocation) -> None:
        """A job is to change its devices as it trains; both sets are counted until it has."""
        job, was = record.job.id, record.allocation
        assert was is not None
        leaves = was if record.leaves is None else join(record.leaves, was)
        self._set(job, allocation=to, epoch=record.epoch + 1, leaves=leaves)
        self._on[job, record.attempt] = to
        if record.running == record.attempt:
            self._turn(job, at, join(to, leaves))

    def _answered(self, job: JobId, attempt: int, epoch: int) -> JobRecord | None:
        """The record of a job whose last change of devices this answers."""
        record = self.jobs.changeable(job)
        if record is None or record.leaves is None or record.allocation is None:
            return None
        return record if (record.attempt, record.epoch) == (attempt, epoch) else None

    def _resized(self, at: float, job: JobId, attempt: int, epoch: int) -> None:
        record = self._answered(job, attempt, epoch)
        if record is not None and record.allocation is not None:
            self._set(job, leaves=None, resizes=record.resizes + 1)
            self._turn(job, at, record.allocation)

    def _not_resized(self, at: float, job: JobId, attempt: int, epoch: int) -> None:
        record = self._answered(job, attempt, epoch)
        if record is not None and record.allocation is not None and record.leaves is not None:
            self._on[job, attempt] = record.leaves
            self._turn(job, at, record.leaves)
            self._next_attempt(record, record.allocation)

    def _started(self, at: float, job: JobId, attempt: int) -> None:
        record, on = self.jobs.changeable(job), self._on.get((job, attempt))
        if record is None or record.running or on is None:
            return
        self._set(
            job,
            started=at if record.started is None else record.started,
            starts=record.starts + 1,
            running=attempt,
            report=NO_REPORT,
            heard=None,
        )
        self._turn(job, at, on)
        self.tallies.count_start(job, at, None if record.starts else at - record.submitted)
        if not record.starts:
            self.history.count((record.job.tenant, ""), Measure.STARTED)
            self.history.count((record.job.tenant, ""), Measure.WAITED, at - record.submitted)
        if record.starts:
            self.usage.restarted(record.job.tenant, at)

    def _stopped(self, at: float, job: JobId, attempt: int) -> None:
        record = self.jobs.changeable(job)
        self._off(at, job, attempt)
        if record and record.ran_long(at, attempt):
            self._set(job, agents_lost=0)

    def _failed(self, at: float, event: facts.Failed) -> None:
        job, record = event.job, self.jobs.changeable(event.job)
        if record is not None and event.agent_died:
            before = 0 if record.ran_long(at, event.attempt) else record.agents_lost
            self._set(job, agents_lost=before + 1)
        if record is not None and record.running == event.attempt and not event.lost:
            how, (last, times) = failure_class(event), record.alike
            early = bool(how) and at - record.gpu_s.since < EARLY_S
            self._set(job, alike=(how, times + 1 if how == last else 1) if early else ("", 0))
            self.history.count((record.job.tenant, ""), Measure.FAILED)
        outcome = "" if event.retry else FAILED
        self._left(at, job, event.attempt, outcome, event.reason, own=not event.lost)

    def _off(self, at: float, job: JobId, attempt: int, *, goes_on: bool = True) -> None:
        self._on.pop((job, attempt), None)
        record = self.jobs.changeable(job)
        if record is not None and record.running == attempt:
            again, gpus, spent = goes_on and not record.outcome, record.gpu_s.rate, record.spending
            since = self.tallies.count_end(job, record.job.tenant, at, gpus, goes_on=again)
            worked = at if spent.idle_since is None else spent.idle_since
            lost = gpus * max(worked - since, 0.0) if again else 0.0
            self._set(job, running=None, leaves=None, sleeps=None)
            self._turn(job, at, 0.0)
            spent = self.jobs.live[job].spending
            self._set(job, spending=replace(spent, lost=spent.lost + lost, idle_since=None))
        elif record is not None and record.sleeps is not None and record.sleeps.attempt == attempt:
            self._set(job, sleeps=None)

    def _left(
        self, at: float, job: JobId, attempt: int, outcome: str, reason: str, *, own: bool = False
    ) -> None:
        record = self.jobs.changeable(job)
        if record is None:
            return
        self._off(at, job, attempt, goes_on=outcome != SUCCEEDED)
        if record.outcome:
            return
        if outcome:
            self._end(at, job, outcome, reason)
        elif record.attempt == attempt and record.allocation is not None:
            self._set(job, allocation=None, reason=reason, failures=record.failures + own)

    def _end(self, at: float, job: JobId, outcome: str, reason: str) -> None:
        record = self.jobs.changeable(job)
        if record is not None and not record.outcome:
            over = {"allocation": None, "suspended": None, "sleeps": None}
            self._set(job, outcome=outcome, reason=reason, ended=at, **over)
            if record.job.deadline is not None and at > record.job.deadline:
                self._missed(at, job)
            self.jobs.end(job)
            if record.suspended is None:
                self._want(record.job, -1.0)

    def _commanded(self, event: facts.Suspended | facts.Resumed | facts.PriorityChanged) -> None:
        """Note a command of its owner or an admin; a job that is suspended wants no GPUs."""
        record = self.jobs.changeable(event.job)
        if record is None or record.outcome:
            return
        match event:
            case facts.Suspended(_, by, rung):
                if record.suspended is None:
                    self._want(record.job, -1.0)
                gone = {"allocation": None, "sleeps": lies_down(record, rung), "said": ""}
                self._set(record.job.id, suspended=by, **gone)
            case facts.Resumed(job):
                if record.suspended is not None:
                    self._want(record.job, 1.0)
                self._set(job, suspended=None)
            case facts.PriorityChanged(job, priority, tier):
                first = record.first_priority or (record.job.priority, record.job.tier)
                changed = replace(record.job, priority=priority, tier=tier)
                self._set(job, job=changed, first_priority=first)
            case _:
                assert_never(event)

    def _missed(self, at: float, job: JobId) -> None:
        record = self.jobs.changeable(job)
        if record is not None and not record.missed:
            self._set(job, missed=True)
            self.usage.missed(record.job.tenant, at)

    def _came_or_went(self, event: facts.NodeUp | facts.NodeDown) -> None:
        if isinstance(event, facts.NodeUp):
            self.kinds[event.node.id] = event.node.kind
            return
        node = event.node
        for job in self.jobs.active:
            record = self.jobs.live[job]
            slices = [part for on in (record.allocation, record.leaves) if on for part in on.slices]
            if record.allocation and any(part.node == node for part in slices):
                self._set(job, allocation=None)
            if record.sleeps is not None and record.sleeps.is_on(node):
                self._set(job, sleeps=None)

    def _note_idle(self, at: float, record: JobRecord) -> None:
        """A job that was found idle has been so for a while."""
        if record.spending.idle_since is None:
            since = max(at - self.idle.idle_s, record.gpu_s.since)
            self._set(record.job.id, spending=replace(record.spending, idle_since=since))

    def _use_again(self, at: float, record: JobRecord) -> None:
        """A job that was idle uses its GPUs."""
        if record.spending.idle_since is not None:
            self._turn(record.job.id, at, record.gpu_s.rate)
            spent = self.jobs.live[record.job.id].spending
            self._set(record.job.id, spending=replace(spent, idle_since=None))

    def _turn(self, job: JobId, at: float, to: Allocation | float) -> None:
        """From here on the job uses that many GPUs; a number of those that it has."""
        record, meter = self.jobs.live[job], self.jobs.live[job].gpu_s
        self.usage.spent(record.job.tenant, meter.since, at, meter.rate)
        spending = record.spending.at(at, meter)
        if isinstance(to, Allocation):
            spending, to = replace(spending, mix=self._mix(to)), to.counted_gpus
        self._set(job, gpu_s=LinearQuantity(meter.at(at), to, at), spending=spending)
        (self._metering.add if to else self._metering.discard)(job)

    def _mix(self, on: Allocation) -> dict[str, float]:
        """The parts of an allocation's GPUs by kind."""
        mix: dict[str, float] = {}
        for some in on.slices if on.gpus else ():
            kind = self.kinds.get(some.node, "")
            mix[kind] = mix.get(kind, 0.0) + len(some.gpus) / on.gpus
        return mix

    def _set(self, job: JobId, /, **changes: object) -> None:
        self.jobs.set(job, **changes)


def failure_class(event: facts.Failed) -> str:
    """The words that failures of one kind have in common; empty where that is not known."""
    code = "" if event.code is None else f"exit code {event.code}"
    return "no GPU memory left" if event.out_of_memory else code
