"""Limits and weights of tenants around policies of different nature."""

from __future__ import annotations

import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.pieces.wrap.tenants.quota import Quota, fill
from weft.policies.fifo import Fifo
from weft.testing.build import cluster_of, view_of


def job(
    name: str, tenant: str, gpus: int = 1, *, most: int = 0, kinds: tuple[str, ...] = ()
) -> Job:
    demand = Demand(gpus, gpus if most else 0, most, kinds)
    return Job(JobId(name), tenant=tenant, demand=demand, hints={"duration_s": 100.0})


def policy(spec: str) -> Policy:
    built: Policy = build("policy", spec)
    return built


def started(plan: Plan) -> list[str]:
    return [name for name, on in plan.changes.items() if on is not None]


def test_a_tenant_at_its_limit_starts_nothing_more_and_is_told_why() -> None:
    view = view_of(8, *(job(f"a{i}", "a", 2) for i in range(3)), job("b", "b", 2))

    plan = policy("quota:limits=a=4|fifo").decide(view)

    assert started(plan) == ["a0", "a1", "b"]
    assert plan.reasons == {
        "a2": "over quota: with its 2 GPUs tenant 'a' would hold more than 4 GPUs"
    }


def test_a_reason_is_told_once_and_taken_back_when_it_is_over() -> None:
    view = view_of(8, job("a0", "a", 2), job("a1", "a", 2))
    first = policy("quota:limits=a=2|fifo").decide(view)
    assert started(first) == ["a0"]

    again = policy("quota:limits=a=2|fifo").decide(with_memory(view, first))
    more = policy("quota:limits=a=4|fifo").decide(with_memory(view, first))

    assert not again.reasons
    assert more.reasons == {"a1": ""}


def test_a_job_larger_than_its_tenants_limit_is_told_so_whatever_is_free() -> None:
    view = view_of(4, job("b", "b", 4), job("a", "a", 4), job("small", "a", 1, most=4))

    plan = policy("quota:limits=a=2|fifo").decide(view)  # b takes all there is

    assert started(plan) == ["b"]
    assert plan.reasons[JobId("a")] == (
        "over quota: it asks for 4, more than the 2 GPUs that tenant 'a' may ever hold"
    )
    assert not plan.reasons.get(JobId("small"))


def test_a_job_larger_than_the_limit_of_one_kind_takes_another() -> None:
    view = view_of("1x4:a100+1x4:t4", job("a", "a", 4), job("only", "a", 4, kinds=("a100",)))

    plan = policy("quota:limits=a@a100=2|fifo").decide(view)

    assert [view.cluster.kind_of(on) for on in plan.changes.values() if on] == ["t4"]
    assert "more than the 2 a100 GPUs" in plan.reasons[JobId("only")]


def with_memory(view: View, plan: Plan) -> View:
    from dataclasses import replace

    return replace(view, memory=plan.memory)


def test_a_limit_on_one_kind_sends_jobs_to_the_others() -> None:
    view = view_of("2x4:a100+2x4:t4", *(job(f"a{i}", "a", 4) for i in range(3)))

    plan = policy("quota:limits=a@a100=4|fifo").decide(view)

    held = [view.cluster.kind_of(on) for on in plan.changes.values() if on is not None]
    assert sorted(held) == ["a100", "t4", "t4"]


def test_a_job_that_takes_only_a_full_kind_waits() -> None:
    view = view_of("2x4:a100+2x4:t4", *(job(f"a{i}", "a", 4, kinds=("a100",)) for i in range(2)))

    plan = policy("quota:limits=a@a100=4|fifo").decide(view)

    assert started(plan) == ["a0"]
    assert plan.reasons == {
        "a1": "over quota: with its 4 GPUs tenant 'a' would hold more than 4 a100 GPUs"
    }


def test_an_elastic_job_is_grown_only_up_to_the_limit() -> None:
    view = view_of(8, job("a", "a", 1, most=8))

    plan = policy("quota:limits=a=3|optimus").decide(view)

    (on,) = plan.changes.values()
    assert on is not None
    assert on.gpus <= 3


def test_weights_divide_what_is_short() -> None:
    jobs = [job(f"a{i}", "a") for i in range(12)] + [job(f"b{i}", "b") for i in range(12)]
    view = view_of(12, *jobs)

    plan = policy("quota:weights=a=2/b=1|fifo").decide(view)

    assert sum(name.startswith("a") for name in started(plan)) == 8
    assert sum(name.startswith("b") for name in started(plan)) == 4


def test_what_one_tenant_cannot_use_goes_to_the_other() -> None:
    jobs = [job(f"a{i}", "a") for i in range(12)] + [job("b", "b")]
    view = view_of(12, *jobs)

    assert len(started(policy("quota:weights=a=1/b=9|fifo").decide(view))) == 12


def test_over_its_share_is_said_while_another_tenant_waits_and_not_after() -> None:
    """Who waits once all of the others' jobs have started waits for room, and not for them."""
    jobs = [job(f"a{i}", "a") for i in range(8)]

    short = policy("quota:weights=a=1/b=1|fifo").decide(view_of(4, *jobs, job("b", "b", 3)))
    enough = policy("quota:weights=a=1/b=1|fifo").decide(view_of(4, *jobs, job("b", "b", 2)))

    assert Blocker.SHARE in short.blockers.values()
    assert JobId("b") in enough.changes
    assert not enough.blockers


def test_filling_gives_nobody_more_than_they_want() -> None:
    assert fill(10.0, {"a": 2.0, "b": 20.0, "c": 20.0}, {"b": 3.0}) == {
        "a": 2.0,
        "b": 6.0,
        "c": 2.0,
    }


@pytest.mark.parametrize("text", ["limits=a", "limits=a=x", "weights=a=0", "limits=a=-1"])
def test_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        policy(f"quota:{text}|fifo").decide(view_of(1))


def test_a_firm_job_is_not_stopped_by_a_preemptive_policy() -> None:
    from weft.core.events.event import Submitted
    from weft.core.state.state import State

    state = State(cluster_of(4))
    long = Job(JobId("long"), demand=Demand(4), preemptible=False, hints={"duration_s": 1e6})
    state.fold(0.0, Submitted(long))
    first = view_of(4, long)
    on = policy("fifo").decide(first).changes[long.id]
    state.fold(0.0, Decided(1, {long.id: on}))
    state.fold(0.0, Started(long.id, 1))
    state.fold(0.0, Submitted(Job(JobId("short"), demand=Demand(1))))

    from weft.testing.build import FixedPredictor

    view = View(9.0, state.table, state.cluster, state.free, Knowledge(FixedPredictor([1e6, 1.0])))

    mark = view.free.mark()

    assert policy("srtf").decide(view).changes[long.id] is None
    view.free.rollback(mark)
    assert not policy("firm|srtf").decide(view).changes


def test_a_policy_that_weighs_tenants_itself_is_shown_the_weights_and_left_alone() -> None:
    seen: list[View] = []

    class Weighing:
        about = About("weighing", "none", weighs=True)

        def decide(self, view: View) -> Plan:
            seen.append(view)
            return Fifo().decide(view)

    view = view_of(4, *(job(f"a{i}", "a") for i in range(4)), job("b", "b"))

    plan = Quota(Weighing(), weights={"b": 3.0}).decide(view)

    assert [shown.weights for shown in seen] == [{"b": 3.0}]
    assert started(plan) == ["a0", "a1", "a2", "a3"]
