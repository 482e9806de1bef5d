"""The worked examples of Gandiva (OSDI 2018) and its invariants."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seeds import seeds

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Demand, Job, JobId, NodeId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of
from weft.policies.fifo import Fifo
from weft.testing import view_of, with_knowledge
from weft_papers.gandiva.occupancy import GandivaMemory, HomeOccupancy, next_turn
from weft_papers.gandiva.place import place
from weft_papers.gandiva.policy import Gandiva, defragment, worth_it
from weft_papers.gandiva.tests.gandiva_reference import Node
from weft_papers.tests.together import Done, job, together

SMALL = {"gpu_util": 30.0, "gmem_util": 10.0, "gmem_mib": 4096.0}


def sharing(view: View) -> View:
    return with_knowledge(view, colocation=Colocated(profile_of))


# ---- time slicing


@pytest.mark.parametrize(
    ("jobs", "hand_over", "rate"), [(2, 0.1, 0.499168), (3, 1.0, 0.327869), (4, 0.5, 0.247934)]
)
def test_equal_jobs_on_a_gpu_get_equal_parts_less_the_hand_over(
    jobs: int, hand_over: float, rate: float
) -> None:
    policy = Gandiva(limit=jobs, hand_over=hand_over)
    turns = 400
    length = 60.0 * turns

    done = together(policy, [(job(f"j{i}"), length) for i in range(jobs)], "1x1:v100")

    # The first turn of all costs no hand-over, every later one does.
    first = min(done.end.values())
    assert length / first == pytest.approx(rate, rel=0.005)
    period = np.diff([at for at, name in done.started() if name == "j0"])
    assert 60.0 / period[1:] == pytest.approx(rate, rel=1e-5)


def test_three_jobs_of_different_length_finish_when_worked_out_by_hand() -> None:
    work = [(job("a"), 600.0), (job("b"), 120.0), (job("c"), 60.0)]

    sliced = together(Gandiva(limit=3, hand_over=1.0), work, "1x1:v100")
    queued = together(Fifo(), work, "1x1:v100")

    assert sliced.end == {"a": 785.0, "b": 304.0, "c": 182.0}
    first_work = [sliced.start[name] + (name != "a") for name in "abc"]
    assert first_work == [0.0, 61.0, 122.0]
    assert queued.end == {"a": 600.0, "b": 720.0, "c": 780.0}
    assert list(queued.start.values()) == [0.0, 600.0, 720.0]
    assert np.mean(first_work) == 61.0
    assert np.mean(list(queued.start.values())) == 440.0


def sets(done: Done, quanta: int, quantum: float = 60.0) -> list[set[str]]:
    """Who runs in each quantum."""
    middles = [(k + 0.5) * quantum for k in range(quanta)]
    names = list(done.end)
    return [{names[r.seq] for r in done.physics.runs if r.start <= t < r.end} for t in middles]


def test_gangs_of_two_on_four_gpus_run_two_quanta_of_three() -> None:
    work = [(job(f"{i}", 2), 4000.0) for i in (1, 2, 3)]

    done = together(Gandiva(hand_over=0.0), work, "1x4:v100")

    assert sets(done, 6) == [{"1", "2"}, {"3", "1"}, {"2", "3"}] * 2
    assert 4000.0 / np.array(list(done.end.values())) == pytest.approx(2 / 3, rel=0.02)


def test_gangs_of_four_on_four_gpus_alternate() -> None:
    done = together(
        Gandiva(hand_over=0.0), [(job("1", 4), 6000.0), (job("2", 4), 6000.0)], "1x4:v100"
    )

    assert sets(done, 4) == [{"1"}, {"2"}] * 2
    assert 6000.0 / np.array(list(done.end.values())) == pytest.approx(0.5, rel=0.02)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=10), st.integers(1, 3))
def test_every_gang_runs_at_least_once_in_as_many_quanta_as_gangs_that_exclude_each_other(
    sizes: list[int], rounds: int
) -> None:
    of = {JobId(str(i)): size for i, size in enumerate(sizes)}
    order: Sequence[JobId] = list(of)
    waited = dict.fromkeys(of, 0)
    for _ in range(rounds * len(sizes)):
        turn = next_turn(order, of, 4)
        assert sum(of[unit] for unit in turn.inside) <= 4
        assert turn.inside[0] == order[0]
        order = turn.order
        for unit in of:
            waited[unit] = 0 if unit in turn.inside else waited[unit] + 1
        if sum(sizes) <= 8:  # what a limit of 2 lets in: once in height + 1 quanta at least
            assert max(waited.values()) <= ceil(sum(sizes) / 4)
        assert max(waited.values()) < len(sizes)


def test_suspended_jobs_hold_nothing() -> None:
    done = together(Gandiva(limit=3), [(job(f"j{i}"), 300.0) for i in range(3)], "1x1:v100")

    for run in done.physics.runs:
        together_ = [r for r in done.physics.runs if r.start < run.end and run.start < r.end]
        assert len(together_) == 1


# ---- packing


def test_a_pair_is_kept_only_if_it_does_more_than_turns() -> None:
    assert worth_it((8 / 10, 15 / 20))
    assert worth_it((6.2 / 10, 9 / 20))
    assert not worth_it((5 / 10, 9 / 20))
    assert not worth_it((0.5, 0.5))


def paired(*speeds: float) -> Colocated:
    return Colocated(profile_of, lambda group: list(speeds[: len(group)]))


def test_packing_that_pays_replaces_turns() -> None:
    work = [(job("a", hints=SMALL), 900.0), (job("b", hints=SMALL), 900.0)]

    done = together(Gandiva(hand_over=0.0), work, "1x1:v100", paired(0.8, 0.8))

    assert done.end == {"a": 1125.0, "b": 1125.0}
    assert len(done.started()) == 2


def test_packing_that_does_not_pay_is_undone_after_one_quantum_and_not_tried_again() -> None:
    work = [(job("a", hints=SMALL), 600.0), (job("b", hints=SMALL), 600.0)]

    done = together(Gandiva(hand_over=0.0), work, "1x1:v100", paired(0.4, 0.4))

    both = [r for r in done.physics.runs if r.on.sharing.share == 0.5]
    assert {(r.start, r.end) for r in both} == {(0.0, 60.0)}
    # 24 s of work each in the trial, then turns of 60 s: 576 s left each.
    assert done.end["a"] == 60.0 + 60.0 * 9 + 60.0 * 9 + 36.0


def test_two_that_part_go_to_different_devices() -> None:
    work = [(job(n, hints=SMALL), 300.0) for n in "abc"] + [(job("d"), 50.0)]

    done = together(Gandiva(hand_over=0.0), work, "1x3:v100", paired(0.4, 0.4))

    # The trial ends when d has left, so there is a device for everybody.
    assert [r.on.sharing.share for r in done.physics.runs if r.start >= 60.0] == [1.0, 1.0]
    assert max(done.end.values()) < 340.0


def test_jobs_that_do_not_fit_in_memory_together_are_not_packed() -> None:
    large = {**SMALL, "gmem_mib": 20 * 1024.0}

    done = together(
        Gandiva(), [(job(n, hints=large), 300.0) for n in "ab"], "1x1:v100", paired(0.9, 0.9)
    )

    assert all(r.on.sharing.share == 1.0 for r in done.physics.runs)


def test_the_least_busy_jobs_are_packed_first() -> None:
    busy = [("a", 90.0), ("b", 40.0), ("c", 20.0)]
    work = [(job(n, hints={**SMALL, "gpu_util": u}), 600.0) for n, u in busy]

    done = together(Gandiva(limit=3), work, "1x1:v100", paired(0.9, 0.9))

    first = [r for r in done.physics.runs if r.on.sharing.share == 0.5 and r.start == 0.0]
    assert sorted(r.seq for r in first) == [1, 2]


@given(st.floats(0.1, 1.0), st.floats(0.1, 1.0))
def test_a_pair_that_gains_nothing_never_stays_together(first: float, other: float) -> None:
    def speeds(group: Sequence[Profile]) -> list[float]:
        return [first if p.tag == "a" else other for p in group]

    work = [(job(n, model=n, hints=SMALL), 400.0) for n in "ab"]
    done = together(Gandiva(hand_over=0.0), work, "1x1:v100", Colocated(profile_of, speeds))

    shared = max((r.end for r in done.physics.runs if r.on.sharing.share == 0.5), default=0.0)
    if first + other <= 1.0:
        assert shared <= 60.0


# ---- placement


def homes(view: View, sizes: Sequence[int], limit: float = 2.0) -> list[str | None]:
    """Where jobs of these sizes go, one after the other."""
    book = HomeOccupancy(view, GandivaMemory())
    nodes: list[str | None] = []
    for i, _ in enumerate(sizes):
        home = place(book, view.job(i), limit)
        nodes.append(None if home is None else ",".join(home))
        if home is not None:
            book.assign_home(view.job(i).id, home)
    return nodes


def test_affinity_placement_of_the_worked_example() -> None:
    sizes = [1, 2, 1, 2, 4, 2, 1]
    view = view_of("3x4:v100", *((f"j{i}", g, 60.0) for i, g in enumerate(sizes)))

    chosen = homes(view, sizes)

    n1, n2, n3 = "v100-0", "v100-1", "v100-2"
    assert chosen == [n1, n2, n1, n2, n3, n1, n1]


def test_a_node_promises_at_most_its_limit_and_the_rest_queues() -> None:
    view = view_of("1x4:v100", *((f"j{i}", 2, 60.0) for i in range(5)))

    assert homes(view, [2] * 5) == ["v100-0"] * 4 + [None]


def test_a_gang_larger_than_a_node_waits_for_empty_nodes() -> None:
    view = view_of("3x4:v100", ("a", 1, 60.0), ("b", 8, 60.0), ("c", 8, 60.0))

    assert homes(view, [1, 8, 8]) == ["v100-0", "v100-1,v100-2", None]


def test_an_empty_node_has_no_affinity() -> None:
    work = [(job("a", 2), 60.0), (job("b", 1, at=100.0), 60.0)]
    done = together(Gandiva(hand_over=0.0), work, "1x4:v100")
    book = HomeOccupancy(
        view_of("1x4:v100", ("x", 1, 60.0)), GandivaMemory(affinity={NodeId("v100-0"): 2})
    )

    assert book.affinity == {}
    assert done.end["b"] == 160.0


# ---- migration, growing, shrinking


def test_defragmentation_frees_a_whole_node_by_one_migration() -> None:
    view = view_of("3x4:v100", *((f"j{i}", g, 60.0) for i, g in enumerate((1, 2, 2, 1))))
    nodes = [NodeId(f"v100-{i}") for i in range(3)]
    book = HomeOccupancy(view, GandivaMemory())
    for i, (node, gpus) in enumerate(((0, 1), (1, 2), (2, 2), (2, 1))):
        book.assign_home(view.job(i).id, {nodes[node]: gpus})
    assert [book.free(n) for n in nodes] == [3, 2, 1]

    defragment(book, 0.75)

    assert [book.free(n) for n in nodes] == [4, 2, 0]
    assert book.home[JobId("j0")] == {nodes[2]: 1}
    assert [book.home[JobId(f"j{i}")] for i in (1, 2, 3)] == [
        {nodes[1]: 2},
        {nodes[2]: 2},
        {nodes[2]: 1},
    ]


def test_a_node_is_emptied_largest_job_first_so_that_all_find_room() -> None:
    # Rooms of 3 and 2 take 2 + 1 and 2; the single GPU first would leave one of the pairs out.
    sizes = ((0, 1), (0, 2), (0, 2), (1, 5), (2, 6))
    view = view_of("3x8:v100", *((f"j{i}", g, 60.0) for i, (_, g) in enumerate(sizes)))
    nodes = [NodeId(f"v100-{i}") for i in range(3)]
    book = HomeOccupancy(view, GandivaMemory())
    for i, (node, gpus) in enumerate(sizes):
        book.assign_home(view.job(i).id, {nodes[node]: gpus})

    defragment(book, 0.25)

    assert [book.free(n) for n in nodes] == [8, 0, 0]


def test_a_job_in_turns_moves_to_a_vacated_gpu() -> None:
    work = [(job("a"), 600.0), (job("b"), 90.0), (job("c"), 600.0)]

    done = together(Gandiva(hand_over=0.0, migrate=True), work, "2x1:v100")
    stays = together(Gandiva(hand_over=0.0, migrate=False), work, "2x1:v100")

    assert max(done.end.values()) < 700.0
    assert max(stays.end.values()) >= 1150.0


def test_a_job_grows_into_idle_gpus_and_gives_them_back_to_a_newcomer() -> None:
    elastic = Job(JobId("a"), 0.0, Demand(1, min=1, max=4))
    work = [(elastic, 1000.0), (job("b", 3, at=100.0), 50.0)]

    done = together(Gandiva(elastic=True, hand_over=0.0), work, "1x4:v100")

    sizes = [(r.start, r.on.gpus) for r in done.physics.runs if r.seq == 0]
    assert sizes[0][1] == 2
    assert done.start["b"] == 100.0
    assert (100.0, 1) in sizes
    assert done.end["b"] == 150.0
    assert done.end["a"] < 1000.0


def test_nobody_grows_while_somebody_waits() -> None:
    elastic = Job(JobId("a"), 0.0, Demand(1, min=1, max=4))
    view = sharing(view_of("1x4:v100", elastic, ("b", 8, 60.0)))

    plan: Plan = Gandiva(elastic=True).decide(view)

    on = plan.changes[JobId("a")]
    assert on is not None
    assert on.gpus == 1


def test_turns_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="make no turns"):
        Gandiva(quantum=0.0)


# ---- against an independent simulation


def test_the_next_job_has_a_whole_quantum_after_an_early_end() -> None:
    work = [(job("a"), 30.0), (job("b"), 200.0), (job("c"), 200.0)]

    done = together(Gandiva(limit=3, hand_over=0.0, pack=False), work, "1x1:v100")

    assert [(run.seq, run.start, run.end) for run in done.physics.runs[:4]] == [
        *((0, 0.0, 30.0), (1, 30.0, 90.0), (2, 90.0, 150.0), (1, 150.0, 210.0))
    ]


def test_nodes_have_quanta_of_their_own() -> None:
    first = [(job("a"), 500.0), (job("b"), 500.0)]
    later = [(job("c", at=20.0), 500.0), (job("d", at=20.0), 500.0)]

    done = together(
        Gandiva(limit=2, hand_over=0.0, pack=False, migrate=False), first + later, "2x1:v100"
    )

    changes = sorted({run.end for run in done.physics.runs if run.end < 150.0})
    assert changes == [80.0, 140.0]  # both nodes are oversubscribed from 20 s on


@pytest.mark.parametrize("seed", seeds(25))
def test_packing_and_turns_end_every_job_as_in_an_independent_simulation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, gpus = int(rng.integers(2, 7)), int(rng.choice([1, 2, 4]))
    size = int(rng.choice([1, 2])) if gpus > 1 else 1
    names = [f"j{i}" for i in range(count)]
    gain = {name: float(rng.uniform(0.3, 0.95)) for name in names}
    jobs = [
        (
            name,
            size,  # a node's jobs are of one size
            float(rng.integers(40, 900)),
            float(rng.choice([10.0, 30.0, 50.0, 80.0, 100.0])) / 100.0,
        )
        for name in names
    ]

    def speeds(group: Sequence[Profile]) -> list[float]:
        return [gain[p.tag] for p in group] if len(group) > 1 else [1.0]

    work = [
        (job(name, size, model=name, hints={**SMALL, "gpu_util": 100.0 * use}), length)
        for name, size, length, use in jobs
    ]
    policy = Gandiva(limit=20, hand_over=0.0, migrate=False)
    done = together(policy, work, f"1x{gpus}:v100", Colocated(profile_of, speeds))

    reference = Node(gpus, jobs, lambda first, other: (gain[first], gain[other]))
    assert done.end == pytest.approx(reference.run())
