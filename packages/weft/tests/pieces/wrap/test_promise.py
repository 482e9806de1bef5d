"""Promised deadlines around any policy: who is admitted, who must run now, and who gives way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.profile import Profile
from weft.core.model.execution import read_execution
from weft.core.model.job import Allocation, Demand, Discipline, Job, JobId, Or, Sharing, Slice, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.state import State
from weft.perf.linear import LinearBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.pieces.size.promised import PromiseMemory
from weft.pieces.wrap.promise import KeepPromises
from weft.pieces.wrap.tenants.quota import NarrowedView, Quota
from weft.policies.fifo import Fifo
from weft.policies.las import Las
from weft.stack.wrapper import WrapperMemory
from weft.testing.build import FixedPredictor, cluster_of, view_of
from weft_papers.antman.policy import Antman
from weft_papers.elasticflow.policy import ElasticFlow

DUE, NOW = JobId("due"), 100.0


def due_job(seconds: float, by: float, demand: Demand, firm: Or = Or.DECLINE) -> Job:
    hints = {"duration_s": seconds}
    return Job(DUE, demand=demand, deadline=by, deadline_or=firm, hints=hints)


def beside(*running: tuple[str, int, float], due: Job, others: Sequence[Job] = ()) -> View:
    """Jobs of `(name, gpus, priority)` that run on one node of 8, and those that have just come."""
    state = State(cluster_of(8))
    taken = 0
    for number, (name, gpus, priority) in enumerate(running):
        job = Job(JobId(name), demand=Demand(gpus), priority=priority)
        on = Allocation((state.free.slice_of(0, ((1 << gpus) - 1) << taken),))
        taken += gpus
        began = 10.0 * number  # those named first have run for longest
        state.fold(began, Submitted(job))
        state.fold(began, Decided(number + 1, {job.id: on}))
        state.fold(began, Started(job.id, 1))
    for job in (due, *others):
        state.fold(NOW, Submitted(job))
    left = [1e4] * len(running) + [job.hints["duration_s"] for job in (due, *others)]
    knowledge = Knowledge(FixedPredictor(left), LinearBeliefs())
    return View(NOW, state.table, state.cluster, state.free, knowledge)


def gpus_after(view: View, plan: Plan) -> dict[str, int]:
    return {job: on.gpus for job, on in view.after(plan).items()}


def test_who_must_run_now_takes_the_place_of_the_lowest_priority() -> None:
    view = beside(("low", 4, 0.0), ("high", 4, 1.0), due=due_job(940.0, 1100.0, Demand(4)))

    plan = KeepPromises(Fifo(), restarts=0).decide(view)

    assert gpus_after(view, plan) == {"high": 4, "due": 4}


def test_of_equals_those_give_way_that_have_done_least() -> None:
    view = beside(("old", 4, 0.0), ("young", 4, 0.0), due=due_job(940.0, 1100.0, Demand(4)))

    plan = KeepPromises(Fifo(), restarts=0).decide(view)

    assert gpus_after(view, plan) == {"old": 4, "due": 4}


def test_nobody_gives_way_whose_place_does_not_help() -> None:
    # The youngest would go first, but four GPUs are to be had only where "wide" runs.
    running = (("old", 2, 1.0), ("wide", 4, 0.0), ("small", 2, 0.0))
    view = beside(*running, due=due_job(940.0, 1100.0, Demand(4)))

    plan = KeepPromises(Fifo(), restarts=0).decide(view)

    assert gpus_after(view, plan) == {"old": 2, "small": 2, "due": 4}


def test_who_can_begin_later_is_left_to_the_policy_until_then() -> None:
    # First in, first out: "low", stopped for "soon", stands before "due" and does not fit.
    soon = replace(due_job(540.0, 700.0, Demand(4)), id=JobId("soon"))
    view = beside(("low", 8, 0.0), due=due_job(940.0, 3000.0, Demand(4)), others=[soon])

    plan = KeepPromises(Fifo(), restarts=0).decide(view)

    assert gpus_after(view, plan) == {"soon": 4}
    assert not plan.rejected
    assert isinstance(plan.memory, PromiseMemory)
    assert plan.memory.promises[DUE].schedule.met
    assert plan.wake_at is not None
    assert view.now < plan.wake_at <= 3000.0 - 940.0


def test_promises_are_looked_at_no_later_than_they_or_the_policy_inside_ask_for() -> None:
    looks = []
    for quantum in (5.0, 9000.0):
        soon = replace(due_job(540.0, 700.0, Demand(4)), id=JobId("soon"))
        view = beside(("low", 8, 0.0), due=due_job(940.0, 3000.0, Demand(6)), others=[soon])
        looks.append(KeepPromises(Las(quantum=quantum), restarts=0).decide(view).wake_at)

    first, second = looks
    assert first == NOW + 5.0
    assert second is not None
    assert NOW < second <= 3000.0 - 940.0


def test_who_runs_as_promised_keeps_what_it_holds() -> None:
    keeps = KeepPromises(Fifo(), restarts=0)
    view = view_of(8, due_job(940.0, 1000.0, Demand(4)))
    first = keeps.decide(view)
    on = first.changes[DUE]
    assert on is not None

    state = State(view.cluster)
    state.fold(0.0, Submitted(view.job(0)))
    state.fold(0.0, Decided(1, {DUE: on}))
    state.fold(0.0, Started(DUE, 1))
    known = Knowledge(FixedPredictor([840.0]), LinearBeliefs())
    later = View(100.0, state.table, state.cluster, state.free, known, memory=first.memory)

    assert keeps.decide(later).changes == {}


@pytest.mark.parametrize("preemptible", [True, False])
def test_no_promise_counts_on_stopping_who_may_not_be_stopped(preemptible: bool) -> None:
    keeps, long = KeepPromises(Fifo(), restarts=0), JobId("long")
    job = replace(due_job(5000.0, 10_000.0, Demand(8)), id=long, preemptible=preemptible)
    view = view_of(8, job)
    first = keeps.decide(view)
    state = State(view.cluster)
    state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, {long: first.changes[long]}))
    state.fold(0.0, Started(long, 1))
    state.fold(NOW, Submitted(due_job(3000.0, 4000.0, Demand(8))))
    known = Knowledge(FixedPredictor([4900.0, 3000.0]), LinearBeliefs())
    later = View(NOW, state.table, state.cluster, state.free, known, memory=first.memory)

    plan = keeps.decide(later)

    assert (DUE in plan.rejected) != preemptible
    if not preemptible:
        words = (
            "it cannot end within 65 min: not before 2.2 h from now, or in time with 8 more GPUs"
        )
        assert plan.rejected[DUE] == words
    assert isinstance(plan.memory, PromiseMemory)
    assert plan.memory.promises[long].schedule.met


def test_a_policy_that_chooses_sizes_lets_a_deadline_be_met_by_more_gpus() -> None:
    # 2,400 s on one GPU are 600 s on four: only a policy that may give four can promise that.
    job = due_job(2400.0, 660.0, Demand(1, min=1, max=8))

    rigid = KeepPromises(Fifo(), restarts=0).decide(view_of(8, job))
    view = view_of(8, job)
    sized = build("policy", "promise:restarts=0|sia").decide(view)

    assert set(rigid.rejected) == {DUE}
    assert (dict(sized.rejected), gpus_after(view, sized)) == ({}, {"due": 4})


def test_a_deadline_that_is_only_hoped_for_is_the_policys_own_business() -> None:
    view = beside(("low", 8, 0.0), due=due_job(940.0, 1000.0, Demand(4), Or.UNSAID))

    plan = KeepPromises(Fifo()).decide(view)

    assert (plan.changes, dict(plan.rejected), plan.wake_at) == ({}, {}, None)


@pytest.mark.parametrize(("spare", "admitted"), [(1.9, False), (2.1, True)])
@pytest.mark.parametrize("spec", ["promise|fifo", "elasticflow"])
def test_time_for_two_restarts_is_kept_in_reserve(spec: str, spare: float, admitted: bool) -> None:
    restart_s = float(LinearBeliefs().restart_s(view_of(4, ("one", 1, 1.0)).table)[0])
    job = due_job(600.0, 600.0 + spare * restart_s, Demand(4))

    plan = build("policy", spec).decide(view_of(4, job))

    assert (DUE not in plan.rejected) == admitted


@pytest.mark.parametrize(
    "options", [{"slot": 0.0}, {"quantile": 0.0}, {"quantile": 1.0}, {"restarts": -1}]
)
def test_each_option_that_means_nothing_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig):
        KeepPromises(Fifo(), **options)  # type: ignore[arg-type]


def out_of_sight(view: View, memory: object) -> View:
    """The same instant as a layer around shows it that keeps the job waiting."""
    hidden = np.array([job.id == DUE for job in view.table.jobs], dtype=bool)
    return replace(view.without(hidden), memory=memory)


def promised_later() -> tuple[View, PromiseMemory]:
    """A job that was promised its deadline, and waits because others still have the GPUs."""
    view = beside(("first", 8, 1.0), due=due_job(940.0, 1200.0, Demand(8)))
    memory = KeepPromises(Fifo(), restarts=0).decide(view).memory
    assert isinstance(memory, PromiseMemory)
    assert memory.promises[DUE].schedule.met
    return view, memory


def test_a_promise_outlives_a_rule_that_keeps_its_job_waiting() -> None:
    view, memory = promised_later()

    after = KeepPromises(Fifo(), restarts=0).decide(out_of_sight(view, memory)).memory
    again = KeepPromises(Fifo(), restarts=0).decide(replace(view, now=900.0, memory=after))

    assert isinstance(after, PromiseMemory)
    assert after.promises[DUE] == memory.promises[DUE]
    assert not again.rejected  # too late now to be promised anything, but it was


def test_nobody_else_is_promised_what_a_job_out_of_sight_was() -> None:
    other = replace(due_job(940.0, 1200.0, Demand(8)), id=JobId("other"))
    view, memory = promised_later()
    both = beside(("first", 8, 1.0), due=view.table.jobs[1], others=[other])

    plan = KeepPromises(Fifo(), restarts=0).decide(out_of_sight(both, memory))

    assert plan.rejected.keys() == {"other"}
    assert isinstance(plan.memory, PromiseMemory)
    assert plan.memory.promises.keys() == {DUE}


def test_a_promise_ends_with_its_job() -> None:
    _, memory = promised_later()
    view = replace(beside(due=replace(due_job(10.0, 900.0, Demand(1)), id=JobId("x"))))

    after = KeepPromises(Fifo(), restarts=0).decide(replace(view, memory=memory)).memory

    assert isinstance(after, PromiseMemory)
    assert after.promises.keys() == {"x"}


def test_who_was_told_that_its_promise_is_broken_is_not_declined_later() -> None:
    view, memory = promised_later()
    late = KeepPromises(Fifo(), restarts=0).decide(replace(view, now=1300.0, memory=memory))

    hidden = out_of_sight(replace(view, now=1310.0), late.memory)
    after = KeepPromises(Fifo(), restarts=0).decide(hidden).memory
    again = KeepPromises(Fifo(), restarts=0).decide(replace(view, now=1320.0, memory=after))

    assert not late.rejected
    assert not again.rejected


def test_a_quota_does_not_make_a_promise_forgotten() -> None:
    first = Job(JobId("a"), demand=Demand(4), tenant="red")
    due = replace(due_job(900.0, 2000.0, Demand(4)), tenant="red")
    state = State(cluster_of(8))
    state.fold(0.0, Submitted(first))
    on = Allocation((state.free.slice_of(0, 0b1111),))
    state.fold(0.0, Submitted(due))
    view = View(
        0.0,
        state.table,
        state.cluster,
        state.free,
        Knowledge(FixedPredictor([1e4, 900.0]), LinearBeliefs()),
    )
    ruled = Quota(KeepPromises(Fifo(), restarts=0), limits={"red": 4.0})
    seen = Quota(KeepPromises(Fifo(), restarts=0), limits={"red": 8.0}).decide(view)
    state.fold(0.0, Decided(1, {first.id: on}))
    state.fold(0.0, Started(first.id, 1))

    plan = ruled.decide(replace(view, now=60.0, memory=seen.memory))

    assert DUE not in plan.changes
    assert promises_in(seen.memory) == promises_in(plan.memory) == {DUE}


def promises_in(memory: object) -> set[str]:
    assert isinstance(memory, WrapperMemory)
    assert isinstance(memory.inner, PromiseMemory)
    return set(memory.inner.promises)


def test_a_policy_that_is_not_shown_all_cannot_decline_what_was_promised() -> None:
    keeps, soon = KeepPromises(ElasticFlow(), restarts=0), due_job(940.0, 1100.0, Demand(8))
    soon = replace(soon, id=JobId("soon"))
    view = beside(due=due_job(940.0, 3000.0, Demand(8)), others=[soon])

    plan = keeps.decide(view)

    assert gpus_after(view, plan) == {"soon": 8}
    assert not plan.rejected


def forgotten(view: View, now: float) -> View:
    """What a service is shown that has started again: who was promised something, and no more."""
    view.table.promised.add(DUE)
    return replace(view, now=now, memory=None)


@pytest.mark.parametrize("spec", ["promise|fifo", "elasticflow", "lend:own=a=8|promise|fifo"])
def test_a_decision_names_whom_it_promised_something(spec: str) -> None:
    plan = build("policy", spec).decide(view_of(8, due_job(600.0, 2000.0, Demand(8))))

    assert plan.promised == {DUE}


def test_who_was_promised_a_deadline_is_not_declined_by_who_forgot_it() -> None:
    # 940 s and time for two restarts are too much at 1,100 for a deadline at 2,050.
    view = beside(("first", 8, 1.0), due=due_job(940.0, 2050.0, Demand(8)))
    keeps = KeepPromises(Fifo())
    assert DUE in keeps.decide(replace(view, now=1100.0)).rejected

    plan = keeps.decide(forgotten(view, 1100.0))

    assert not plan.rejected
    assert not plan.promised
    assert gpus_after(view, plan) == {"due": 8}


def test_who_comes_later_is_not_promised_what_somebody_had_before() -> None:
    soon = replace(due_job(940.0, 1500.0, Demand(8)), id=JobId("soon"))
    view = beside(("first", 8, 1.0), due=due_job(940.0, 2050.0, Demand(8)), others=[soon])

    plan = KeepPromises(Fifo()).decide(forgotten(view, 200.0))

    assert plan.rejected.keys() == {"soon"}


def test_a_promise_that_was_forgotten_and_cannot_be_met_gets_all_there_is() -> None:
    view = beside(("first", 8, 1.0), due=due_job(940.0, 2050.0, Demand(8)))

    late = KeepPromises(Fifo()).decide(forgotten(view, 1500.0))
    too_late = KeepPromises(Fifo()).decide(forgotten(view, 2100.0))

    assert gpus_after(view, late) == {"due": 8}
    assert not late.rejected
    assert not too_late.rejected
    assert gpus_after(view, too_late) == {"first": 8}


def profile_of(_job: Job) -> Profile:
    return Profile(gpu_use=0.5, mem_gb=1.0)


@pytest.mark.parametrize("by", [1100.0, 9e4])  # it must run now, or may begin later
def test_nobody_is_put_beside_a_job_that_was_promised_a_deadline(by: float) -> None:
    hints = {"duration_s": 1e4}
    loose = Job(JobId("loose"), priority=-1.0, tier=Tier.OPPORTUNISTIC, hints=hints)

    ran = {}
    for firm, policy in ((Or.UNSAID, Antman()), (Or.DECLINE, KeepPromises(Antman()))):
        view = beside(due=due_job(840.0, by, Demand(8), firm), others=[loose])
        known = replace(view.knowledge, colocation=Colocated(profile_of))
        ran[firm] = {*view.after(policy.decide(replace(view, knowledge=known)))}

    assert ran == {Or.UNSAID: {"due", "loose"}, Or.DECLINE: {"due"}}


def test_opportunistic_jobs_leave_the_devices_of_who_must_run_now() -> None:
    loose = Job(JobId("loose"), demand=Demand(1), priority=-1.0, tier=Tier.OPPORTUNISTIC)
    state = State(cluster_of(8))
    sharing = Sharing(0.05, Tier.OPPORTUNISTIC, discipline=Discipline.PACED)
    on = Allocation((Slice(state.cluster.nodes[0].id, (0,)),), sharing)
    state.fold(0.0, Submitted(loose))
    state.fold(0.0, Decided(1, {loose.id: on}))
    state.fold(0.0, Started(loose.id, 1))
    state.fold(NOW, Submitted(due_job(940.0, 1100.0, Demand(8))))
    known = Knowledge(FixedPredictor([1e4, 940.0]), LinearBeliefs(), Colocated(profile_of))
    view = View(NOW, state.table, state.cluster, state.free, known)

    plan = KeepPromises(Antman(), restarts=0).decide(view)

    assert gpus_after(view, plan) == {"due": 8}


@pytest.mark.parametrize(
    ("plans", "most", "left"), [(("pp2-ga4",), 4, ("pp2-ga4",)), (("dp", "pp2-ga4"), 1, ("dp",))]
)
def test_a_rule_narrows_a_job_to_sizes_at_which_one_of_its_plans_runs(
    plans: tuple[str, ...], most: int, left: tuple[str, ...]
) -> None:
    able = tuple(map(read_execution, plans))
    view = view_of(8, Job(DUE, demand=Demand(2, 1, 4), plans=able))

    job = NarrowedView(np.zeros(1, dtype=bool), {0: 1}).view(view, None, Plan()).job(0)

    assert job.demand.max == most
    assert job.plans == tuple(map(read_execution, left))


def test_a_deadline_is_promised_by_sizes_that_the_jobs_own_plan_runs_on() -> None:
    # 600 s on two GPUs are 1,200 s on one, where its plan does not run.
    own = (read_execution("pp2-ga4"), read_execution("dp"))
    job = replace(due_job(600.0, 9000.0, Demand(2, 1, 4)), plans=own)

    view = view_of(8, job)
    plan = build("policy", "promise:restarts=0|sia").decide(view)

    assert gpus_after(view, plan) == {"due": 2}


def test_a_job_that_holds_more_than_it_was_promised_makes_room_for_another_promise() -> None:
    # At 1,000 each of the two needs one of the two GPUs from now on; the first holds both.
    state = State(cluster_of(2))
    first = replace(due_job(1000.0, 2700.0, Demand(2, 1, 2)), id=JobId("first"))
    second = due_job(900.0, 2900.0, Demand(2, 1, 2))
    state.fold(0.0, Submitted(first))
    state.fold(0.0, Decided(1, {first.id: Allocation((state.free.slice_of(0, 0b11),))}))
    state.fold(0.0, Started(first.id, 1))
    state.fold(1000.0, Submitted(second))
    state.table.promised.update({first.id, DUE})
    knowledge = Knowledge(FixedPredictor([800.0, 900.0]), LinearBeliefs())
    view = View(1000.0, state.table, state.cluster, state.free, knowledge)

    plan = build("policy", "promise|sia").decide(view)

    assert gpus_after(view, plan) == {"first": 1, "due": 1}


def promised_on(cluster: str, kinds: tuple[str, ...], spec: str) -> tuple[View, object]:
    """A job that was promised its deadline on machines of one kind, and what is remembered."""
    view = view_of(cluster, due_job(600.0, 1500.0, Demand(4, kinds=kinds)))
    plan = build("policy", spec).decide(view)
    assert plan.promised == {DUE}
    return view, plan.memory


@pytest.mark.parametrize("spec", ["promise|fifo", "elasticflow"])
@pytest.mark.parametrize("left", ["", "1x4:a100"])  # what is there besides
@pytest.mark.parametrize("remembered", [True, False])
def test_a_promise_outlives_the_absence_of_all_machines_of_its_kind(
    spec: str, left: str, remembered: bool
) -> None:
    view, memory = promised_on("1x4:v100", ("v100",), spec)
    view.table.promised.update(() if remembered else {DUE})
    elsewhere = State(cluster_of(left or 0))
    gone = replace(view, now=60.0, cluster=elsewhere.cluster, free=elsewhere.free)

    away = build("policy", spec).decide(replace(gone, memory=memory if remembered else None))
    back = build("policy", spec).decide(replace(view, now=899.0, memory=away.memory))

    assert not away.changes
    assert not away.rejected
    assert not back.rejected  # too late now to be promised anything, but it was
    assert gpus_after(view, back) == {"due": 4}


@pytest.mark.parametrize("spec", ["promise|fifo", "elasticflow"])
def test_a_promise_is_kept_on_another_kind_while_its_own_is_away(spec: str) -> None:
    view, memory = promised_on("1x4:v100", (), spec)
    elsewhere = State(cluster_of("1x4:a100"))
    gone = replace(view, now=899.0, cluster=elsewhere.cluster, free=elsewhere.free)

    plan = build("policy", spec).decide(replace(gone, memory=memory))

    assert not plan.rejected
    assert gpus_after(view, plan) == {"due": 4}


def test_a_deadline_that_no_machine_can_keep_is_declined_in_these_words() -> None:
    view = view_of("1x4:a100", due_job(600.0, 1500.0, Demand(4, kinds=("v100",))))

    plan = build("policy", "promise|fifo").decide(view)

    words = "no deadline can be promised: no machine that due may use is there"
    assert plan.rejected == {DUE: words}
