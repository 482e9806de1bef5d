"""From an order to a plan: who runs, who gives way, and who keeps their place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.events.event import Cancelled, Decided, Started, Submitted
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.core.state.table import Rows
from weft.pieces.pack import (
    STRETCH,
    backfill,
    backfill_by,
    in_turn,
    pack,
    pack_by,
    running_after,
    start_all,
)
from weft.pieces.place.gangs import consolidate, fewest_nodes
from weft.pieces.place.parts import by_skew
from weft.testing import cluster_of, view_of


def view_with(cluster: str | int, *jobs: Job, running: str = "") -> View:
    """A view in which the jobs named in `running` (one letter each) hold what they asked for."""
    machines = cluster_of(cluster)
    state = State(machines)
    for each in jobs:
        state.fold(0.0, Submitted(each))
    for name in running:
        wanted = state.table.jobs[state.table.row(JobId(name))]
        on = fewest_nodes(wanted, state.free)
        assert on is not None
        state.fold(0.0, Decided(state.decisions + 1, {wanted.id: on}))
        state.fold(0.0, Started(wanted.id, 1))
    state.free.commit()
    return View(10.0, state.table, machines, state.free)


def job(name: str, gpus: int = 1, *kinds: str, share: float = 1.0, skew: float = 0.0) -> Job:
    hints = {"skew": skew} if skew else {}
    return Job(JobId(name), demand=Demand(gpus, kinds=kinds, share=share), hints=hints)


def rows(*order: int) -> Rows:
    return np.array(order, dtype=np.intp)


def who(view: View, plan: Plan) -> str:
    return "".join(sorted(view.after(plan)))


# ---- pack


def test_the_first_that_fit_together_run() -> None:
    view = view_of(8, ("a", 4, 0.0), ("b", 8, 0.0), ("c", 2, 0.0), ("d", 4, 0.0))

    assert who(view, pack(view, rows(0, 1, 2, 3))) == "ac"


def grown(cluster: str) -> View:
    """Four GPUs, two each held by `a` and `b`, which ask for one; `c` and `d` want half of one."""
    elastic, half = Demand(1, 1, 2, ("cpu",)), Demand(1, kinds=("cpu",), share=0.5)
    state = State(cluster_of(cluster))
    for name, demand in zip("abcd", (elastic, elastic, half, half), strict=True):
        state.fold(0.0, Submitted(Job(JobId(name), demand=demand)))
    for number, name in enumerate("ab", start=1):
        two = Allocation((state.free.slice(0, 2),))
        state.fold(0.0, Decided(number, {JobId(name): two}))
    state.free.commit()
    return View(10.0, state.table, state.cluster, state.free)


@pytest.mark.parametrize("order", [(2, 3, 0, 1), (2, 3, 1, 0), (0, 1, 2, 3)])
@pytest.mark.parametrize("cluster", ["1x4:cpu", "1x4:cpu+1x1:t4"])
def test_who_holds_more_than_it_asks_for_makes_room_and_goes_on(
    cluster: str, order: tuple[int, ...]
) -> None:
    view = grown(cluster)

    held = view.after(pack(view, rows(*order)))

    assert sorted(held) == ["a", "b", "c", "d"]
    assert held[JobId("a")].gpus + held[JobId("b")].gpus == 3


def scattered() -> View:
    """Eight GPUs, a quarter of each taken by `a`, half of one by `b`; `c` wants four whole ones."""
    jobs = job("a", 8, share=0.25), job("b", share=0.5), job("c", 4)
    return view_with(8, *jobs, running="ab")


def test_parts_all_over_keep_whole_devices_from_a_gang_unless_it_is_late() -> None:
    view = scattered()
    late = np.array([False, False, True])

    assert who(view, pack(view, rows(2, 1, 0))) == "ab"
    view = scattered()
    assert who(view, pack(view, rows(2, 1, 0), late=late)) == "bc"


def test_all_behind_a_late_gang_give_way_where_it_takes_all_of_them() -> None:
    parts = [job(name, 4, share=0.25) for name in "abc"]  # each has a part of every device
    view = view_with("1x4:v100", *parts, job("g"), running="abc")

    plan = pack(view, rows(3, 0, 1, 2), late=np.array([False, False, False, True]))

    assert who(view, plan) == "g"


def test_nobody_ahead_of_a_late_gang_is_stopped_for_it() -> None:
    view = scattered()

    assert who(view, pack(view, rows(0, 2, 1), late=np.array([False, False, True]))) == "ab"


def test_those_who_stand_in_the_way_give_way_and_the_others_stay() -> None:
    view = view_with(8, job("a", 4), job("b", 4), job("c", 4), running="ab")

    plan = pack(view, rows(2, 0, 1))

    assert plan.changes[JobId("b")] is None
    assert JobId("a") not in plan.changes
    assert who(view, plan) == "ac"


def test_nothing_changes_while_everybody_runs() -> None:
    view = view_with(8, job("a", 4), job("b", 4), running="ab")

    assert pack(view, rows(1, 0)) == Plan()


def test_a_gang_that_finds_no_place_leaves_its_victims_where_they_were() -> None:
    jobs = (job("a"), job("b"), job("x"), job("y"), job("g", 2))
    view = view_with("2x2:v100", *jobs, running="abxy")

    plan = pack(view, rows(0, 2, 4, 1, 3), consolidate)

    assert plan.changes == {}


def test_a_skewed_gang_that_fails_does_not_speak_for_one_that_may_be_spread() -> None:
    view = view_with("2x2:v100", job("s", 2, skew=0.9), job("t", 2, skew=0.01))
    for node in (0, 1):
        view.free.take(Allocation((view.free.slice(node, 1),)))

    plan = backfill(view, rows(0, 1), by_skew(0.25))

    assert who(view, plan) == "t"


def test_with_several_kinds_each_is_filled_in_order() -> None:
    jobs = (job("a", 2, "t4"), job("b", 2, "t4"), job("c", 2), job("d", 1))
    view = view_of("1x2:t4+1x2:a100", *jobs)

    plan = pack(view, rows(0, 1, 2, 3))

    assert who(view, plan) == "ac"
    assert view.cluster.kind_of(view.after(plan)[JobId("c")]) == "a100"


def test_a_job_may_be_moved_off_a_kind_that_another_insists_on() -> None:
    view = view_with("1x2:t4+1x2:a100", job("a", 2), job("b", 2, "t4"), running="a")

    plan = pack(view, rows(1, 0))

    after = view.after(plan)
    assert view.cluster.kind_of(after[JobId("b")]) == "t4"
    assert view.cluster.kind_of(after[JobId("a")]) == "a100"


def test_parts_share_devices() -> None:
    view = view_of(1, job("a", share=0.5), job("b", share=0.6), job("c", share=0.5))

    assert who(view, pack(view, rows(0, 1, 2))) == "ac"


@examples(120)
@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 10), min_size=1, max_size=15).flatmap(
        lambda sizes: st.tuples(st.just(sizes), st.permutations(range(len(sizes))))
    ),
)
def test_on_one_kind_packing_agrees_with_the_obvious_greedy(
    nodes: int, queue: tuple[list[int], list[int]]
) -> None:
    """From a state that packing itself leads to, and for any order."""
    sizes, order = queue
    state = State(cluster_of(f"{nodes}x2:v100"))
    for i, size in enumerate(sizes):
        state.fold(0.0, Submitted(job(f"j{i}", size)))
    first = pack(View(0.0, state.table, state.cluster, state.free), np.arange(len(sizes)))
    state.free.rollback(0)
    state.fold(0.0, Decided(1, first.changes))
    state.free.commit()
    view = View(1.0, state.table, state.cluster, state.free)

    plan = pack(view, rows(*order))

    room, expected = 2 * nodes, set()
    for row in order:
        if sizes[row] <= room:
            room -= sizes[row]
            expected.add(JobId(f"j{row}"))
    assert set(view.after(plan)) == expected
    assert not expected & set(view.held()) & set(plan.changes), "who stays is not moved"


# ---- backfill, in turn, start all


def test_backfill_starts_whoever_fits_and_stops_nobody() -> None:
    view = view_with(8, job("a", 6), job("b", 4), job("c", 2), job("d", 1), running="a")

    plan = backfill(view, rows(1, 2, 3, 0))

    assert who(view, plan) == "ac"
    assert None not in plan.changes.values()


def test_who_fits_beside_the_first_starts_though_very_many_that_do_not_come_before_it() -> None:
    many = [Job(JobId(f"j{i}"), demand=Demand(5)) for i in range(150)]
    small = [Job(JobId(f"s{i}"), demand=Demand(3)) for i in range(10)]
    view = view_with(8, *many, *small)

    plan = backfill_by(view, np.arange(160.0))

    assert set(plan.changes) == {"j0", "s0"}


def test_in_turn_nobody_overtakes() -> None:
    view = view_with(8, job("a", 2), job("b", 4), job("c", 4), job("d", 1), running="a")

    plan = in_turn(view, rows(0, 1, 2, 3))

    assert who(view, plan) == "ab"


@pytest.mark.parametrize("start", [in_turn, backfill])
def test_a_long_walk_starts_the_first_that_fit_however_many_those_are(
    start: Callable[[View, Rows], Plan],
) -> None:
    count = 2 * STRETCH + 40
    view = view_with("130x8:v100", *(job(f"j{i}") for i in range(count)))

    plan = start(view, np.arange(count))

    assert list(plan.changes) == [f"j{i}" for i in range(1040)]


def test_all_are_started_only_if_all_fit() -> None:
    roomy = view_with(8, job("a", 4), job("b", 2), job("c", 2), running="a")
    tight = view_with(8, job("a", 4), job("b", 2), job("c", 4), running="a")

    plan = start_all(roomy)

    assert plan is not None
    assert who(roomy, plan) == "abc"
    assert start_all(tight) is None
    assert tight.free.idle() == 4


def test_all_means_all_even_if_the_count_would_do() -> None:
    view = view_with("2x2:v100", job("s"), job("g", 2))
    view.free.take(Allocation((view.free.slice(0, 1),)))

    assert start_all(view, consolidate) is not None
    view.free.rollback(0)
    for node in (0, 1):
        view.free.take(Allocation((view.free.slice(node, 1),)))
    assert start_all(view.restrict(np.array([False, True])), consolidate) is None
    assert view.free.idle() == 2


def test_with_nobody_waiting_there_is_nothing_to_start() -> None:
    assert start_all(view_with(4, job("a"), running="a")) == Plan()


def test_who_runs_after_a_plan_is_a_mask() -> None:
    view = view_with(8, job("a", 2), job("b", 2), job("c", 2), running="ab")
    plan = Plan({JobId("b"): None, JobId("c"): view.allocation(0)})

    assert running_after(view, plan).tolist() == [True, False, True]
    assert view.running().tolist() == [True, True, False]


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from([(1, 2, 3), (1, 4, 8), (2, 4), (5, 8, 6)]))
def test_where_many_wait_ranking_the_first_of_them_decides_the_same(
    seed: int, sizes: tuple[int, ...]
) -> None:
    """In order of a key with ties, beside running jobs, also where places are in pieces."""
    rng = np.random.default_rng(seed)
    state = State(cluster_of("4x4:v100"))
    for i, size in enumerate(rng.choice(sizes, 200).tolist()):
        state.fold(0.0, Submitted(job(f"j{i}", size, share=0.5 if size == 1 and i % 3 else 1.0)))
    first = pack(View(0.0, state.table, state.cluster, state.free), rng.permutation(200))
    state.free.rollback(0)
    state.fold(0.0, Decided(1, first.changes))
    for name in list(first.changes)[: int(rng.integers(4))]:
        state.fold(0.0, Cancelled(name))
    state.free.commit()
    view = View(1.0, state.table, state.cluster, state.free)
    key = rng.integers(0, int(rng.choice([2, 40, 10**6])), len(view.table)).astype(float)
    key[rng.random(len(key)) < 0.1] = np.inf

    def changes(plan: Plan) -> list[tuple[JobId, Allocation | None]]:
        view.free.rollback(0)
        return list(plan.changes.items())

    order = view.ranked(key)
    assert changes(pack_by(view, key)) == changes(pack(view, order, key=key))
    assert changes(backfill_by(view, key)) == changes(backfill(view, order))
