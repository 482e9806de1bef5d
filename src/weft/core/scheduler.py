"""The loop that both worlds share: fold events, decide if due, check, turn into actions.

No clock, no I/O, no threads: a driver calls `step` with the time and what happened, and carries
out what comes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.core.about import Controls
from weft.core.actions import Action, Wake
from weft.core.cluster import Cluster
from weft.core.columns import pack_floats, unpack_floats
from weft.core.errors import PlanError
from weft.core.events import (
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    Noticed,
    Reported,
    Saved,
    Started,
    Stopped,
    Woken,
)
from weft.core.free import EPS
from weft.core.knowledge import Knowledge
from weft.core.model import Allocation, Discipline, Job, JobId, Tier
from weft.core.plan import Plan
from weft.core.policy import Policy
from weft.core.saved_state import SavedScheduler, load_state, save_state
from weft.core.state import State
from weft.core.table import Column, Floats
from weft.core.view import View

SHARED = Controls.SHARE | Controls.TIER
Journal = Callable[[float, Event], None]
ENDED_KEPT = 2_000  # jobs that left, for those who ask what was lately
QUIET = (Started, Stopped, Reported, Saved, Noticed)  # after these there is nothing to decide


class Scheduler:
    """One policy, one state, and the rules that keep a plan honest."""

    def __init__(
        self,
        policy: Policy,
        cluster: Cluster,
        *,
        knowledge: Knowledge | None = None,
        seed: int = 0,
        journal: Journal | None = None,
    ) -> None:
        self.policy = policy
        self.knowledge = knowledge or Knowledge()
        self.state = State(cluster)
        self.memory: object = None
        self.timed: Callable[[Callable[[View], Plan], View], Plan] | None = None
        self._about = policy.about
        self._seed = seed
        self._journal = journal
        self._history = _Growing()
        self._learned = 0
        self._asked: float | None = None

    def step(self, now: float, events: Sequence[Event]) -> list[Action]:
        """Take in what happened at `now`; return what should happen next."""
        actions, due = self.take_in(now, events)
        if due:
            actions += self.decide(now)
        return actions + self.asks()

    def take_in(self, now: float, events: Sequence[Event]) -> tuple[list[Action], bool]:
        """The first half of a step: what follows from the facts alone, and whether to decide.

        A driver that does not `decide` at once must `put_off`.
        """
        actions: list[Action] = []
        news = False
        round_of = now
        for event in events:
            if isinstance(event, Woken):
                if not self._expected(now):
                    self._asked = None  # too early, or for a wish since replaced: ask again
                    continue
                # Real clocks wake late: the round that begins is the one that was asked for.
                round_of = self.state.wake_at if self.state.wake_at is not None else now
            if self._journal is not None:
                self._journal(now, event)
            actions += self.recall(now, event)
            news = news or not isinstance(event, QUIET)
        return actions, news and self._due(round_of)

    def put_off(self, until: float) -> None:
        """Decide at `until` or before, when it is asked for with Woken."""
        wake = self.state.wake_at
        self.state.wake_at = until if wake is None else min(wake, until)

    def asks(self) -> list[Action]:
        """The last part of a step: a Wake if another one than before is wanted."""
        if self.state.wake_at == self._asked:
            return []
        self._asked = self.state.wake_at
        return [Wake(self._asked)]

    def recall(self, now: float, event: Event) -> list[Action]:
        """Take in one fact, deciding nothing: how a log brings a scheduler up to date."""
        actions = self.state.fold(now, event)
        if isinstance(event, (Finished, Failed, Cancelled)):
            self._learn()
        elif isinstance(event, Reported):
            self._observe(event)
        return actions

    def save(self) -> SavedScheduler:
        """All that a log would bring back, as it is now; the policy's memory is not part."""
        history = pack_floats(self._history.values)
        return SavedScheduler(save_state(self.state), self.knowledge.save(), history)

    def load(self, saved: SavedScheduler, jobs: Mapping[JobId, Job]) -> None:
        """Take up where `save` was called, with active `jobs` by name; nothing was taken in yet."""
        self.state = load_state(saved.state, jobs)
        self.knowledge.load(saved.knowledge)
        self._history = _Growing(unpack_floats(saved.history))
        self._learned = len(self.state.ended)

    def use(self, policy: Policy) -> None:
        """Decide by another policy from now on; it starts without memory."""
        self.policy = policy
        self.memory = None
        self._about = policy.about

    # ---- when

    def _expected(self, now: float) -> bool:
        return self.state.wake_at is not None and now >= self.state.wake_at

    def _due(self, now: float) -> bool:
        every = self._about.every
        if every is None:
            return True
        if not len(self.state.table):
            self.state.wake_at = None
            return False
        rounds = now / every
        if abs(rounds - round(rounds)) <= max(EPS, abs(rounds) * 1e-15):
            return True
        self.state.wake_at = math.ceil(rounds) * every
        return False

    # ---- what

    def decide(self, now: float) -> list[Action]:
        """The second half of a step: ask the policy, check its plan, turn it into actions."""
        state = self.state
        view = View(
            now,
            state.table,
            state.cluster,
            state.free,
            self.knowledge,
            self.memory,
            self._history.values,
            self._seed,
            state.decisions,
        )
        mark = state.free.mark()
        decide = self.policy.decide
        try:
            plan = decide(view) if self.timed is None else self.timed(decide, view)
        finally:
            state.free.rollback(mark)
        self._check(view, plan)
        self.memory = plan.memory
        decided = Decided(
            state.decisions + 1,
            plan.changes,
            plan.rejected,
            self._next_wake(now, plan),
            plan.reasons,
        )
        if self._journal is not None:
            self._journal(now, decided)
        actions = state.fold(now, decided)
        state.free.commit()
        return actions

    def _next_wake(self, now: float, plan: Plan) -> float | None:
        wake = plan.wake_at
        if wake is not None and not wake > now:
            raise self._wrong(f"asked at {now} to be woken at {wake}")
        every = self._about.every
        if every is None:
            return wake
        following = (math.floor(now / every + EPS) + 1) * every
        return following if wake is None else min(wake, following)

    def _check(self, view: View, plan: Plan) -> None:
        """Raise PlanError unless every change can be carried out as the policy declared."""
        mark = view.free.mark()
        try:
            self._check_all(view, plan)
        finally:
            view.free.rollback(mark)

    def _check_all(self, view: View, plan: Plan) -> None:
        free, table = view.free, view.table
        for job in (*plan.changes, *plan.rejected):
            if job not in table:
                raise self._wrong(f"names {job!r}, which is not an active job")
        if both := plan.changes.keys() & plan.rejected.keys():
            raise self._wrong(f"both changes and rejects {', '.join(map(repr, sorted(both)))}")
        for job in plan.changes:
            if (was := table.allocations[table.row(job)]) is not None:
                free.give(was)
        for job, to in plan.changes.items():
            if to is not None:
                self._check_one(view, job, to)
                try:
                    free.take(to)
                except PlanError as error:
                    raise self._wrong(f"gives {job!r} what is not there: {error.what}") from error

    def _check_one(self, view: View, job: JobId, to: Allocation) -> None:
        wish = view.job(view.table.row(job))
        demand = wish.demand
        if not wish.shareable and to.sharing.share < demand.share:
            raise self._wrong(f"lets {job!r} share devices, which its submitter ruled out")
        controls, sharing = self._about.controls, to.sharing
        low, high = demand.gpus, demand.gpus
        if Controls.COUNT in controls:
            low, high = demand.min, demand.max
        if not low <= to.gpus <= high:
            raise self._wrong(f"gives {job!r} {to.gpus} GPUs; it takes {low} to {high}")
        kinds = {
            view.cluster.nodes[view.cluster.index[s.node]].kind
            for s in to.slices
            if s.node in view.cluster.index
        }
        if len(kinds) > 1 or (demand.kinds and not kinds <= set(demand.kinds)):
            raise self._wrong(f"puts {job!r} on {sorted(kinds)}; it takes {demand.kinds or 'one'}")
        if sharing.share != demand.share and Controls.SHARE not in controls:
            raise self._wrong(f"sets the share of {job!r} without declaring Controls.SHARE")
        if sharing.tier is not Tier.GUARANTEED and Controls.TIER not in controls:
            raise self._wrong(f"sets the tier of {job!r} without declaring Controls.TIER")
        if sharing.discipline is not Discipline.NONE and not controls & SHARED:
            raise self._wrong(f"sets a discipline for {job!r} without declaring Controls.SHARE")
        if sharing.phase and Controls.PHASE not in controls:
            raise self._wrong(f"sets the phase of {job!r} without declaring Controls.PHASE")
        if to.batch is not None and Controls.BATCH not in controls:
            raise self._wrong(f"sets the batch of {job!r} without declaring Controls.BATCH")

    def _wrong(self, what: str) -> PlanError:
        return PlanError(
            f"policy {self._about.name!r}, decision {self.state.decisions}: {what}",
            hint="this is a bug in the policy; weft.testing.check_policy finds such plans",
        )

    def _observe(self, event: Reported) -> None:
        table = self.state.table
        if event.job not in table:
            return
        row = table.row(event.job)
        on = table.allocations[row]
        if on is None or table.get(row, Column.ATTEMPT) != event.attempt:
            return
        self.knowledge.observe(table.jobs[row], self.state.cluster.kind_of(on), event.report)

    def _learn(self) -> None:
        ended = self.state.ended
        for one in ended[self._learned :]:
            self.knowledge.forget(one.job)
            if one.finished:
                self._history.append(one.service)
                self.knowledge.learn(one.job, one.ran)
        if len(ended) > 2 * ENDED_KEPT:
            del ended[:-ENDED_KEPT]
        self._learned = len(ended)


class _Growing:
    """A float column that grows at the end."""

    def __init__(self, values: Floats | None = None) -> None:
        self._cells: Floats = np.zeros(64) if values is None or not len(values) else values.copy()
        self._size = 0 if values is None else len(values)

    @property
    def values(self) -> Floats:
        return self._cells[: self._size]

    def append(self, value: float) -> None:
        if self._size == len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros(self._size)])
        self._cells[self._size] = value
        self._size += 1
