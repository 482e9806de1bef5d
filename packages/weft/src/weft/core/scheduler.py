"""The loop that both worlds share: fold events, decide if due, check, turn into actions.

No clock, no I/O, no threads: a driver calls `step` with the time and what happened, and carries
out what comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from weft.core.asleep.align import decide_beside_sleepers
from weft.core.asleep.choose import Stops
from weft.core.asleep.rules import StopRules
from weft.core.codec.columns import pack_floats, unpack_floats
from weft.core.events import event as facts
from weft.core.events.actions import Action, Reject, Wake
from weft.core.events.recent_events import REMEMBERED, RecentEvents
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster
from weft.core.model.job import Job, JobId
from weft.core.plan.about import About
from weft.core.plan.kept_back import PAUSE_S, could_start
from weft.core.plan.plan import NOTHING, Plan
from weft.core.plan.policy import FastStart, Policy, fast_start_of, may_rest
from weft.core.plan.reasons import plain_facts
from weft.core.plan.rules import check_allocation, check_plan
from weft.core.plan.view import View
from weft.core.spec.part_spec import PartSpec
from weft.core.state.capacity import EPS
from weft.core.state.cells import TableColumns
from weft.core.state.saved_state import SavedScheduler, load_state, save_state
from weft.core.state.state import State
from weft.core.state.table import Growing
from weft.core.stops import Rung

Journal = Callable[[float, facts.Event], None]
AT_START_S = 60.0  # an attempt that dies sooner may have died of where it was
ENDED_KEPT = 2_000  # jobs that left, for those who ask what was lately
QUIET = {
    *(facts.Started, facts.Stopped, facts.Reported, facts.Resizable, facts.Resized),
    *(
        facts.Saved,
        facts.Noticed,
        facts.Measured,
        facts.DeadlineMissed,
        facts.Slept,
        facts.SleepFailed,
        facts.Awoke,
        facts.StartedAhead,
        facts.Refitted,
        facts.Foretold,
    ),
}  # after these there is nothing to decide


class Scheduler:
    """One policy, one state, and the rules that keep a plan honest.

    With `skips_views` a policy that rests, or starts a lone newcomer fast, is not asked: no view is
    made, and the decision is in no journal. Simulations without a journal do so.
    """

    def __init__(
        self,
        policy: Policy,
        cluster: Cluster,
        *,
        knowledge: Knowledge | None = None,
        seed: int = 0,
        journal: Journal | None = None,
        weights: Mapping[str, float] | None = None,
        remembered: int = REMEMBERED,
        stops: StopRules | None = None,
        early_rounds: bool = False,
        skips_views: bool = False,
    ) -> None:
        assert not (skips_views and journal is not None), "a journal has every decision"
        self.use(policy)
        self.knowledge = knowledge or Knowledge()
        self.state = State(cluster)
        self.state.history = RecentEvents(remembered)
        self.timed: Callable[[Callable[[View], Plan], View], Plan] | None = None
        self.rested: Callable[[bool], None] | None = None
        self._seed, self._weights = seed, dict(weights or {})
        self._journal, self._stops = journal, Stops(stops)
        self._history = Growing()
        self._learned = 0
        self._asked: float | None = None
        self._early_rounds, self._decided_at = early_rounds, -math.inf
        self._skips_views = skips_views

    def step(self, now: float, events: Sequence[facts.Event]) -> list[Action]:
        """Take in what happened at `now`; return what should happen next."""
        actions, due = self.apply_events(now, events)
        if due:
            actions += self.decide(now)
        return actions if self.state.wake_at == self._asked else actions + self.wake_request()

    def apply_events(self, now: float, events: Sequence[facts.Event]) -> tuple[list[Action], bool]:
        """The first half of a step: what follows from the facts alone, and whether to decide.

        A driver that does not `decide` at once must `put_off`.
        """
        actions: list[Action] = []
        news = False
        round_of = now
        for event in events:
            if isinstance(event, facts.Woken):
                if not self._expected(now):
                    self._asked = None  # too early, or for a wish since replaced: ask again
                    continue
                # Real clocks wake late: the round that begins is the one that was asked for.
                round_of = self.state.wake_at if self.state.wake_at is not None else now
            if self._journal is not None:
                self._journal(now, event)
            actions += self.apply_event(now, event)
            if self.state.dependencies.in_vain:
                actions += self._cancel_in_vain(now)
            news = news or type(event) not in QUIET
        return actions, news and (self._about.every is None or self._due(round_of))

    def put_off(self, until: float) -> None:
        """Decide at `until` or before, when it is asked for with Woken."""
        wake = self.state.wake_at
        self.state.wake_at = until if wake is None else min(wake, until)

    def wake_request(self) -> list[Action]:
        """The last part of a step: a Wake if another one than before is wanted."""
        if self.state.wake_at == self._asked:
            return []
        self._asked = self.state.wake_at
        return [Wake(self._asked)]

    def apply_event(self, now: float, event: facts.Event) -> list[Action]:
        """Take in one fact, deciding nothing: how a log brings a scheduler up to date."""
        if isinstance(event, facts.Reported):
            actions = self.state.fold(now, event)
            self._observe(now, event)
            return actions
        if isinstance(event, (facts.Failed, facts.StartFailed)):
            self._observe_failed(now, event)
        actions, kind = self.state.fold(now, event), type(event)
        if kind is facts.Started or kind is facts.Stopped:
            return actions
        if kind is facts.Finished or kind is facts.Failed or kind is facts.Cancelled:
            self._learn()
        elif isinstance(event, facts.Submitted):
            self.knowledge.note_submitted(event.job, now)
        elif isinstance(event, facts.Observed):
            self._observe_sharing(event)
        elif isinstance(event, facts.Refitted):
            self.knowledge.adopt_model(event.model)
        elif isinstance(event, (facts.Resizable, facts.Resized, facts.ResizeFailed)):
            self._observe_change(event)
        return actions

    def save(self) -> SavedScheduler:
        """All that a log would bring back, as it is now; the policy's memory is not part."""
        history = pack_floats(self._history.values)
        return SavedScheduler(save_state(self.state), self.knowledge.save(), history)

    def load(
        self, saved: SavedScheduler, jobs: Mapping[JobId, Job], *, lenient: bool = False
    ) -> None:
        """Take up where `save` was called, with active `jobs` by name; nothing was taken in yet.

        If `lenient`, parts of the knowledge that cannot be taken up start over.
        """
        history = self.state.history
        self.state = load_state(saved.state, jobs)
        self.state.history = history
        if "predictor" in self.knowledge.load(saved.knowledge, lenient=lenient):
            for ended in self.state.ended:  # by another predictor: what is kept can be learnt again
                self.knowledge.learn(ended)
        self._history = Growing(unpack_floats(saved.history))
        self._learned = len(self.state.ended)

    def pickle_state(self) -> tuple[Any, ...]:
        """Everything for a copy in another process: to be pickled at once, and only there."""
        return (self.state, self.knowledge, self._history, self._learned)

    def take_over(self, pickled: tuple[Any, ...]) -> None:
        """Go on with the state of the scheduler that was pickled."""
        self.state, self.knowledge, self._history, self._learned = pickled

    def use(self, policy: Policy) -> None:
        """Decide by another policy from now on; it starts without memory."""
        self.policy, self._about = policy, policy.about
        self.memory: object = None
        self._rests, self._fast_start = may_rest(policy), fast_start_of(policy)

    # ---- when

    def _expected(self, now: float) -> bool:
        return self.state.wake_at is not None and now >= self.state.wake_at

    def _due(self, now: float) -> bool:
        every = self._about.every
        if every is None:
            return True
        if len(self.state.table) == len(self.state.table.suspended):
            self.state.wake_at = None
            return False
        rounds = now / every
        if abs(rounds - round(rounds)) <= max(EPS, abs(rounds) * 1e-15):
            return True
        early = self._find_early(now)
        if early <= now:
            return True
        self.state.wake_at = min(math.ceil(rounds) * every, early)
        return False

    def _find_early(self, now: float) -> float:
        """The time at which this round may end early.

        A simulation keeps to the published rounds.
        """
        state = self.state
        if not self._early_rounds or not could_start(state.table, state.free):
            return math.inf
        return max(now, self._decided_at + PAUSE_S)

    # ---- what

    def decide(self, now: float) -> list[Action]:
        """The second half of a step: ask the policy, check its plan, turn it into actions."""
        if self._skips_views and self._rests:
            plan = try_fast_start(self.state, now, self._fast_start, self._about)
            if plan is not None:
                return self._adopt_without_view(now, plan)
        return self.adopt(now, self.propose(now))

    def _adopt_without_view(self, now: float, plan: Plan) -> list[Action]:
        """Count a decision that stops no job, made without a view; memory stays as it is."""
        state, self._decided_at = self.state, now
        state.decisions += 1
        state.wake_at = plan.wake_at
        actions = state.promise_all(plan.changes) if plan.changes else []
        state.free.commit()
        if self.rested is not None:
            self.rested(not actions)
        return actions

    def propose(self, now: float, policy: Policy | None = None) -> Plan:
        """The plan of the policy, or of another one without memory: checked, not carried out."""
        view, asked, about = self.view(now), self.policy, self._about
        if policy is not None:
            view, asked, about = replace(view, memory=None), policy, policy.about
        mark = view.free.mark()
        try:
            decide = partial(decide_beside_sleepers, asked) if view.asleep else asked.decide
            plan = decide(view) if self.timed is None else self.timed(decide, view)
        finally:
            tried = view.free.rollback(mark)
        check_plan(view, plan, about, tried)
        return plan

    def view(self, now: float) -> View:
        """The view of a policy at this moment."""
        state = self.state
        return View(
            now,
            state.table,
            state.cluster,
            state.free,
            self.knowledge,
            self.memory,
            self._history.values,
            self._seed,
            state.decisions,
            self._weights,
            state.recalled,
            asleep=state.asleep.sleepers,
            savers=self._stops.savers(state),
        )

    def adopt(self, now: float, plan: Plan, by: PartSpec | None = None) -> list[Action]:
        """Make a checked plan a fact, and return what follows.

        `by` names what made it where that was not the policy, whose memory then stays as it is.
        """
        state = self.state
        self._decided_at = now
        if by is None:
            self.memory = plan.memory
            idle = plan.does_nothing and not state.find_reordered(plan.memory_order)
            if self._journal is None and idle and not state.asleep:
                state.decisions, state.wake_at = state.decisions + 1, self._next_wake(now, plan)
                state.free.commit()
                return []
        decided = facts.Decided(
            state.decisions + 1,
            plan.changes,
            plan.rejected,
            self._next_wake(now, plan),
            plan.reasons,
            by,
            plan.blockers,
            live := state.live.live_jobs(plan.changes, state.table, plan.restarts),
            self._stops.choose(state, self.knowledge, now, plan, live),
            tuple(sorted(plan.promised)),
            {j: plain_facts(values) for j, values in plan.facts.items() if plan.reasons.get(j)},
            state.find_reordered(plan.memory_order),
        )
        if self._journal is not None:
            self._journal(now, decided)
        actions = state.fold(now, decided)
        state.free.commit()
        return actions + self._cancel_in_vain(now) if state.dependencies.in_vain else actions

    def choose_stop(self, now: float, job: JobId) -> Rung:
        """The rung by which a job that a person suspends gives its devices back."""
        return self._stops.choose_one(self.state, self.knowledge, now, job)

    def _cancel_in_vain(self, now: float) -> list[Action]:
        """Cancel jobs that wait for what can no longer be, and those that wait for them."""
        actions: list[Action] = []
        while in_vain := self.state.dependencies.in_vain:
            job, why = next(iter(in_vain.items()))
            cancelled = facts.Cancelled(job, why)
            if self._journal is not None:
                self._journal(now, cancelled)
            actions += [*self.apply_event(now, cancelled), Reject(job, why)]
        return actions

    def _next_wake(self, now: float, plan: Plan) -> float | None:
        wake, every = plan.wake_at, self._about.every
        if every is None:
            return wake
        following = (math.floor(now / every + EPS) + 1) * every
        return following if wake is None else min(wake, following)

    def _observe(self, now: float, event: facts.Reported) -> None:
        table = self.state.table
        row = table.find(event.job)
        if row is None:
            return
        on = table.allocations[row]
        if on is None or table.get(row, TableColumns.ATTEMPT) != event.attempt:
            return
        if event.job in self.state.live.under_way:
            return  # it trains where it was, while it is promised something else
        began = table.get(row, TableColumns.RAN_SINCE)
        ran = table.get(row, TableColumns.RAN_BASE) + table.get(row, TableColumns.RAN_RATE) * (
            now - began
        )
        attempt = AttemptSource(event.attempt, on, began, now, ran)
        kind = self.state.cluster.kind_of(on)
        self.knowledge.observe(table.jobs[row], kind, event.report, attempt)

    def _observe_sharing(self, event: facts.Observed) -> None:
        """Learn what a job does to a device, and its neighbours to it."""
        table, knowledge = self.state.table, self.knowledge
        row = table.find(event.job)
        on = None if row is None else table.allocations[row]
        if row is None or on is None:
            return
        job, kind = table.jobs[row], self.state.cluster.kind_of(on)
        programs = knowledge.programs
        if event.peak_gb is not None and programs is not None:
            programs.observe_peak(job, kind, event.peak_gb)
        if event.pace is None:
            return
        if knowledge.colocation is not None:
            knowledge.colocation.observe(job, kind, Report(pace=event.pace))
        rows = [table.find(other) for other in event.beside]
        if programs is not None and None not in rows:
            beside = [table.jobs[at] for at in rows if at is not None]
            programs.observe_pace(job, kind, event.pace, beside, event.broken_s)

    def _observe_failed(self, now: float, event: facts.Failed | facts.StartFailed) -> None:
        table, row = self.state.table, self.state.table.find(event.job)
        on = None if row is None else table.allocations[row]
        if row is None or on is None:
            return
        job, brief = table.jobs[row], True
        if isinstance(event, facts.Failed):
            self.knowledge.note_failed(job, self.state.cluster.kind_of(on), on, event)
            brief = (
                not event.out_of_memory
                and now - table.get(row, TableColumns.RAN_SINCE) < AT_START_S
            )
        if brief:
            self.knowledge.note_failed_start(job, on)

    def _observe_change(self, event: facts.Resizable | facts.Resized | facts.ResizeFailed) -> None:
        """Learn if a job can change its devices as it trains, and what that took."""
        table, costs = self.state.table, self.knowledge.costs
        row = table.find(event.job)
        if row is None or costs is None:
            return
        job, on = table.jobs[row], table.allocations[row]
        able = self.state.live.able.get(event.job)
        if isinstance(event, facts.Resizable):
            costs.observe_able(job, event.state_gb)
        elif isinstance(event, facts.ResizeFailed):
            costs.observe_unable(job)
        elif on is not None and able is not None and able.attempt == event.attempt:
            sent_gb = able.state_gb if event.prepare_s else 0.0
            kind = self.state.cluster.kind_of(on)
            costs.observe_pause(job, kind, event.pause_s, sent_gb, event.prepare_s)

    def _learn(self) -> None:
        ended = self.state.ended
        for end in ended[self._learned :]:
            self.knowledge.forget(end.job)
            if end.finished:
                self._history.append(end.service)
            self.knowledge.learn(end)
        if len(ended) > 2 * ENDED_KEPT:
            del ended[:-ENDED_KEPT]
        self._learned = len(ended)


def try_fast_start(
    state: State, now: float, fast_start: FastStart | None, about: About
) -> Plan | None:
    """The plan of a policy that rests for at most one waiting job; None where it is asked."""
    table, free = state.table, state.free
    waiting = table.waiting
    if not waiting:
        return NOTHING
    if fast_start is None or waiting > 1 or len(state.cluster.kinds) > 1:
        return None
    if table.conditional or table.suspended or state.asleep:
        return None
    job = table.jobs[table.first_waiting()]
    if job.demand.gpus * job.demand.share > free.room():
        return None
    plan = fast_start(job, free, now)
    if plan is not None and (on := plan.changes[job.id]) is not None:
        check_allocation(job, on, state.cluster, about, state.decisions)
    return plan
