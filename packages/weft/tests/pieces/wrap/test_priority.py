"""Classes of priority around policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.events.event import Decided, Started, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId, Tier
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.state import State
from weft.predict.hinted import Hinted
from weft.testing.build import cluster_of, view_of, with_knowledge


def job(name: str, gpus: int, priority: float = 0.0) -> Job:
    tier = Tier.OPPORTUNISTIC if priority < 0 else Tier.GUARANTEED
    return Job(JobId(name), demand=Demand(gpus), priority=priority, tier=tier)


def policy(spec: str = "priority|fifo") -> Policy:
    built: Policy = build("policy", spec)
    return built


def running(cluster: int | str, *jobs: Job, then: tuple[Job, ...]) -> View:
    """All of `jobs` run, and `then` came later."""
    state = State(cluster_of(cluster))
    for submitted in jobs:
        state.fold(0.0, Submitted(submitted))
    view = View(0.0, state.table, state.cluster, state.free)
    mark = state.free.mark()
    changes = build("policy", "fifo").decide(view).changes
    state.free.rollback(mark)
    state.fold(0.0, Decided(1, changes))
    for submitted in jobs:
        state.fold(0.0, Started(submitted.id, 1))
    for submitted in then:
        state.fold(1.0, Submitted(submitted))
    return View(1.0, state.table, state.cluster, state.free)


def test_the_higher_class_starts_first_whenever_it_came() -> None:
    view = view_of(4, job("first", 4), job("urgent", 3, 1.0), job("small", 1))

    plan = policy().decide(view)

    assert list(plan.changes) == ["urgent"]  # "first" holds up who would be in its way


def test_an_opportunistic_job_uses_what_idles_until_a_higher_one_can_start() -> None:
    view = running(4, job("hold", 1), then=(job("big", 4), job("filler", 1, -1.0)))

    assert list(policy().decide(view).changes) == ["filler"]


@pytest.mark.parametrize("rules", ["priority|firm", "easy|priority|firm|steady"])
def test_an_opportunistic_job_that_cannot_save_uses_what_idles_and_gives_way(rules: str) -> None:
    filler = replace(job("filler", 1, -1.0), preemptible=False)
    big = replace(job("big", 4), preemptible=False)
    idle = running(4, replace(job("hold", 1), preemptible=False), then=(big, filler))
    taken = running(4, filler, then=(big,))

    for spec in ("fifo", "fifo:backfill=true", "las"):
        decide = policy(f"{rules}|{spec}").decide
        assert list(decide(idle).changes) == ["filler"]
        assert {name: to is not None for name, to in decide(taken).changes.items()} == {
            "filler": False,
            "big": True,
        }


def test_a_job_that_is_raised_from_the_lowest_class_is_no_longer_stopped() -> None:
    filler = replace(job("filler", 4, -1.0), preemptible=False)
    view = running(4, filler, then=(job("big", 4, 1.0),))

    view.table.set_priority(view.table.row(filler.id), 0.0, Tier.GUARANTEED)

    assert not policy("priority|firm|fifo").decide(view).changes


def test_a_lower_priority_gives_way_and_its_reason_names_the_other_job() -> None:
    view = running(4, job("filler", 3, -1.0), then=(job("real", 4),))

    plan = policy().decide(view)

    assert plan.changes[JobId("filler")] is None
    assert "its 3 v100 GPUs went to real" in plan.reasons[JobId("filler")]
    assert plan.blockers[JobId("filler")] is Blocker.GAVE_WAY


def test_who_asks_for_more_than_there_is_holds_up_nobody() -> None:
    view = view_of(4, job("impossible", 8, 1.0), job("normal", 2))

    assert list(policy("priority|fifo:backfill=true").decide(view).changes) == ["normal"]


def test_who_gives_way_goes_on_elsewhere_at_once() -> None:
    real = replace(job("real", 2), demand=Demand(2, kinds=("a100",)))
    picky = replace(job("filler", 2, -1.0), demand=Demand(2, kinds=("a100", "t4")))
    view = running("1x2:a100+1x2:t4", picky, then=(real,))
    assert view.cluster.kind_of(view.held()[JobId("filler")]) == "a100"

    after = view.after(policy("priority|fifo:backfill=true").decide(view))

    assert {name: view.cluster.kind_of(on) for name, on in after.items()} == {
        "real": "a100",
        "filler": "t4",
    }


def test_with_nobody_waiting_it_is_the_policys_decision() -> None:
    view = running(4, job("a", 2, -1.0), job("b", 2), then=())

    assert policy("priority|srtf").decide(view).changes == {}


def test_what_the_higher_class_leaves_goes_to_the_next() -> None:
    view = view_of(4, job("small", 1, -1.0), job("urgent", 3, 1.0))

    assert set(policy().decide(view).changes) == {"small", "urgent"}


def test_an_opportunistic_job_gives_way() -> None:
    view = running(4, job("a", 2, -1.0), job("b", 2, -1.0), then=(job("real", 2),))

    plan = policy().decide(view)

    assert plan.changes[JobId("real")] is not None
    assert [name for name, on in plan.changes.items() if on is None] in (["a"], ["b"])


def test_it_stays_where_its_place_would_not_help() -> None:
    view = running(4, job("real", 3), job("a", 1, -1.0), then=(job("big", 4),))

    assert not policy().decide(view).changes


def test_it_stays_where_those_alone_start_who_could_beside_it() -> None:
    view = running(
        8, job("hold", 2), job("filler", 2, -1.0), then=(job("small", 1, 1.0), job("big", 8, 1.0))
    )

    assert list(policy().decide(view).changes) == ["small"]


def test_who_could_run_on_less_than_the_most_it_takes_holds_up_a_lower_class() -> None:
    high = replace(job("high", 2, 1.0), demand=Demand(2, 2, 16))
    hold = replace(job("hold", 3), preemptible=False)
    view = running(4, hold, then=(high, job("low", 1)))

    assert not policy("priority|lyra:order=fifo").decide(view).changes


def test_a_normal_job_is_not_displaced() -> None:
    view = running(4, job("real", 4), then=(job("urgent", 4, 1.0),))

    assert not policy().decide(view).changes


def timed(name: str, gpus: int, duration_s: float, priority: float = 0.0) -> Job:
    return replace(job(name, gpus, priority), hints={"duration_s": duration_s})


def decided(spec: str, held: Job, *then: Job) -> dict[JobId, Allocation | None]:
    view = with_knowledge(running(4, held, then=then), predictor=Hinted())
    return dict(policy(spec).decide(view).changes)


def test_a_lower_class_never_takes_the_place_of_a_higher_one() -> None:
    held, newer = timed("held", 4, 900.0), timed("newer", 3, 9.0, -1.0)

    assert decided("srtf", held, newer)[held.id] is None
    assert decided("priority|srtf", held, newer) == {}


def test_a_lower_class_has_what_the_higher_one_leaves_though_its_policy_would_take_more() -> None:
    held, newer = timed("held", 3, 900.0), timed("newer", 3, 9.0, -1.0)
    small = timed("small", 1, 5.0, -1.0)

    assert set(decided("srtf", held, newer, small)) == {"held", "newer", "small"}
    assert list(decided("priority|srtf", held, newer, small)) == ["small"]


def test_who_is_stopped_by_the_policy_inside_is_told_nothing_for_it() -> None:
    held = timed("long", 2, 900.0), timed("filler", 2, 5.0, -1.0)
    view = with_knowledge(running(4, *held, then=(timed("short", 4, 9.0),)), predictor=Hinted())

    plan = policy("priority|srtf").decide(view)

    assert {name for name, to in plan.changes.items() if to is None} == {"long", "filler"}
    assert plan.reasons.keys() == plan.blockers.keys() == {"filler"}
