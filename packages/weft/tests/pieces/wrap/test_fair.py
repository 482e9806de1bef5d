"""A bound on unfairness around any policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.job_end import Ended
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import Needs
from weft.core.plan.plan import Plan
from weft.core.spec.registry import build
from weft.pieces.wrap.tenants.fair import Fair
from weft.policies.fifo import Fifo
from weft.predict.alike.predictor import Alike
from weft.testing.build import view_of, with_knowledge


def started(plan: Plan) -> list[str]:
    return [job for job, on in plan.changes.items() if on is not None]


def one_long_and_many_short(length: float = 6000.0) -> Trace:
    """On one GPU: shortest-first lets the long job wait until all the short ones are through."""
    long = (Job(JobId("long"), 0.0), Truth(length))
    short = [(Job(JobId(f"s{i}"), 500.0 * i), Truth(490.0)) for i in range(40)]
    return Trace("x", (long, *short))


def test_a_job_at_the_bound_goes_before_those_the_policy_prefers() -> None:
    # Alone on its half each takes 200 s; old has waited for 900 s already.
    old = Job(JobId("old"), 0.0, hints={"duration_s": 100.0})
    new = Job(JobId("new"), 899.0, hints={"duration_s": 10.0})

    def first(policy: str) -> list[str]:
        return started(build("policy", policy).decide(replace(view_of(1, old, new), now=900.0)))

    assert first("srtf") == ["new"]
    assert first("fair|srtf") == ["old"]


def test_without_a_job_at_the_bound_the_policy_decides_and_is_asked_again_in_time() -> None:
    jobs = [Job(JobId(n), 0.0, hints={"duration_s": s}) for n, s in (("a", 300.0), ("b", 100.0))]
    view = view_of(1, *jobs)

    plan = Fair(build("policy", "srtf"), bound=1.5, margin=0.0).decide(view)

    assert started(plan) == ["b"]
    # a alone on its half takes 600 s: at the bound it must have 300 s left of 900.
    assert plan.wake_at == pytest.approx(600.0)


def test_whoever_is_better_off_makes_room_and_nobody_else() -> None:
    trace = one_long_and_many_short()
    bare = weft.simulate(trace, "srtf", "1x1:v100", restart_cost=0.0).outcomes["srtf"][0]
    spec = "fair:bound=1.5,margin=0|srtf"
    bound = weft.simulate(trace, spec, "1x1:v100", restart_cost=0.0).outcomes[spec][0]

    assert bare.metrics["worst_ftf"] > 2.4
    assert bound.metrics["worst_ftf"] < 2.1  # 1.5 for everybody is more than there is


def test_a_job_that_may_be_short_is_not_taken_for_the_mean_of_all() -> None:
    # Half of such jobs take a minute: after ten minutes it is late, whatever the mean says.
    alike = Alike()
    for i in range(60):
        for gpus, ran in ((1, 60.0 if i % 2 else 36_000.0), (2, 30.0)):
            alike.learn(Ended(Job(JobId(f"e{i}"), demand=Demand(gpus)), ran, ran * gpus, True))
    old, new = Job(JobId("old"), 0.0), Job(JobId("new"), 599.0, Demand(2))

    def first(policy: str) -> list[str]:
        view = with_knowledge(replace(view_of(2, old, new), now=600.0), predictor=alike)
        return started(build("policy", policy).decide(view))

    assert first("srtf") == ["new"]
    assert first("fair:bound=1.5|srtf") == ["old"]


def test_a_job_that_may_not_be_stopped_keeps_its_place() -> None:
    firm = Job(JobId("firm"), 0.0, preemptible=False, hints={"duration_s": 5000.0})
    late = Job(JobId("late"), 10.0, hints={"duration_s": 50.0})
    trace = Trace("x", ((firm, Truth(5000.0)), (late, Truth(50.0))))

    spec = "fair:bound=1.1|fifo"
    outcome = weft.simulate(trace, spec, "1x1:v100", restart_cost=0.0).outcomes[spec][0]

    assert outcome.per_job.start_s.tolist() == [0.0, 5000.0]


def test_a_bound_reads_remaining_times_and_none_reads_what_the_policy_does() -> None:
    assert Needs.REMAINING in Fair(Fifo()).about.needs
    assert Fair(Fifo(), bound=None).about == Fifo().about


@pytest.mark.parametrize(("field", "value"), [("bound", 0.0), ("margin", 1.0), ("margin", -0.1)])
def test_a_bound_that_bounds_nothing_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidConfig, match=f"fair: {field}="):
        build("policy", f"fair:{field}={value}|fifo")


def crowd_and_one() -> Trace:
    """On two GPUs: many short jobs of one tenant before a longer one of another, under srtf."""
    many = [(Job(JobId(f"m{i}"), 100.0 * i, tenant="many"), Truth(195.0)) for i in range(60)]
    few = [(Job(JobId(f"o{i}"), 1.0, tenant="one"), Truth(1500.0)) for i in range(2)]
    return Trace("x", (many[0], *few, *many[1:]))


def last_end(spec: str, tenant: str, weights: dict[str, float] | None = None) -> float:
    trace = crowd_and_one()
    result = weft.simulate(trace, spec, "1x2:v100", restart_cost=0.0, weights=weights or {})
    ends = result.outcomes[spec][0].per_job.end_s.tolist()
    named = zip((job.tenant for job, _ in trace), ends, strict=True)
    return max(float(end) for name, end in named if name == tenant)


def test_a_tenant_at_the_bound_goes_before_one_with_many_jobs() -> None:
    bare = last_end("srtf", "one")

    bound = last_end("fair:bound=1.2,of=tenants|srtf", "one")

    assert bare > 5500.0  # behind all of the other's
    assert bound < 1.4 * 3000.0  # alone on half of the GPUs its two jobs take 3,000 s


def test_a_tenant_with_more_weight_is_due_sooner() -> None:
    heavy = last_end("fair:bound=1.2,of=tenants|srtf", "one", weights={"one": 3.0})

    assert heavy < last_end("fair:bound=1.2,of=tenants|srtf", "one")


def test_a_late_tenant_is_served_within_its_part_alone() -> None:
    # Two tenants, four GPUs: of the late one's jobs two go first, and the policy has the rest.
    late = [Job(JobId(f"l{i}"), 0.0, tenant="late", hints={"duration_s": 100.0}) for i in range(4)]
    new = [Job(JobId(f"n{i}"), 9999.0, tenant="new", hints={"duration_s": 9.0}) for i in range(4)]
    view = replace(view_of(4, *late, *new), now=10_000.0)

    plan = build("policy", "fair:of=tenants|srtf").decide(view)

    assert sorted(job[0] for job in started(plan)) == ["l", "l", "n", "n"]
