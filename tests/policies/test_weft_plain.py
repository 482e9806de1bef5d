"""Our own policy where jobs have one size: who goes first, when it looks again, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.core.events.event import Decided, Started, Submitted
from weft.core.events.job_end import Ended
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.prediction import PointPredictor
from weft.core.knowledge.predictor import PredictorNeeds
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.state import State
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs
from weft.pieces.order.plain_left import plain_weights
from weft.policies.weft.policy import Weft
from weft.testing import cluster_of

NOW = 100_000.0


class Estimated(NothingLearnt, PointPredictor):
    """A predictor that was told lengths, and subtracts what a job ran."""

    label = "estimated"
    asks = PredictorNeeds()

    def __init__(self, *lengths: float) -> None:
        self._lengths = np.array(lengths)

    def remaining(self, table: JobTable, now: float) -> Floats:
        """Never below 0."""
        return np.maximum(self._lengths[table.seq.astype(np.intp)] - table.ran(now), 0.0)

    def learn(self, ended: Ended) -> None:
        """Nothing."""


def view_of_ran(*jobs: tuple[str, int, float, float], gpus: int = 8) -> View:
    """Jobs as (name, GPUs, estimated seconds, seconds executed); those who executed any run."""
    cluster = cluster_of(gpus)
    state = State(cluster)
    for name, count, _, ran in jobs:
        state.fold(0.0, Submitted(Job(JobId(name), NOW - ran, demand=Demand(count))))
        if ran:
            row = state.table.row(JobId(name))
            state.table.set(row, TableColumns.RAN_BASE, ran)
            state.table.set(row, TableColumns.SERVICE_BASE, ran * count)
            node = state.free.best_fit("v100", count)
            assert node is not None
            on = Allocation((state.free.slice(node, count),))
            state.fold(NOW, Decided(1, {JobId(name): on}))
            state.fold(NOW, Started(JobId(name), 1))
    knowledge = Knowledge(Estimated(*(length for _, _, length, _ in jobs)), LinearBeliefs())
    return View(NOW, state.table, cluster, state.free, knowledge)


def running(view: View) -> set[str]:
    return {str(job) for job in view.after(Weft().decide(view))}


def test_a_job_that_outlived_its_estimate_is_not_thought_to_be_about_to_end() -> None:
    view = view_of_ran(("long", 1, 60.0, 40_000.0), ("short", 1, 600.0, 0.0), gpus=1)

    assert running(view) == {"short"}


def test_a_job_that_just_outlived_its_estimate_goes_on() -> None:
    view = view_of_ran(("nearly", 1, 60.0, 61.0), ("other", 1, 600.0, 0.0), gpus=1)

    assert running(view) == {"nearly"}


def test_a_gang_that_ends_soon_goes_before_small_jobs_that_take_for_days() -> None:
    small = [(f"small{i}", 1, 90_000.0, 10.0) for i in range(8)]
    view = view_of_ran(*small, ("gang", 8, 60.0, 0.0))

    assert running(view) == {"gang"}


def test_a_small_job_goes_before_a_gang_that_needs_more_gpu_seconds() -> None:
    view = view_of_ran(("gang", 8, 600.0, 0.0), ("small", 1, 3600.0, 0.0))

    assert running(view) == {"small"}


def test_who_runs_is_not_stopped_for_less_than_a_start_costs() -> None:
    view = view_of_ran(("runs", 1, 1100.0, 1000.0), ("waits", 1, 90.0, 0.0), gpus=1)

    assert running(view) == {"runs"}


def test_who_may_not_be_stopped_stays() -> None:
    view = view_of_ran(("firm", 1, 90_000.0, 10.0), ("short", 1, 60.0, 0.0), gpus=1)
    view.table.set(0, TableColumns.PREEMPTIBLE, 0.0)

    assert running(view) == {"firm"}


def test_nobody_is_looked_at_again_while_everybody_runs() -> None:
    view = view_of_ran(("a", 1, 600.0, 10.0), ("b", 1, 600.0, 10.0))

    plan = Weft().decide(view)

    assert not plan.changes
    assert plan.wake_at is None


def test_who_waits_is_looked_at_again_when_an_estimate_turns_out_wrong() -> None:
    view = view_of_ran(("a", 1, 150.0, 100.0), ("b", 1, 100.0, 0.0), gpus=1)

    assert Weft().decide(view).wake_at == pytest.approx(NOW + 50.0)


def test_a_gang_is_looked_at_again_when_it_is_thought_to_need_more_gpu_seconds() -> None:
    # In 20 s the estimate is over, and four minutes of four GPUs are more than 500 s of one.
    view = view_of_ran(("gang", 4, 150.0, 130.0), ("b", 1, 500.0, 0.0), gpus=4)

    assert Weft().decide(view).wake_at == pytest.approx(NOW + 20.0)


def test_after_that_when_it_has_run_for_the_next_doubling_of_a_minute() -> None:
    view = view_of_ran(("a", 1, 60.0, 200.0), ("b", 1, 300.0, 0.0), gpus=1)

    assert Weft().decide(view).wake_at == pytest.approx(NOW + 40.0)


def view_of_late(ran: float = 40_000.0, waited: float = 0.0) -> View:
    """`short` runs for ever, by its estimate; `late` has waited for so long."""
    view = view_of_ran(("short", 1, ran + 900.0, ran), ("late", 1, 90_000.0, 0.0), gpus=1)
    view.table.set(1, TableColumns.SUBMITTED, NOW - waited)
    return view


def test_who_waited_for_too_long_goes_first_until_it_has_run_for_twice_as_long() -> None:
    # Of two jobs on one GPU each has half of it: 10 s of running may wait for 3 x 10 x 2 s.
    assert running(view_of_late(waited=59.0)) == {"short"}
    assert running(view_of_late(waited=61.0)) == {"late"}


@pytest.mark.parametrize("waited", [0.0, 40.0])
def test_it_looks_again_when_the_first_that_waits_is_late(waited: float) -> None:
    wake_at = Weft().decide(view_of_late(waited=waited)).wake_at

    assert wake_at == pytest.approx(NOW + 60.0 - waited)


def test_it_looks_again_after_a_pause_when_who_waits_is_late_within_a_second() -> None:
    assert Weft().decide(view_of_late(waited=59.5)).wake_at == pytest.approx(NOW + 10.0)


@pytest.mark.parametrize(("ran", "stays"), [(30.0, True), (41.0, False)])
def test_a_late_job_is_not_stopped_before_it_ran_twice_as_long(ran: float, stays: bool) -> None:
    view = view_of_ran(("late", 1, 90_000.0, ran), ("short", 1, 10.0, 0.0), gpus=1)
    view.table.set(0, TableColumns.SUBMITTED, NOW - ran - 121.0)

    assert running(view) == ({"late"} if stays else {"short"})


def view_of_two_late(waited: float) -> View:
    """A gang on all GPUs that waited 1.2 times as long as it may, and one that came after it."""
    view = view_of_ran(("gang", 8, 90_000.0, 1_000.0), ("short", 1, 10.0, 0.0), gpus=8)
    view.table.set(0, TableColumns.SUBMITTED, NOW - 1_000.0 - 1.2 * 3.0 * 500.0 * 2.0)
    view.table.set(1, TableColumns.SUBMITTED, NOW - waited)
    return view


def test_of_two_late_jobs_the_later_one_goes_first_however_large_the_other() -> None:
    # One GPU is no more than its part: 10 s of running may wait for 30 s.
    assert running(view_of_two_late(waited=35.0)) == {"gang"}
    assert running(view_of_two_late(waited=37.0)) == {"short"}


def test_it_looks_again_when_a_late_job_becomes_the_later_one() -> None:
    wake_at = Weft().decide(view_of_two_late(waited=20.0)).wake_at

    assert wake_at is not None
    assert wake_at == pytest.approx(NOW + 10.0)
    late = Weft().decide(view_of_two_late(waited=30.0)).wake_at
    assert late is not None
    assert NOW + 6.0 <= late <= NOW + 10.0


def test_where_there_is_room_for_all_nobody_is_predicted() -> None:
    view = view_of_ran(("a", 1, 600.0, 100.0), ("b", 1, 800.0, 0.0), gpus=2)

    plan = Weft().decide(replace(view, knowledge=Knowledge()))

    assert {*plan.changes} == {JobId("b")}
    assert plan.wake_at is None


def test_what_was_said_before_is_taken_back_once_and_figures_are_for_who_asks() -> None:
    view = view_of_ran(("short", 1, 60.0, 0.0), ("long", 2, 9000.0, 0.0), gpus=2)

    plan = Weft().decide(view)

    assert plan.reasons == {JobId("long"): ""}
    again = Weft().decide(replace(view, memory=plan.memory))
    assert JobId("long") not in again.reasons
    figures = Weft().decide(replace(view, asked=frozenset({JobId("long")}))).reasons
    assert figures[JobId("long")].startswith("18,000 GPU-seconds are thought to be left, at most")


def test_plain_jobs_beside_elastic_ones_weigh_as_much_together_as_before() -> None:
    view = view_of_ran(("a", 1, 600.0, 0.0), ("b", 4, 60.0, 0.0), ("c", 2, 10.0, 0.0))
    before = np.array([2.0, 3.0, 5.0])
    plain = np.array([True, True, False])

    weights = plain_weights(view, before, np.array([600.0, 240.0, 20.0]), plain)

    assert weights[2] == 5.0
    assert weights[:2].sum() == pytest.approx(5.0)
    assert weights[1] == pytest.approx(8.0 * weights[0])  # 4 GPUs, and the higher of two ranks


class CountedName(str):
    """A name that counts how often names were compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_names_of_those_who_wait_are_not_searched_for_one_by_one() -> None:
    jobs = [(CountedName(f"job-{i}"), 1, 600.0, 0.0) for i in range(200)]
    view = view_of_ran(("old", 8, 9000.0, 60.0), *jobs)
    plan = Weft().decide(view)
    CountedName.compared = 0

    again = Weft().decide(replace(view, memory=plan.memory))

    assert again.changes.keys() == plan.changes.keys()
    assert not [name for name, reason in again.reasons.items() if not reason]  # told before
    assert CountedName.compared < 10 * len(jobs)


@pytest.mark.parametrize("predictor", ["history", "none"])
def test_on_helios_jobs_it_is_no_worse_than_a_gittins_index(predictor: str) -> None:
    result = weft.compare(
        "venus",
        ["weft", "gittins"],
        "16x8:v100",
        seeds=(5,),
        jobs=200,
        load=2.0,
        predictor=predictor,
        processes=1,
    )
    ours, theirs = (result.outcomes[name][0].metrics for name in ("weft", "gittins"))

    assert ours["avg_jct_h"] < 1.05 * theirs["avg_jct_h"]
