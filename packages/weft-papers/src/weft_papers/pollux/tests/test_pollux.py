"""Pollux on the numbers worked out from its definitions, and on what it promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.goodput_example import LIMITS, NOISE, TIMES

from weft.core.events.event import Decided, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Config, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.core.state.table import JobTable, Rows
from weft.perf.goodput.model import best_batch
from weft.testing import view_of
from weft_papers.pollux.authors import (
    AuthorsPollux,
    Goals,
    compute_crowding,
    fronts,
    search,
    utility,
)
from weft_papers.pollux.genetic import Matrix
from weft_papers.pollux.machines import MachineParts
from weft_papers.pollux.policy import (
    Pollux,
    PolluxMemory,
    power_mean_terms,
    restart_factor,
    speedups,
)


class Told(NothingLearnt):
    """Beliefs in which every known job is the same."""

    def __init__(self, most: float = 64.0, unknown: Sequence[str] = ()) -> None:
        self._most = most
        self._unknown = unknown

    def observe(self, job: Job, kind: str, report: Report) -> None:
        pass

    def forget(self, job: Job) -> None:
        pass

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        return np.ones((len(table), len(kinds)))

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        return np.ones((len(table), len(configs)))

    def blind_goodputs(
        self, table: JobTable, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        goodput = best_batch(TIMES, NOISE, nodes, replicas, LIMITS).goodput
        rows = [goodput * (np.nan if job.id in self._unknown else 1.0) for job in table.jobs]
        return np.array(rows)

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        return np.ones((len(table), len(kinds)))

    def most_run(self, table: JobTable) -> Floats:
        return np.array([0.0 if j.id in self._unknown else self._most for j in table.jobs])

    def pairs(self, table: JobTable, kinds: Sequence[str], first: Rows, second: Rows) -> None:
        pass

    def restart_s(self, table: JobTable) -> Floats:
        return np.full(len(table), 30.0)


def elastic(*names: str) -> list[Job]:
    return [Job(JobId(name), demand=Demand(1, 1, 64)) for name in names]


def on(*parts: tuple[str, tuple[int, ...]]) -> Allocation:
    return Allocation(tuple(Slice(NodeId(node), gpus) for node, gpus in parts))


def seen(cluster: str, held: Mapping[str, Allocation | None], now: float, knowledge: Told) -> View:
    """A view in which elastic jobs hold what is said."""
    machines = parse_cluster(cluster)
    state = State(machines)
    for job in elastic(*held):
        state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, {JobId(name): where for name, where in held.items() if where}))
    return View(now, state.table, machines, state.free, knowledge=Knowledge(beliefs=knowledge))


def sizes(view: View, policy: Pollux) -> dict[str, int]:
    return {job: where.gpus for job, where in view.after(policy.decide(view)).items()}


# ---- fitness


def fitness(rows: Sequence[tuple[int, int, float]], p: float) -> float:
    """Of two jobs on 2 nodes of 4 GPUs, each with (nodes, replicas, restart factor)."""
    view = view_of("2x4:t4", *elastic("a", "b"))
    known = speedups(view.table, Told(), MachineParts.of(view))
    factor = np.array([row[2] for row in rows])
    each = power_mean_terms(known.values, factor, scale=2 / 8, p=p)
    total = sum(each[i, 1, int(nodes > 1), k] for i, (nodes, k, _) in enumerate(rows))
    mean = total / len(rows)
    return float(np.exp(mean) if p == 0 else (np.sign(p) * mean) ** (1 / p))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (((1, 4, 1.0), (1, 4, 1.0)), (0.251000, 0.251000, 0.251000, 0.250000)),
        (((2, 8, 1.0), (0, 0, 1.0)), (0.001994, 0.172142, 0.001414, 0.018501)),
        (((1, 2, 1.0), (1, 4, 1.0)), (0.196009, 0.205892, 0.191468, 0.199865)),
        (((1, 4, 0.809524), (1, 4, 1.0)), (0.224695, 0.227190, 0.223471, 0.224934)),
    ],
)
def test_fitness_is_the_power_mean_of_scaled_speedups(
    rows: tuple[tuple[int, int, float], ...], expected: tuple[float, ...]
) -> None:
    values = [fitness(rows, p) for p in (-1.0, 1.0, -2.0, 0.0)]

    assert values == pytest.approx(expected, abs=1e-6)


def test_speedups_are_over_a_fair_share_on_one_node() -> None:
    view = view_of("2x4:t4", *elastic("a", "b"))

    known = speedups(view.table, Told(), MachineParts.of(view))

    assert known.values[0, 0, [0, 2, 4]] == pytest.approx([0.0, 0.639134, 1.0], abs=1e-6)
    assert known.values[0, 1, 8] == pytest.approx(1.369135, abs=1e-6)


def test_a_job_that_nothing_is_known_of_scales_linearly_and_gets_one_gpu() -> None:
    view = view_of("2x4:t4", *elastic("a", "b"))

    known = speedups(view.table, Told(unknown=("b",)), MachineParts.of(view))

    assert known.values[1, 0] == pytest.approx(np.arange(9) / 4)
    assert known.most.tolist() == [8.0, 1.0]


def test_a_job_gets_at_most_twice_what_it_has_run_with() -> None:
    view = view_of("2x4:t4", *elastic("a"))

    known = speedups(view.table, Told(most=3), MachineParts.of(view))

    assert known.most.tolist() == [6.0]


def test_a_restart_costs_the_part_of_a_life_it_takes() -> None:
    age, restarts = np.array([600.0, 600.0, 60.0, 0.0]), np.array([0.0, 3.0, 2.0, 0.0])

    factor = restart_factor(age, restarts)

    assert factor == pytest.approx([0.952381, 0.809524, 0.0, 0.0], abs=1e-6)


def test_a_job_of_no_age_gains_nothing_by_a_change() -> None:
    view = view_of("2x4:t4", *elastic("a"))
    known = speedups(view.table, Told(), MachineParts.of(view))

    each = power_mean_terms(known.values, np.zeros(1), scale=0.25, p=-1.0)

    assert each[0, 1] == pytest.approx(np.full((2, 9), -1000.0), abs=1e-6)


# ---- the second objective


@pytest.mark.parametrize(
    ("state", "expected"), [(((4, 0), (0, 4)), 0.649169), (((2, 0), (0, 4)), 0.532038)]
)
def test_utility_is_the_part_of_ideal_scaling(
    state: tuple[tuple[int, int], ...], expected: float
) -> None:
    view = view_of("2x4:t4", *elastic("a", "b"))
    machines = MachineParts.of(view)
    known = speedups(view.table, Told(), machines)
    over_one_gpu = known.values / known.values[:, :1, 1:2]

    utilities = utility(over_one_gpu, machines.capacity, np.array(state, dtype=np.float32)[:, None])

    assert utilities == pytest.approx([expected], abs=1e-6)


def test_fronts_are_peeled_one_by_one() -> None:
    goals = np.array([[3.0, 1.0, 2.0, 1.0, 3.0], [1.0, 3.0, 0.5, 0.5, 1.0]])

    assert fronts(goals).tolist() == [0, 0, 1, 2, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_a_front_is_beaten_by_the_one_before_and_by_none_after(
    points: list[tuple[int, int]],
) -> None:
    goals = np.array(points, dtype=float).T

    rank = fronts(goals)

    first, other = goals[:, :, None], goals[:, None, :]
    beats = (first >= other).all(axis=0) & (first > other).any(axis=0)
    before = rank[:, None] == rank[None, :] - 1
    assert not (beats & (rank[:, None] >= rank[None, :])).any()
    assert ((beats & before).any(axis=0) == (rank > 0)).all()


def test_the_ends_of_a_front_are_the_loneliest() -> None:
    goals = np.array([[0.0, 1.0, 4.0, 0.0], [4.0, 3.0, 0.0, 0.0]])

    far = compute_crowding(goals, np.array([0, 0, 0, 1]))

    assert far.tolist() == [np.inf, 2.0, np.inf, np.inf]


def test_of_equal_states_on_a_front_only_one_is_lonely() -> None:
    goals = np.array([[0.0, 1.0, 1.0, 4.0, 4.0], [4.0, 3.0, 3.0, 0.0, 0.0]])

    assert compute_crowding(goals, np.zeros(5, dtype=int)).tolist() == [
        np.inf,
        2.0,
        0.0,
        np.inf,
        0.0,
    ]
    assert compute_crowding(np.ones((2, 3)), np.zeros(3, dtype=int)).tolist() == [0.0, 0.0, 0.0]
    assert compute_crowding(np.ones((2, 2)), np.zeros(2, dtype=int)).tolist() == [np.inf, np.inf]


# ---- the search of the authors' code


def problem(jobs: int, most: float = 8.0) -> tuple[Matrix, Goals]:
    """Equal jobs on 4 nodes of 4 GPUs, none of which holds anything."""
    view = seen("4x4:t4", dict.fromkeys((f"j{i}" for i in range(jobs)), None), 600.0, Told(most))
    machines = MachineParts.of(view)
    known = speedups(view.table, Told(most), machines)
    matrix = AuthorsPollux()._matrix(view, machines, known, np.arange(jobs))
    return matrix, Goals(-1.0, known.values, machines.capacity)


def test_goals_are_the_power_mean_and_utility() -> None:
    matrix, goals = problem(2)
    state = np.zeros((2, 1, 4), dtype=np.float32)
    state[0, 0, 0] = state[1, 0, 1] = 4.0

    fitness, use = goals(state, matrix.score_rows(state)[0].sum(axis=0))

    factor = restart_factor(np.array([600.0]), np.zeros(1))[0]
    speed = goals.values[0, 0, 4]
    assert fitness == pytest.approx([speed * factor * 4 / 16 + 1e-3])
    assert use == pytest.approx([2 * speed / 8])


def test_the_authors_search_finds_states_that_can_be_carried_out_and_that_nothing_beats() -> None:
    matrix, goals = problem(5)

    result = search(matrix, matrix.held[:, None], np.random.default_rng(0), goals, generations=30)

    states = result.states
    assert (fronts(result.goals) == 0).all()
    assert len(np.unique(result.mark)) == len(result.mark)
    assert (states.sum(axis=0) <= matrix.capacity).all()
    assert (states.sum(axis=2) <= matrix.most[:, None]).all()
    spread = (states > 0) & ((states > 0).sum(axis=2) > 1)[:, :, None]
    assert (spread.sum(axis=0) <= 1).all()
    assert result.goals[0].max() > goals(matrix.held[:, None], np.full(1, -5e3))[0, 0] * 10


def test_the_authors_search_ends_when_no_new_state_is_left() -> None:
    matrix, goals = problem(1, most=0.5)

    result = search(matrix, matrix.held[:, None], np.random.default_rng(0), goals)

    assert result.states.sum(axis=2).max() == 1.0
    assert result.states.shape[1] == 4  # on any of the nodes


def test_the_first_generation_is_the_seeds() -> None:
    matrix, goals = problem(3)
    state = np.zeros((3, 1, 4), dtype=np.float32)
    state[0, 0, 0] = 3.0

    result = search(matrix, state, np.random.default_rng(0), goals, generations=1)

    assert (result.states == state).all()


# ---- machines


def test_large_nodes_are_shown_in_parts_of_the_smallest() -> None:
    view = view_of("2x4:t4+1x8:a100", *elastic("a"))

    machines = MachineParts.of(view)

    assert [(p.name, p.gpus) for p in machines.parts] == [
        ("t4-0/0", (0, 1, 2, 3)),
        ("t4-1/0", (0, 1, 2, 3)),
        ("a100-2/0", (0, 1, 2, 3)),
        ("a100-2/4", (4, 5, 6, 7)),
    ]
    assert machines.smallest == 8


def test_a_job_gets_at_most_the_gpus_of_the_kind_there_are_fewest_of() -> None:
    view = view_of("1x4:t4+1x8:a100", *elastic("a"))

    assert MachineParts.of(view).smallest == 4
    assert speedups(view.table, Told(), MachineParts.of(view)).most.tolist() == [4.0]


def test_a_job_that_spans_kinds_keeps_the_kind_with_most() -> None:
    machines = MachineParts.of(view_of("2x4:t4+1x8:a100", *elastic("a")))
    counts = np.array([[4, 0, 3, 0], [2, 0, 2, 0], [0, 1, 0, 0]], dtype=np.float32)

    kept = machines.one_kind(counts, ("a100", "t4"))

    assert kept.tolist() == [[4, 0, 0, 0], [0, 0, 2, 0], [0, 1, 0, 0]]


def test_a_row_that_did_not_change_keeps_its_devices() -> None:
    held = {"a": on(("t4-0", (1, 3))), "b": on(("t4-0", (0,)))}
    view = seen("2x4:t4", held, 600.0, Told())
    machines = MachineParts.of(view)

    placed = machines.place(view, machines.held(view), np.array([[2, 0], [2, 2]], dtype=np.float32))

    assert placed.keys() == {1}
    assert placed[1] is not None
    assert [(s.node, s.gpus) for s in placed[1].slices] == [("t4-0", (0, 2)), ("t4-1", (0, 1))]


# ---- decisions


@pytest.mark.parametrize("policy", [Pollux(), AuthorsPollux()])
def test_two_equal_jobs_share_the_cluster(policy: Pollux) -> None:
    view = seen("2x4:t4", {"a": None, "b": None}, 600.0, Told())

    assert sizes(view, policy) == {"a": 4, "b": 4}


def test_a_lone_job_grows_to_twice_what_it_has_run_with() -> None:
    view = seen("4x4:t4", {"a": on(("t4-0", (0, 1)))}, 6000.0, Told(most=2))

    assert sizes(view, Pollux()) == {"a": 4}


@pytest.mark.parametrize(("pooled", "gpus"), [(False, 4), (True, 8)])
def test_what_jobs_of_the_same_model_taught_is_used_where_that_is_asked_for(
    gpus: int, *, pooled: bool
) -> None:
    view = seen("4x4:t4", {"a": on(("t4-0", (0, 1)))}, 6000.0, Told(most=2))
    pool: Any = Told(most=4)
    known = Knowledge(beliefs=Told(most=2), pooled=pool)

    assert sizes(replace(view, knowledge=known), Pollux(pooled=pooled)) == {"a": gpus}


def test_nothing_moves_when_a_restart_would_cost_more_than_it_gains() -> None:
    held = {"a": on(("t4-0", (0, 1, 2, 3))), "b": on(("t4-1", (0, 1, 2)))}
    view = seen("2x4:t4", held, 40.0, Told())

    assert not Pollux().decide(view).changes


def test_what_jobs_hold_in_common_is_never_made_worse() -> None:
    held = {"a": on(("t4-0", (0, 1, 2, 3))), "b": on(("t4-1", (0, 1))), "c": None}
    view = seen("3x4:t4", held, 900.0, Told())
    policy = Pollux(population=10, generations=3)

    machines = MachineParts.of(view)
    matrix: Matrix = policy._matrix(
        view, machines, speedups(view.table, Told(), machines), np.arange(3)
    )
    plan = policy.decide(view)

    after = view.after(plan)
    wanted = np.zeros((3, 1, 3), dtype=np.float32)
    for row, job in enumerate(view.table.jobs):
        for piece in after[job.id].slices if job.id in after else ():
            wanted[row, 0, view.cluster.index[piece.node]] = len(piece.gpus)
    assert (
        matrix.score_rows(wanted)[0].sum()
        >= matrix.score_rows(machines.held(view)[:, None])[0].sum()
    )


def test_a_job_that_may_not_be_stopped_keeps_what_it_holds() -> None:
    view = seen("2x4:t4", {"a": on(("t4-0", (0,))), "b": None}, 6000.0, Told())
    fixed = replace(view.table.jobs[0], preemptible=False)
    state = State(view.cluster)
    for job in (fixed, view.table.jobs[1]):
        state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, {JobId("a"): on(("t4-0", (0,)))}))

    plan = Pollux().decide(
        View(6000.0, state.table, view.cluster, state.free, knowledge=Knowledge(beliefs=Told()))
    )

    assert JobId("a") not in plan.changes


def test_the_same_seed_gives_the_same_plan_and_memory_is_taken_up() -> None:
    view = seen("4x4:t4", {"a": None, "b": None, "c": None}, 600.0, Told())
    policy = Pollux(population=20, generations=5)

    first, second = policy.decide(replace(view)), policy.decide(replace(view))
    later = policy.decide(replace(view, memory=first.memory, decision=1))

    assert first.changes == second.changes
    assert isinstance(first.memory, PolluxMemory)
    assert isinstance(second.memory, PolluxMemory)
    assert isinstance(later.memory, PolluxMemory)
    assert (first.memory.states == second.memory.states).all()


def test_the_authors_search_goes_on_from_its_pareto_set() -> None:
    view = seen("4x4:t4", {"a": None, "b": None, "c": None}, 600.0, Told())

    all_, front = (
        policy(population=20, generations=5).decide(replace(view)).memory
        for policy in (Pollux, AuthorsPollux)
    )

    assert isinstance(all_, PolluxMemory)
    assert isinstance(front, PolluxMemory)
    assert front.states.shape[1] < all_.states.shape[1] == 20
    machines = MachineParts.of(view)
    known = speedups(view.table, Told(), machines)
    policy = AuthorsPollux()
    order = np.array([front.jobs.index(job.id) for job in view.table.jobs])
    matrix = policy._matrix(view, machines, known, np.arange(3))
    states = front.states[order].astype(np.float32)
    goals = np.stack(
        [matrix.score_rows(states)[0].sum(axis=0), utility(known.values, machines.capacity, states)]
    )
    assert (fronts(goals) == 0).all()


def test_memory_of_other_jobs_and_machines_is_no_trouble() -> None:
    gone = PolluxMemory((JobId("x"), JobId("a")), ("t4-9/0", "t4-0/0"), np.ones((2, 3, 2)))
    view = replace(seen("2x4:t4", {"a": None}, 600.0, Told()), memory=gone)

    assert sizes(view, Pollux()) == {"a": 8}


@pytest.mark.parametrize(
    ("policy", "expected"), [(Pollux(), [2.0, 1.0]), (AuthorsPollux(), [1.0, 2.0])]
)
def test_the_authors_code_takes_one_job_for_another_when_their_order_changes(
    policy: Pollux, expected: list[float]
) -> None:
    a, b, gone, new = (JobId(name) for name in ("a", "b", "gone", "new"))
    states = np.array([1.0, 3.0, 2.0]).reshape(3, 1, 1)  # of a, gone and b

    recalled = policy._recall(PolluxMemory((a, gone, b), ("p",), states), (new, b, a), ("p",))

    assert recalled is not None
    assert recalled[:, 0, 0].tolist() == [0.0, *expected]
