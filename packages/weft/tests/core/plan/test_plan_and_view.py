"""Plans and views: targets, unions, ranking and restriction."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from weft.core.errors import PlanError
from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.costs import ChangeCosts, Costs
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.plan import Plan, merge
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.state import State
from weft.testing import cluster_of, view_of

A, B, C = JobId("a"), JobId("b"), JobId("c")


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(NodeId("v100-0"), gpus),))


def busy() -> View:
    """a waits, b runs since 10 on two GPUs, c has been promised one; now is 30."""
    cluster = cluster_of(8)
    state = State(cluster)
    for name, gpus in ((A, 4), (B, 2), (C, 1)):
        state.fold(5.0, Submitted(Job(name, 5.0, Demand(gpus))))
    state.fold(10.0, Decided(1, {B: on(0, 1)}))
    state.fold(10.0, Started(B, 1))
    state.fold(30.0, Decided(2, {C: on(2)}))
    return View(30.0, state.table, cluster, state.free)


# ---- plans


def test_a_target_names_only_what_changes() -> None:
    view = busy()

    plan = Plan.target(view, {B: on(0, 1), C: on(3)})

    assert plan.changes == {C: on(3)}


def test_a_target_takes_away_what_it_does_not_name() -> None:
    view = busy()

    plan = Plan.target(view, {A: on(0, 1, 2, 3)})

    assert plan.changes == {A: on(0, 1, 2, 3), B: None, C: None}
    assert view.after(plan) == {A: on(0, 1, 2, 3)}


def test_an_empty_plan_changes_nothing() -> None:
    view = busy()

    assert view.after(Plan()) == view.held() == {B: on(0, 1), C: on(2)}


def test_after_a_plan_jobs_hold_what_it_says() -> None:
    view = busy()

    after = view.after(Plan({A: on(4, 5, 6, 7), B: None}))

    assert after == {A: on(4, 5, 6, 7), C: on(2)}


def test_merging_unites_changes_and_wakes_at_the_earliest() -> None:
    plan = Plan({A: on(0)}, {B: "no"}, 50.0, {A: "first"}, memory=1)
    other = Plan({C: None}, wake_at=40.0, reasons={C: "last"}, memory=2)

    both = merge([plan, other, Plan()])

    assert both.changes == {A: on(0), C: None}
    assert both.rejected == {B: "no"}
    assert both.wake_at == 40.0
    assert both.reasons == {A: "first", C: "last"}
    assert both.memory == (1, 2, None)


def test_merging_nothing_is_an_empty_plan() -> None:
    assert merge([]) == Plan(memory=())


def test_two_plans_may_not_change_the_same_job() -> None:
    with pytest.raises(PlanError, match="two plans change a, b"):
        merge([Plan({B: None, A: None}), Plan({A: on(0), B: None})])


# ---- columns


def test_columns_say_who_runs_and_who_waits() -> None:
    view = busy()

    assert view.waiting().tolist() == [True, False, False]
    assert view.running().tolist() == [False, True, True]
    assert view.ran().tolist() == [0.0, 20.0, 0.0]
    assert view.service().tolist() == [0.0, 40.0, 0.0]
    assert view.waited().tolist() == [25.0, 5.0, 25.0]


def test_single_jobs_are_found_by_row_and_by_name() -> None:
    view = busy()

    assert view.job(1).id == B
    assert (view.allocation(0), view.allocation(2)) == (None, on(2))
    assert (view.holds(A), view.holds(B)) == (None, on(0, 1))


def test_ties_go_to_the_earlier_job() -> None:
    view = view_of(8, *((f"j{i}", 1, 0.0) for i in range(50)))
    key = np.array([i % 3 for i in range(50)], dtype=float)

    order = view.ranked(key).tolist()

    assert order == sorted(range(50), key=lambda i: (i % 3, i))


def test_later_keys_break_ties_of_earlier_ones() -> None:
    view = view_of(8, *((f"j{i}", 1, 0.0) for i in range(4)))

    order = view.ranked(np.array([1.0, 0.0, 1.0, 0.0]), np.array([5.0, 9.0, 4.0, 9.0]))

    assert order.tolist() == [1, 3, 2, 0]


def test_ranking_among_some_rows_returns_rows_of_the_whole_table() -> None:
    view = view_of(8, *((f"j{i}", 1, 0.0) for i in range(4)))
    among = np.array([True, False, True, True])

    ranked = view.ranked(np.array([2.0, 0.0, 1.0, 1.0]), among=among)
    two = view.ranked(np.zeros(4), np.array([2.0, 0.0, 1.0, 1.0]), among=among)

    assert ranked.tolist() == two.tolist() == [2, 3, 0]


def test_reading_remaining_times_without_a_predictor_is_an_error_with_a_hint() -> None:
    with pytest.raises(PlanError, match=r"no predictor is configured\n  hint: .*--predictor"):
        busy().remaining()


def test_random_numbers_depend_on_seed_and_decision_alone() -> None:
    base = busy()

    def draw(seed: int, decision: int) -> list[float]:
        view = View(1.0, base.table, base.cluster, base.free, seed=seed, decision=decision)
        values: list[float] = view.rng.random(3).tolist()
        return values

    assert draw(1, 2) == draw(1, 2)
    assert len({tuple(draw(s, d)) for s, d in ((1, 2), (1, 3), (2, 2), (2, 1))}) == 4


# ---- shaping


def test_a_restricted_view_has_some_rows_and_the_same_capacity() -> None:
    view = busy()

    part = view.restrict(np.array([True, False, True]))

    assert [job.id for job in part.table.jobs] == [A, C]
    assert part.free.idle() == 5
    assert part.held() == {C: on(2)}
    assert part.now == 30.0


def test_a_view_without_rows_is_the_rest() -> None:
    view = busy()

    assert [job.id for job in view.without(view.running()).table.jobs] == [A]


def test_a_restricted_view_predicts_the_same_for_the_same_jobs() -> None:
    view = view_of(8, ("x", 1, 10.0), ("y", 1, 20.0), ("z", 1, 30.0))

    part = view.restrict(np.array([False, True, True]))

    assert part.remaining().tolist() == [20.0, 30.0]


def test_each_of_two_plans_says_why_of_those_whom_it_changes() -> None:
    first, second = JobId("first"), JobId("second")
    plan = Plan({first: None}, reasons={first: "gave way", second: "waits"})
    more = Plan({second: None}, reasons={first: "waits", second: "starts"})

    joined = plan.joined(more)

    assert list(joined.changes) == [first, second]
    assert joined.reasons == {first: "gave way", second: "starts"}


# ---- starts that are under way


class Starts:
    """Costs of starts; nothing is learnt."""

    def costs(self, job: Job, kind: str) -> Costs:
        return Costs(first_start_s=40.0, restart_s=15.0)


def begun(seconds: float, *, attempts: int = 1, known: Knowledge | None = None) -> View:
    """b began that long ago, c has been promised devices; neither has reported since."""
    cluster = cluster_of(8)
    state = State(cluster)
    for name in (B, C):
        state.fold(0.0, Submitted(Job(name, 0.0, Demand(1))))
    for attempt in range(1, attempts + 1):
        state.fold(0.0, Decided(2 * attempt, {B: on(0)}))
        state.fold(100.0, Started(B, attempt))
        if attempt < attempts:
            state.fold(100.0, Decided(2 * attempt + 1, {B: None}))
    state.fold(100.0, Decided(99, {C: on(1)}))
    return View(100.0 + seconds, state.table, cluster, state.free, knowledge=known or Knowledge())


def test_a_job_that_never_reports_is_restoring_as_long_as_a_restart_takes() -> None:
    assert begun(29.0).restoring().tolist() == [True, True]
    assert begun(30.0).restoring().tolist() == [False, True]


def test_a_start_takes_as_long_as_such_starts_were_seen_to() -> None:
    known = Knowledge(costs=cast("ChangeCosts", Starts()))

    first = [begun(s, known=known).restoring()[0] for s in (39.0, 40.0)]
    again = [begun(s, attempts=2, known=known).restoring()[0] for s in (14.0, 15.0)]

    assert (first, again) == ([True, False], [True, False])


def test_a_job_that_reported_is_not_restoring() -> None:
    view = begun(5.0)
    view.table.set(0, TableColumns.REPORTED, 1)

    assert view.restoring().tolist() == [False, True]
    assert view.reported().tolist() == [True, False]
