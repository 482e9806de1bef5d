"""Drives `Scheduler.step` in virtual time, from event to event.

A heap of ends that physics predicts, the trace's arrivals, node outages and one wake-up: the
earliest is next. Actions are carried out at once and answered in the same instant, unless a
checkpoint takes time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import assert_never

from weft.core.errors import PlanError
from weft.core.events import event as facts
from weft.core.events.actions import (
    Action,
    Adjust,
    OrderMemory,
    Reject,
    Resize,
    Resume,
    Sleep,
    Start,
    Stop,
    Wake,
)
from weft.core.knowledge.costs import adds_devices
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, JobId, NodeId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.live_changes import join
from weft.formulas.node_sleeper import NodeSleeper
from weft.sim.asleep import SleepSimulation
from weft.sim.collect import RunCounts, count_slept
from weft.sim.faults import Faults
from weft.sim.loans import LoanCounts, Loans, recalls
from weft.sim.physics import DEATH, NEVER, REVIEW, Milestone, Physics
from weft.sim.switches import CostsOf, Switches

Progress = Callable[[int, int], None]
IDLE_DECISIONS = 100_000


class Simulation:
    """One simulation: a scheduler, the physics, and the clock between them."""

    def __init__(
        self,
        scheduler: Scheduler,
        physics: Physics,
        cluster: Cluster,
        *,
        faults: Faults | None = None,
        loans: Loans | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        live: CostsOf | None = None,
        sleep_sim: SleepSimulation | None = None,
        sleeper: NodeSleeper | None = None,
    ) -> None:
        self._sleep_sim, self._sleeper = sleep_sim, sleeper
        self._switches = None if live is None else Switches(live)
        self.counts, self._progress = RunCounts(), progress
        self._scheduler, self._physics, self._cluster = scheduler, physics, cluster
        self._outages = (faults or Faults()).outages(cluster, seed)
        self._next_outage = next(self._outages, None)
        self._loans = loans or Loans()
        self._lent = self._loans.lent(seed)
        self._next_loan = next(self._lent, None)
        if self._next_loan is not None:
            self.counts.loans = LoanCounts()
            self._cluster = Cluster((*cluster.nodes, *self._loans.nodes), cluster.name)
        self._ends: list[tuple[float, int, int, int]] = []
        self._due: dict[int, int] = {}
        self._stops: list[tuple[float, int, JobId, int]] = []
        self._attempt: dict[JobId, int] = {}
        self._wake: float = NEVER
        self._now = 0.0
        self._order = self._arrived = self._idle = 0
        self._left = len(physics.trace)
        scheduler.timed = self._time_decision
        scheduler.rested = self._count

    def run(self, watch: Progress | None = None) -> None:
        """Until every job has left; `watch` hears how far it is, and may end it by raising."""
        total, now = len(self._physics.trace), 0.0
        report_at = every = max(1, total // 200)
        while self._left:
            now = self._next_time()
            if now == NEVER:
                raise stall_error(self._scheduler)
            self._settle(now, self._happening(now))
            if watch is not None:
                watch(self._arrived + total - self._left, 2 * total)
            if self._progress is not None and total - self._left >= report_at:
                report_at += every
                self._progress(total - self._left, total)
        if self.counts.loans is not None:
            self.counts.loans.close(now)
        self.counts.nodes_slept = None if self._sleeper is None else count_slept(self._sleeper, now)
        if self._progress is not None:
            self._progress(total, total)

    # ---- time

    def _next_time(self) -> float:
        jobs = self._physics.trace.jobs
        now = self._wake
        if self._arrived < len(jobs):
            now = min(now, jobs[self._arrived][0].submitted)
        while self._ends and self._due.get(self._ends[0][2]) != self._ends[0][1]:
            heapq.heappop(self._ends)  # void: its job was stopped, or goes at another pace
        if self._ends:
            now = min(now, self._ends[0][0])
        if self._stops:
            now = min(now, self._stops[0][0])
        if self._switches is not None:
            now = min(now, self._switches.next_at)
        if self._sleep_sim is not None:
            now = min(now, self._sleep_sim.next_at)
        if self._sleeper is not None and (now < NEVER or len(self._scheduler.state.table)):
            now = min(now, self._sleeper.next_at(self._now))
        if self._next_outage is not None and (now < NEVER or len(self._scheduler.state.table)):
            now = min(now, self._next_outage[0])
        if self._next_loan is not None and (now < NEVER or len(self._scheduler.state.table)):
            now = min(now, self._next_loan[0])
        return now

    def _happening(self, now: float) -> list[facts.Event]:
        """Everything at `now`: ends first, then machines, arrivals, the wake-up."""
        events: list[facts.Event] = []
        while self._ends and self._ends[0][0] <= now:
            _, order, seq, what = heapq.heappop(self._ends)
            if self._due.get(seq) == order:
                events += self._milestone(now, seq, what)
        while self._stops and self._stops[0][0] <= now:
            _, _, job, attempt = heapq.heappop(self._stops)
            events.append(facts.Stopped(job, attempt))
        if self._switches is not None:
            events += self._switch(now, self._switches)
        if self._sleep_sim is not None:
            events += self._sleep_sim.take_asleep(now)
        while self._next_outage is not None and self._next_outage[0] <= now:
            _, up, node = self._next_outage
            events.append(facts.NodeUp(node) if up else self._node_lost(now, node.id))
            self._next_outage = next(self._outages, None)
        while self._next_loan is not None and self._next_loan[0] <= now:
            events += self._lend(now, self._next_loan[1])
            self._next_loan = next(self._lent, None)
        jobs = self._physics.trace.jobs
        while self._arrived < len(jobs) and jobs[self._arrived][0].submitted <= now:
            events.append(facts.Submitted(jobs[self._arrived][0]))
            self._arrived += 1
        if self._wake <= now:
            self._wake = NEVER
            events.append(facts.Woken())
        return events

    def _milestone(self, now: float, seq: int, what: int) -> Iterable[facts.Event]:
        if what == REVIEW:
            return self._expect(self._physics.update_progress(now, seq), seq)
        job = self._physics.trace.jobs[seq][0].id
        del self._due[seq]
        attempt = self._attempt.pop(job)
        if self._switches is not None:
            self._switches.forget(job)
        if what == DEATH:
            self._physics.fail_run(now, seq)
            return (
                facts.Failed(job, attempt, reason="failed as in the trace or by fault", retry=True),
            )
        self._physics.finish(now, seq)
        self._left -= 1
        return (facts.Finished(job, attempt),)

    def _expect(self, next_up: Milestone, seq: int) -> Iterable[facts.Event]:
        """Await the next milestone of a job; whatever was awaited of it before is void."""
        self._order += 1
        self._due[seq] = self._order
        heapq.heappush(self._ends, (next_up.at, self._order, seq, next_up.what))
        if next_up.report is None:
            return ()
        job = self._physics.trace.jobs[seq][0].id
        return (facts.Reported(job, self._attempt[job], next_up.report),)

    def _settle(self, now: float, events: list[facts.Event]) -> None:
        """Step until nothing more follows in this instant."""
        if self._physics.interruption is not None:
            self._physics.interrupt(now)
        loans, before = self.counts.loans, None
        if loans is not None and recalls(events):
            before = self._scheduler.view(now).held()
        while events or (events := [] if self._sleeper is None else self._sleep_nodes(now)):
            self.counts.events += len(events)
            actions = self._scheduler.step(now, events)
            events = []
            for action in actions:
                events += self._carry_out(now, action)
            for seq, next_up in (
                self._physics.changed_milestones(now) if self._physics.coupled else ()
            ):
                events += self._expect(next_up, seq)
            if loans is not None and not events:
                events = self._take_back(now)
        if loans is not None and before is not None:
            view = self._scheduler.view(now)
            left = {job: on for job, on in before.items() if job in view.table}
            loans.count_recall(left, view.held())
        if self._physics.interruption is not None:
            for seq in self._physics.running():
                self._expect(self._physics.update_progress(now, seq), seq)

    def _carry_out(self, now: float, action: Action) -> Iterable[facts.Event]:  # noqa: C901 - one case an action
        match action:
            case Start(job, on, attempt):
                next_up = self._physics.start(now, job, on, self._cluster.kind_of(on))
                self._attempt[job.id] = attempt
                seq = self._physics.seq_of[job.id]
                expected = self._expect(next_up, seq)
                if self._switches is not None and self._switches.costs_of(job).live:
                    self._switches.expect_ready(self._physics.trains_at(seq), job.id, attempt)
                return (facts.Started(job.id, attempt), *expected)
            case Stop(job_id, attempt):
                return self._stop(now, job_id, attempt)
            case Wake(at):
                self._wake = NEVER if at is None else at
            case Reject():
                self._left -= 1
                self.counts.rejected += 1
            case Adjust(job_id, attempt, to):
                return self._adjust(now, job_id, attempt, to)
            case OrderMemory():
                pass
            case Resize():
                self._resize(now, action)
            case Sleep():
                return self._sleep(now, action)
            case Resume(job, on, attempt):
                return self._wake_job(now, job, on, attempt)
            case _:
                assert_never(action)
        return ()

    def _stop(self, now: float, job: JobId, attempt: int) -> Iterable[facts.Event]:
        if self._sleep_sim is not None and self._sleep_sim.on_attempt_end(job, attempt):
            return self._leave(now, job, attempt)
        if self._attempt.get(job) != attempt:
            return (facts.Stopped(job, attempt),)  # its node died under it
        del self._attempt[job]
        if self._switches is not None:
            self._switches.forget(job)
        seq = self._physics.seq_of[job]
        self._due.pop(seq, None)
        self._physics.stop(now, seq)
        self.counts.preemptions += 1
        return self._leave(now, job, attempt)

    def _leave(self, now: float, job: JobId, attempt: int) -> Iterable[facts.Event]:
        if self._physics.checkpoint_s == 0.0:
            return (facts.Stopped(job, attempt),)
        self._order += 1
        leave = now + self._physics.checkpoint_s
        heapq.heappush(self._stops, (leave, self._order, job, attempt))
        return ()

    def _sleep(self, now: float, sleep: Sleep) -> Iterable[facts.Event]:
        """A run goes on later where it is; one that is gone was lost with its node."""
        assert self._sleep_sim is not None
        job, seq = self._job(sleep.job), self._physics.seq_of[sleep.job]
        where = self._scheduler.state.asleep.sleepers[sleep.job].on
        if self._attempt.get(sleep.job) != sleep.attempt:
            self._sleep_sim.deepen(now, job, sleep.attempt, sleep.rung, where)
            return self._sleep_sim.take_asleep(now)
        del self._attempt[sleep.job]
        if self._switches is not None:
            self._switches.forget(sleep.job)
        self._due.pop(seq, None)
        self._physics.end_run(now, seq)
        self.counts.preemptions += 1
        self._sleep_sim.lie_down(now, job, sleep.attempt, sleep.rung, where)
        return self._sleep_sim.take_asleep(now)

    def _wake_job(
        self, now: float, job: Job, on: Allocation, attempt: int
    ) -> Iterable[facts.Event]:
        assert self._sleep_sim is not None
        wake_s = self._sleep_sim.wake_s(job, on)
        next_up = self._physics.wake(now, job, on, self._cluster.kind_of(on), wake_s)
        self._attempt[job.id] = attempt
        expected = self._expect(next_up, self._physics.seq_of[job.id])
        return (facts.Awoke(job.id, attempt, wake_s), *expected)

    def _adjust(
        self, now: float, job: JobId, attempt: int, to: Allocation
    ) -> Iterable[facts.Event]:
        if self._attempt.get(job) != attempt:
            return ()
        seq = self._physics.seq_of[job]
        return self._expect(self._physics.adjust(now, seq, to, self._cluster.kind_of(to)), seq)

    def _resize(self, now: float, resize: Resize) -> None:
        """New processes get ready while the job trains on; it switches when they are."""
        job = resize.job.id
        if self._switches is None or self._attempt.get(job) != resize.attempt:
            return
        seq, costs = self._physics.seq_of[job], self._switches.costs_of(resize.job)
        was, at = self._physics.holds(seq), now
        if adds_devices(was, resize.to):
            at, before = now + costs.prepare_s, self._switches.pending(job)
            if before is not None and not adds_devices(join(was, before[0]), resize.to):
                at = before[1]  # what it still needs is getting ready already
            self._physics.prepare(now, seq, join(was, resize.to).gpus - was.gpus)
        self._switches.schedule_change(at, resize)

    def _switch(self, now: float, switches: Switches) -> list[facts.Event]:
        """Attempts that have begun to train, and those that go on elsewhere."""
        events: list[facts.Event] = [
            facts.Resizable(job, attempt, switches.costs_of(self._job(job)).state_gb)
            for job, attempt in switches.take_ready(now)
            if self._attempt.get(job) == attempt
        ]
        for resize in switches.take_due(now):
            seq, costs = self._physics.seq_of[resize.job.id], switches.costs_of(resize.job)
            was = self._physics.holds(seq)
            pause_s = costs.change_s(was, resize.to)
            prepare_s = costs.prepare_s if adds_devices(was, resize.to) else 0.0
            kind = self._cluster.kind_of(resize.to)
            events.append(
                facts.Resized(resize.job.id, resize.attempt, resize.epoch, pause_s, prepare_s)
            )
            events += self._expect(self._physics.move_job(now, seq, resize.to, kind, pause_s), seq)
        return events

    def _job(self, job: JobId) -> Job:
        return self._physics.trace.jobs[self._physics.seq_of[job]][0]

    def _node_lost(self, now: float, node: NodeId) -> facts.NodeDown:
        for seq in self._physics.running_on(node):
            self._physics.end_run(now, seq, crashed=True)
            self._due.pop(seq, None)
            job = self._physics.trace.jobs[seq][0].id
            del self._attempt[job]
            if self._switches is not None:
                self._switches.forget(job)
        return facts.NodeDown(node)

    def _sleep_nodes(self, now: float) -> list[facts.Event]:
        """Nodes that come back and nodes that go, where not all of them are needed."""
        assert self._sleeper is not None
        self._now = now
        came: list[facts.Event] = [facts.NodeUp(node) for node in self._sleeper.take_booted(now)]
        if came:
            return came
        turn = self._sleeper.step(now, self._scheduler.state)
        return [facts.NodeDown(node.id, drained=True) for node in turn.sleep]

    def _lend(self, now: float, lent: int) -> list[facts.Event]:
        """Lend that many machines from now on."""
        assert self.counts.loans is not None
        here = self._scheduler.state.cluster.index
        more = lent - sum(node.id in here for node in self._loans.nodes)
        if more < 0:
            return [facts.LoanRecalled(-more)]
        came = [node for node in self._loans.nodes if node.id not in here][:more]
        for node in came:
            self.counts.loans.count_lent(now, node)
        return [facts.NodeUp(node) for node in came]

    def _take_back(self, now: float) -> list[facts.Event]:
        """Machines that go back now: those of which least is in use, the last lent first."""
        assert self.counts.loans is not None
        state = self._scheduler.state
        if not state.recalled:
            return []
        here = [(i, node) for i, node in enumerate(state.cluster.nodes) if node.loaned]
        here.sort(key=lambda place: (place[1].gpus - state.free.on(place[0]), -place[0]))
        going = [node for _, node in here[: state.recalled]]
        for node in going:
            self.counts.loans.count_returned(now, node)
        return [facts.NodeDown(node.id, drained=True) for node in going]

    def _time_decision(self, decide: Callable[[View], Plan], view: View) -> Plan:
        began = perf_counter()
        plan = decide(view)
        self.counts.decide_s.append(perf_counter() - began)
        self._count(not plan.changes and not plan.rejected)
        return plan

    def _count(self, idle: bool) -> None:
        self.counts.decisions += 1
        self._idle = self._idle + 1 if idle and not self._attempt else 0
        if self._idle > IDLE_DECISIONS:
            raise stall_error(self._scheduler)


class Stalled(PlanError):  # noqa: N818 - as the others
    """Jobs wait, nothing runs and no event is to come."""


def stall_error(scheduler: Scheduler) -> Stalled:
    """The error that names the policy and the jobs that it leaves waiting."""
    waiting = [job.id for job in scheduler.state.table.jobs[:3]]
    return Stalled(
        f"policy {scheduler.policy.about.name!r} leaves {len(scheduler.state.table)} jobs waiting "
        f"forever, first {', '.join(waiting)}: nothing runs and no event is to come",
        hint="the policy must start a job that fits, or ask to be woken",
    )
