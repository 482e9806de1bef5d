"""Quotas that are lent while idle and taken back when their owners need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice, Tier
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.plan.rules import check_plan
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.pieces.wrap.tenants.lend import Lend, LendMemory
from weft.pieces.wrap.tenants.tree import read_tree
from weft.policies.fifo import Fifo

OWN = {"a": 4.0, "b": 4.0}


def state_of(cluster: str, *jobs: tuple[str, str, int, bool]) -> State:
    """Jobs by name, tenant and size; those that run hold the next devices of the first node."""
    state = State(parse_cluster(cluster))
    for number, (name, tenant, gpus, runs) in enumerate(jobs):
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(gpus), tenant=tenant)))
        if runs:
            mark = state.free.mark()
            on = Fifo(backfill=True).decide(view(state, 0.0)).changes.get(JobId(name))
            state.free.rollback(mark)
            if on is not None:
                state.fold(0.0, Decided(number + 1, {JobId(name): on}))
                state.fold(0.0, Started(JobId(name), 1))
    return state


def view(state: State, now: float, memory: object = None) -> View:
    return View(now, state.table, state.cluster, state.free, memory=memory)


def lend(**more: object) -> Lend:
    return Lend(Fifo(backfill=True), OWN, min_run_s=100.0, **more)  # type: ignore[arg-type]


def test_idle_quota_is_lent() -> None:
    state = state_of("1x8:a100", ("a1", "a", 4, True), ("a2", "a", 4, False))

    plan = lend().decide(view(state, 10.0))

    assert plan.changes[JobId("a2")] is not None


def test_its_owner_takes_it_back_and_it_is_said_from_whom_and_at_what_cost() -> None:
    jobs = (("a1", "a", 4, True), ("a2", "a", 4, True), ("b1", "b", 2, False))
    state = state_of("1x8:a100", *jobs)

    plan = lend().decide(view(state, 600.0))

    stopped = [job for job, to in plan.changes.items() if to is None]
    assert len(stopped) == 1
    assert plan.changes[JobId("b1")] is not None
    assert plan.blockers[stopped[0]] is Blocker.RECLAIMED
    assert plan.reasons[stopped[0]].startswith(
        "gave way: 4 a100 GPUs went back to tenant 'b', whose quota it was, after 10 min"
    )


def test_a_job_runs_for_its_least_time_before_it_gives_way() -> None:
    jobs = (("a1", "a", 4, True), ("a2", "a", 4, True), ("b1", "b", 2, False))
    state = state_of("1x8:a100", *jobs, ("a3", "a", 1, False))

    early = lend().decide(view(state, 40.0))

    assert early.changes == {}
    assert early.wake_at == 100.0
    assert early.blockers[JobId("a3")] is Blocker.GUARANTEE


def test_nobody_borrows_from_whom_waits_for_nothing_it_could_get() -> None:
    state = state_of("1x8:a100", ("b1", "b", 16, False), ("a1", "a", 8, False))

    plan = Lend(Fifo(backfill=True), {"a": 4.0, "b": 16.0}).decide(view(state, 0.0))

    assert plan.changes[JobId("a1")] is not None  # b's job fits on no cluster of this size


def test_a_group_comes_before_those_outside_it() -> None:
    own, parents = {"a": 2.0, "b": 2.0, "org": 6.0, "c": 2.0}, {"a": "org", "b": "org"}
    jobs = (("c1", "c", 2, True), ("c2", "c", 4, True), ("a1", "a", 2, True), ("a2", "a", 2, False))
    state = state_of("1x8:a100", *jobs)

    plan = Lend(Fifo(backfill=True), own, parents, min_run_s=0.0).decide(view(state, 10.0))

    assert plan.changes[JobId("a2")] is not None  # beyond its own, within its group's
    assert plan.changes[JobId("c1")] is None  # the one that loses least


def test_who_used_less_of_late_borrows_first_and_the_past_fades() -> None:
    state = state_of("1x4:a100", ("a1", "a", 4, True))
    rule = Lend(Fifo(backfill=True), {"x": 0.0}, half_life_s=1000.0)
    first = rule.decide(view(state, 0.0))
    busy = rule.decide(view(state, 1000.0, first.memory))
    waiting = state_of("1x4:a100", ("a2", "a", 4, False), ("b1", "b", 4, False))

    soon = rule.decide(view(waiting, 1000.0, busy.memory))
    late = rule.decide(view(waiting, 50_000.0, busy.memory))

    assert set(soon.changes) == {"b1"}
    assert set(late.changes) == {"a2"}


def test_who_used_least_for_its_weight_borrows_first() -> None:
    state = state_of("1x4:a100", ("b1", "b", 4, False), ("a1", "a", 4, False))
    used = LendMemory(used={"a": 3000.0, "b": 1000.0}, at=9e5)
    rule = Lend(Fifo(backfill=True), {"x": 0.0}, weights={"a": 4.0, "b": 1.0})

    plan = rule.decide(view(state, 9e5, used))

    assert set(plan.changes) == {"a1"}  # 750 GPU-seconds for its weight, "b" 1,000


def test_what_was_used_fades_with_the_time_since_it_was_looked_at() -> None:
    state = state_of("1x4:a100", ("a1", "a", 4, False), ("b1", "b", 4, False))
    used = LendMemory(used={"a": 4000.0, "b": 3000.0}, at=9e5)

    plan = Lend(Fifo(backfill=True), {"x": 0.0}, half_life_s=1e3).decide(view(state, 9e5, used))

    assert set(plan.changes) == {"b1"}


def test_a_part_of_a_gpu_is_counted_as_a_part() -> None:
    state = state_of("1x2:a100", ("b1", "b", 1, True), ("b2", "b", 1, True))
    half = Job(JobId("a1"), demand=Demand(1, share=0.5), tenant="a")
    state.fold(0.0, Submitted(half))

    plan = Lend(Fifo(), {"a": 0.5, "b": 1.0}, min_run_s=0.0).decide(view(state, 10.0))

    assert plan.changes[half.id] is not None  # within its own, which "b" had borrowed


def test_what_is_idle_goes_to_who_is_within_its_group_before_it_is_lent() -> None:
    own, parents = {"a": 2.0, "org": 4.0, "c": 2.0, "b": 0.0}, {"a": "org"}
    jobs = (("a1", "a", 2, True), ("b1", "b", 2, False), ("c1", "c", 2, False))
    state = state_of("1x6:a100", *jobs, ("a2", "a", 2, False))
    used = LendMemory(used={"a": 1e6}, at=10.0)

    plan = Lend(Fifo(backfill=True), own, parents).decide(view(state, 10.0, used))

    assert set(plan.changes) == {"c1", "a2"}  # "b" came first and has used less


def test_of_a_tenants_jobs_that_gives_way_which_loses_least() -> None:
    state = state_of("1x2:a100", ("old", "b", 1, True))
    state.fold(500.0, Submitted(Job(JobId("young"), demand=Demand(1), tenant="b")))
    state.fold(500.0, Decided(9, {JobId("young"): Allocation((state.free.slice(0, 1),))}))
    state.fold(500.0, Started(JobId("young"), 1))
    state.fold(600.0, Submitted(Job(JobId("a1"), demand=Demand(1), tenant="a")))

    plan = Lend(Fifo(), {"a": 1.0, "b": 1.0}, min_run_s=0.0).decide(view(state, 600.0))

    assert plan.changes[JobId("a1")] is not None
    assert [job for job, to in plan.changes.items() if to is None] == ["young"]


@dataclass(frozen=True, slots=True)
class Grows:
    """Gives the first job that runs all that is idle beside it."""

    about = About("grows", "of this test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        for job, on in view.held().items():
            view.free.give(on)
            return Plan({job: Allocation((view.free.slice(0, int(view.free.room())),))})
        return Plan()


def test_who_runs_within_its_own_may_grow_though_somebody_waits() -> None:
    state = State(parse_cluster("1x4:a100"))
    state.fold(0.0, Submitted(Job(JobId("a1"), demand=Demand(1, min=1, max=4), tenant="a")))
    state.fold(0.0, Decided(1, {JobId("a1"): Allocation((state.free.slice(0, 1),))}))
    state.fold(0.0, Started(JobId("a1"), 1))
    state.fold(0.0, Submitted(Job(JobId("b1"), demand=Demand(8), tenant="b")))

    plan = Lend(Grows(), {"a": 4.0}).decide(view(state, 10.0))

    assert {job: on.gpus for job, on in view(state, 10.0).after(plan).items()} == {"a1": 4}


def test_groups_in_themselves_and_quotas_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="in itself"):
        read_tree({}, {"a": "b", "b": "a"})
    with pytest.raises(InvalidConfig, match="not a number"):
        Lend(Fifo(), {"a": -1.0})
    with pytest.raises(InvalidConfig, match="half_life_s"):
        Lend(Fifo(), OWN, half_life_s=0.0)


JOBS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.booleans()), min_size=1, max_size=9
)
SHARES = {"a": 4.0, "b": 2.0, "c": 2.0}


def busy(jobs: list[tuple[str, int, bool]]) -> State:
    named = [(f"j{i}", tenant, gpus, runs) for i, (tenant, gpus, runs) in enumerate(jobs)]
    return state_of("2x4:a100", *named)


@examples(80)
@given(JOBS, st.sampled_from(["fifo", "las", "tiresias"]))
def test_under_any_policy_plans_can_be_carried_out_and_the_ledger_is_left_as_it_was(
    jobs: list[tuple[str, int, bool]], policy: str
) -> None:
    state = busy(jobs)
    rule = Lend(build("policy", policy), SHARES, min_run_s=0.0)
    before = state.free.idle_by_kind()

    plan = rule.decide(view(state, 1000.0))

    assert state.free.idle_by_kind() == before
    check_plan(view(state, 1000.0), plan, rule.about)


@examples(80)
@given(JOBS)
def test_within_its_own_a_job_of_one_gpu_waits_only_while_nobody_is_beyond_theirs(
    jobs: list[tuple[str, int, bool]],
) -> None:
    state = busy(jobs)
    seen = view(state, 1000.0)

    plan = Lend(Fifo(backfill=True), SHARES, min_run_s=0.0).decide(seen)

    after = seen.after(plan)
    held = dict.fromkeys("abc", 0)
    for job, on in after.items():
        held[seen.job(seen.table.row(job)).tenant] += on.gpus
    entitled = [
        job
        for job in seen.table.jobs
        if job.demand.gpus == 1
        and job.id not in after
        and job.id not in plan.changes
        and held[job.tenant] + 1 <= SHARES[job.tenant]
    ]
    full = sum(held.values()) == 8
    nobody_beyond = all(held[who] <= SHARES[who] for who in held)
    assert not entitled or (full and nobody_beyond)


class Counting(Fifo):
    """Counts how often it is asked."""

    asked: ClassVar[int] = 0

    def decide(self, view: View) -> Plan:
        type(self).asked += 1
        return super().decide(view)


def test_tenants_that_can_get_nothing_are_asked_about_together() -> None:
    tenants = [f"t{number}" for number in range(40)]
    runs = [(f"{who}-runs", who, 1, True) for who in tenants]
    waits = [(f"{who}-waits", who, 1, False) for who in tenants]
    state = state_of("5x8:a100", *runs, *waits)
    Counting.asked = 0

    plan = Lend(Counting(backfill=True), dict.fromkeys(tenants, 1.0)).decide(view(state, 10.0))

    assert not plan.changes
    assert Counting.asked <= 3


class Remembering:
    """Remembers how often it was asked."""

    about = About("remembering", "test", starves="everybody")

    def __init__(self) -> None:
        self.seen: list[object] = []

    def decide(self, view: View) -> Plan:
        """Nothing."""
        self.seen.append(view.memory)
        return Plan(memory=len(self.seen))


def test_the_policy_inside_is_given_back_what_it_remembered_first() -> None:
    state, inner = state_of("1x8:a100", ("a1", "a", 4, False)), Remembering()

    plan = Lend(inner, OWN).decide(view(state, 0.0))
    before = len(inner.seen)
    Lend(inner, OWN).decide(view(state, 10.0, plan.memory))

    assert inner.seen[before] == 1


def test_what_is_used_grows_with_time_alone() -> None:
    state = state_of("1x8:a100", ("a1", "a", 4, True))
    kept = LendMemory(None, {}, {"a": 100.0}, 10.0, {})

    memory = lend().decide(view(state, 10.0, kept)).memory

    assert isinstance(memory, LendMemory)
    assert memory.used == {"a": 100.0}


@dataclass(frozen=True)
class NewestFirst:
    """Stops the oldest for the newest."""

    about: ClassVar[About] = About("newest", "a test")

    def decide(self, view: View) -> Plan:
        if not view.waiting().any():
            return Plan()
        oldest, on = next(iter(view.held().items()))
        newest = view.job(len(view.table) - 1)
        gpus = sum(1 << gpu for gpu in on.slices[0].gpus[: newest.demand.gpus])
        return Plan({oldest: None, newest.id: Allocation((view.free.slice_of(0, gpus),))})


@pytest.mark.parametrize(("size", "swapped"), [(4, False), (2, True)])
def test_a_job_on_loan_is_not_stopped_for_a_later_one_like_it(size: int, swapped: bool) -> None:
    jobs = [("a1", "a", 4, True), ("a2", "a", 4, True), ("a3", "a", size, False)]
    policy = Lend(NewestFirst(), OWN, min_run_s=100.0)

    changes = policy.decide(view(state_of("1x8:a100", *jobs), 500.0)).changes

    assert bool(changes) is swapped


class OnEmpty:
    """Starts jobs of one device where not even an opportunistic job is."""

    about = About("on empty", "this test")

    def decide(self, view: View) -> Plan:
        wait = [view.job(row) for row in np.flatnonzero(view.waiting()).tolist()]
        free = [gpu for gpu in range(2) if view.free.empty_mask(0) >> gpu & 1]
        at = {job.id: view.free.slice_of(0, 1 << gpu) for job, gpu in zip(wait, free, strict=False)}
        return Plan({job: Allocation((part,)) for job, part in at.items()})


def test_a_borrower_in_the_gaps_leaves_for_an_owner_that_shares_nothing() -> None:
    """An opportunistic job takes nothing that the ledger counts, so it always fits there."""
    state = state_of("1x2:a100", ("firm", "b", 1, True))
    state.fold(0.0, Submitted(Job(JobId("loose"), tenant="a", tier=Tier.OPPORTUNISTIC)))
    gap = Allocation((Slice(NodeId("a100-0"), (1,)),), Sharing(tier=Tier.OPPORTUNISTIC))
    state.fold(0.0, Decided(2, {JobId("loose"): gap}))
    state.fold(0.0, Started(JobId("loose"), 1))
    state.fold(0.0, Submitted(Job(JobId("alone"), tenant="b", shareable=False)))
    before = view(state, 600.0)

    plan = Lend(OnEmpty(), {"b": 2.0}, min_run_s=0.0).decide(before)

    held = before.after(plan)
    assert [*devices_of(held[JobId("alone")])] == [("a100-0", 1)]
    assert JobId("loose") not in held
