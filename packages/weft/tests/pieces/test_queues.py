"""Queues by attained service: sinking, rising, order inside a queue, and when it changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from weft.core.events.event import Decided, Started, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import TableColumns
from weft.core.state.state import State
from weft.pieces.admit.starting import Preempt
from weft.pieces.order.attained import (
    AttainedService,
    Queues,
    best_gittins_index,
    coarse_gittins_index,
    gittins_index,
    past_service,
    rank_queues,
)
from weft.pieces.pack import pack
from weft.pieces.parts import follow, run_order
from weft.pieces.place.gangs import fewest_nodes
from weft.policies.las import Las
from weft.testing import cluster_of

NOW = 1000.0


def view_of_served(*jobs: tuple[str, int, float, bool], gpus: int = 8) -> View:
    """Jobs as (name, GPUs, seconds executed, whether it runs now), all submitted at 0."""
    cluster = cluster_of(gpus)
    state = State(cluster)
    for name, count, ran, runs in jobs:
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(count))))
        row = state.table.row(JobId(name))
        state.table.set(row, TableColumns.RAN_BASE, ran)
        state.table.set(row, TableColumns.SERVICE_BASE, ran * count)
        if runs:
            node = state.free.best_fit("v100", count)
            assert node is not None
            on = Allocation((state.free.slice(node, count),))
            state.fold(NOW, Decided(1, {JobId(name): on}))
            state.fold(NOW, Started(JobId(name), 1))
    return View(NOW, state.table, cluster, state.free)


def names(view: View, order: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> str:
    return "".join(view.job(int(row)).id for row in order)


@pytest.mark.parametrize(
    ("by_time", "expected"), [(False, [0, 1, 1, 2]), (True, [0, 0, 0, 1])], ids=["gpu", "time"]
)
def test_jobs_sink_at_the_thresholds_of_what_they_attained(
    by_time: bool, expected: list[int]
) -> None:
    view = view_of_served(
        ("a", 1, 99.0, False), ("b", 2, 50.0, False), ("c", 4, 99.0, False), ("d", 8, 125.0, False)
    )

    standing = Queues((100.0, 1000.0), by_time).find_standing(view)

    assert standing.queue.tolist() == expected


def test_earlier_queues_go_first() -> None:
    view = view_of_served(("a", 1, 500.0, False), ("b", 1, 5.0, False), ("c", 1, 50.0, False))
    queues = Queues((10.0, 100.0))

    assert names(view, queues.order(view, queues.find_standing(view))) == "bca"


def test_running_jobs_stand_before_waiting_ones_of_their_queue_next_time() -> None:
    view = view_of_served(("a", 1, 0.0, False), ("b", 1, 0.0, True), ("c", 1, 0.0, True))
    queues = Queues((100.0,))
    standing = queues.find_standing(view)
    order = queues.order(view, standing)
    assert names(view, order) == "abc"

    memory = queues.remember(standing, order, view.running())
    again = replace(view, memory=memory)

    assert names(again, queues.order(again, queues.find_standing(again))) == "bca"


def test_newcomers_stand_behind_those_who_are_there() -> None:
    old = view_of_served(("a", 1, 0.0, False), ("b", 1, 0.0, False))
    queues = Queues((100.0,))
    standing = queues.find_standing(old)
    memory = queues.remember(standing, np.array([1, 0]), old.running())
    view = view_of_served(("a", 1, 0.0, False), ("b", 1, 0.0, False), ("c", 1, 0.0, False))
    again = replace(view, memory=memory)

    assert names(again, queues.order(again, queues.find_standing(again))) == "bac"


def test_those_who_sank_earlier_stand_before_those_who_sank_later() -> None:
    before = view_of_served(*((name, 1, 0.0, False) for name in "abc"))
    queues = Queues((100.0,))
    standing = queues.find_standing(before)
    memory = queues.remember(standing, np.arange(3), before.running())
    view = view_of_served(("a", 1, 110.0, False), ("b", 1, 150.0, False), ("c", 1, 120.0, False))
    again = replace(view, memory=memory)

    assert names(again, queues.order(again, queues.find_standing(again))) == "bca"


def test_the_other_rule_orders_by_first_start() -> None:
    view = view_of_served(*((name, 1, 0.0, False) for name in "abc"))
    for row, started in enumerate((30.0, math.inf, 10.0)):
        view.table.set(row, TableColumns.STARTED, started)
    queues = Queues((100.0,), sticky=False)

    assert names(view, queues.order(view, queues.find_standing(view))) == "cab"


def test_a_job_that_left_is_forgotten_and_the_others_keep_their_queue() -> None:
    queues = Queues((100.0,))
    full = view_of_served(*((name, 1, 200.0, False) for name in "abc"))
    standing = queues.find_standing(full)
    memory = queues.remember(standing, np.array([2, 1, 0]), full.running())

    rest = replace(full.restrict(np.array([True, False, True])), memory=memory)

    assert names(rest, queues.order(rest, queues.find_standing(rest))) == "ca"


# ---- when it changes


def test_the_next_change_is_when_a_running_job_sinks() -> None:
    view = view_of_served(("a", 2, 20.0, True), ("b", 1, 90.0, True), ("c", 1, 99.0, False))
    queues = Queues((100.0, 1000.0))

    at = queues.next_change(view, queues.find_standing(view), view.running())

    assert at == NOW + 10.0


def test_in_the_last_queue_nothing_changes_any_more() -> None:
    view = view_of_served(("a", 1, 200.0, True))
    queues = Queues((100.0,))

    assert queues.next_change(view, queues.find_standing(view), view.running()) is None


def test_a_job_that_waited_long_for_what_it_ran_rises_to_the_first_queue() -> None:
    view = view_of_served(("a", 1, 200.0, False), ("b", 1, 400.0, False))
    queues = Queues((100.0,), knob=2.0)
    assert queues.promotes

    standing = queues.find_standing(view)  # a first look: nobody's wait before it counts less

    assert standing.queue.tolist() == [0.0, 1.0]
    assert standing.service0.tolist() == [200.0, 0.0]


def test_the_next_rise_is_when_the_wait_reaches_the_knob() -> None:
    view = view_of_served(("b", 1, 400.0, False))
    queues = Queues((100.0,), knob=2.0)

    at = queues.next_change(view, queues.find_standing(view), view.running())

    assert at == NOW + 200.0


def test_a_job_that_never_ran_does_not_rise() -> None:
    view = view_of_served(("a", 1, 0.0, False))
    queues = Queues((100.0,), knob=2.0)
    standing = queues.find_standing(view)

    assert queues.next_change(view, standing, view.running()) is None
    assert standing.wait0.tolist() == [NOW]


def test_without_a_knob_nobody_rises() -> None:
    assert not Queues((100.0,)).promotes


# ---- the pass


def queue_jobs(view: View) -> Plan:
    """A pass over one threshold of 100 GPU-seconds."""
    order = AttainedService(thresholds=(100.0,))
    return run_order(view, order, Preempt(), fewest_nodes)


def test_while_everybody_fits_the_memory_is_left_alone() -> None:
    view = replace(view_of_served(("a", 1, 0.0, False)), memory="as it was")

    plan = queue_jobs(view)

    assert set(view.after(plan)) == {"a"}
    assert (plan.wake_at, plan.memory) == (None, "as it was")


def test_a_young_job_takes_the_place_of_an_old_one() -> None:
    view = view_of_served(("old", 8, 500.0, True), ("new", 8, 0.0, False))

    plan = queue_jobs(view)

    assert set(view.after(plan)) == {"new"}
    assert plan.wake_at == NOW + 100.0 / 8


@pytest.mark.parametrize(("served", "runs"), [(60.0, "old"), (99.0, "old"), (100.0, "new")])
def test_las_stops_a_job_that_has_attained_the_threshold(served: float, runs: str) -> None:
    view = view_of_served(("old", 8, served, True), ("new", 8, 0.0, False))

    plan = Las(thresholds=(800.0,)).decide(view)  # GPU-seconds

    assert set(view.after(plan)) == {runs}


def test_an_order_of_ones_own_may_be_given() -> None:
    view = view_of_served(("a", 8, 0.0, False), ("b", 8, 0.0, False))

    ranking = rank_queues(view, Queues((100.0,)), lambda v, standing: np.array([1, 0]))
    plan = follow(view, ranking, pack(view, ranking.rows))

    assert set(view.after(plan)) == {"b"}


# ---- the Gittins index


def test_the_index_is_the_chance_to_end_over_the_service_it_takes() -> None:
    samples = np.array([1.0, 2.0, 4.0, 8.0])

    index = gittins_index(samples, np.array([0.0, 2.0, 7.0, 8.0]), 2.0)

    # From 0: two of four end within 2, using 1 + 2 + 2 + 2. From 2: one of two (4), 2 + 2.
    assert index.tolist() == [2 / 7, 1 / 4, 1.0, 0.0]


def test_the_best_index_is_the_highest_over_all_quanta() -> None:
    samples = np.array([1.0, 10.0, 10.0])

    best = best_gittins_index(samples, np.array([0.0, 1.0, 10.0]))

    # From 0 a quantum of 1: 1 ends for 3 units. From 1 a quantum of 9: both end for 18.
    assert best.tolist() == [1 / 3, 2 / 18, 0.0]


def test_the_prior_has_the_median_it_is_told_and_gives_way_to_the_past() -> None:
    prior = past_service(np.zeros(0), 100, median=50.0, sigma=1.0)
    past = np.arange(100.0)

    assert np.sqrt(prior[31] * prior[32]) == pytest.approx(50.0)
    assert np.log(prior).std() == pytest.approx(1.0, abs=0.05)
    assert past_service(past, 100) is not None
    assert past_service(past, 100).tolist() == past.tolist()


def test_a_long_past_is_summarised_by_its_recent_quantiles() -> None:
    history = np.concatenate([np.full(5000, 1e9), np.arange(4096.0)])

    summary = past_service(history)

    assert len(summary) == 256
    assert summary.max() < 4096.0
    assert np.median(summary) == pytest.approx(2047.5)


def test_waiting_jobs_of_the_first_queue_are_not_promoted_and_keep_what_they_attained() -> None:
    view = view_of_served(("young", 1, 20.0, False), ("old", 1, 150.0, False))

    standing = Queues((100.0,), knob=2.0).find_standing(view)

    assert standing.queue.tolist() == [0.0, 0.0]
    assert standing.service0.tolist() == [0.0, 150.0]


def test_the_coarse_index_changes_with_doublings_of_service_alone() -> None:
    past = past_service(np.zeros(0))
    attained = np.arange(60.0, 3840.0, 30.0)

    index = coarse_gittins_index(past, attained)

    changes = attained[1:][np.diff(index) != 0.0]
    assert changes.tolist() == [120.0, 240.0, 480.0, 960.0, 1920.0]
    assert (np.diff(index) <= 0.0).all()  # who has more behind it of such a past has more to come
