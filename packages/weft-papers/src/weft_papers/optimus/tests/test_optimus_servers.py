"""Optimus (EuroSys 2018) for jobs of workers and parameter servers: sizes, places, whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.core.events.event import Decided, Started, Submitted
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.formulas.training.tasks import Ratios, Task, Tasks, tasks_of
from weft.perf.training.layered import ModelLayer, Network, place_together, step_s
from weft.perf.training.servers import Asynchronous, Synchronous
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.place.resize import resize
from weft.testing import cluster_of, view_of, with_knowledge
from weft_papers.optimus.policy import Optimus, find_served_rows
from weft_papers.optimus.tasks import NodeRemainder, place_evenly, shrink
from weft_papers.tests.training_ports import NoTraining, tasks_held

SYNC = Synchronous(0.02, 0.5, 1.0, 0.02, 0.05, batch=128)
ASYNC = Asynchronous(2.0, 1.0, 0.05, 0.1)
HINTS = {"server_cpus": 1.0, "worker_cpus": 1.0, "samples": 1.0, "batch": 1.0, "most_servers": 9.0}


@dataclass(frozen=True, slots=True)
class Known(NoTraining):
    """A training port with the laws of the worked example."""

    laws: Mapping[str, tuple[Synchronous | Asynchronous, float]]

    def ratios(self, job: Job) -> Ratios | None:
        return Ratios() if job.id in self.laws else None

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        law = self.laws[job.id][0]
        p, w = np.arange(1.0, servers + 1.0), np.arange(1.0, workers + 1.0)
        seconds = np.full((servers + 1, workers + 1), np.inf)
        seconds[1:, 1:] = 1.0 / law.speed(p[:, None], w[None, :])
        return seconds

    def steps_left(self, job: Job) -> float | None:
        return self.laws[job.id][1]


PORT = Known({"a": (SYNC, 1000.0), "b": (ASYNC, 200.0)})


def job(name: str, **more: float) -> Job:
    return Job(JobId(name), demand=Demand(1, min=1, max=9), hints={**HINTS, **more})


def cluster(nodes: int, gpus: int, cpus: float) -> Cluster:
    return Cluster(tuple(Node(NodeId(f"n{i}"), "v100", gpus, cpus, 999.0) for i in range(nodes)))


def servers_held(view: View) -> dict[str, tuple[int, int]]:
    return {name: (p, w) for name, (w, p) in tasks_held(view, Optimus()).items()}


# ---- 5.2 the greedy, through the policy


def test_the_worked_example() -> None:
    # Twelve cores in all, and GPUs enough; a GPU is what a worker takes most of when it is scarce.
    view = with_knowledge(view_of(cluster(1, 100, 12.0), job("a"), job("b")), training=PORT)

    assert servers_held(view) == {"a": (5, 3), "b": (2, 2)}


def test_servers_are_for_jobs_that_have_some_and_of_which_something_is_known() -> None:
    without = Job(JobId("b"), demand=Demand(1))
    view = with_knowledge(view_of(8, job("a"), without, job("unknown")), training=PORT)

    assert find_served_rows(view) == [0]


def test_everybody_gets_one_of_each_first_in_queue_order() -> None:
    view = with_knowledge(view_of(cluster(1, 9, 3.0), job("a"), job("b")), training=PORT)

    assert servers_held(view) == {"a": (2, 1)}


def test_what_the_first_servers_take_is_nobody_elses() -> None:
    # A server and a worker of "a" leave two cores: for a worker more, not for a server of "b".
    jobs = [job(name, server_cpus=4.0, worker_cpus=2.0) for name in "ab"]
    view = with_knowledge(view_of(cluster(1, 4, 8.0), *jobs), training=PORT)

    assert servers_held(view) == {"a": (1, 2)}


def test_a_users_limit_is_kept() -> None:
    view = with_knowledge(view_of(cluster(1, 9, 99.0), job("a", most_cpus=4.0)), training=PORT)

    servers, workers = servers_held(view)["a"]

    assert servers + workers <= 4


def test_a_job_stays_where_it_is_while_its_tasks_are_the_same() -> None:
    state = State(cluster(2, 4, 6.0))
    for name in "ab":
        state.fold(0.0, Submitted(job(name)))
    base = view_of(state.cluster)
    before = replace(with_knowledge(base, training=PORT), table=state.table, free=state.free)
    first = Optimus().decide(before)
    state.free.rollback(0)
    state.fold(0.0, Decided(1, first.changes))
    for name in "ab":
        state.fold(0.0, Started(JobId(name), 1))
    state.free.commit()

    again = Optimus().decide(
        replace(with_knowledge(base, training=PORT), table=state.table, free=state.free, now=600.0)
    )

    assert first.changes
    assert not again.changes


# ---- 3.4 placement


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 3))
def test_of_all_ways_to_fill_so_many_nodes_an_even_one_is_quickest(
    w: int, p: int, nodes: int
) -> None:
    network = Network((ModelLayer(0.0, 0.1, 125.0), ModelLayer(0.0, 0.2, 125.0)), 1.0)
    w, p = w * nodes, p * nodes
    splits = [
        tuple(zip(ws, ps, strict=True))
        for ws in product(range(w + 1), repeat=nodes)
        for ps in product(range(p + 1), repeat=nodes)
        if sum(ws) == w
        and sum(ps) == p
        # The fewest nodes that hold all tasks are full.
        and all(a + b == (w + p) // nodes for a, b in zip(ws, ps, strict=True))
    ]

    ours = step_s(network, 0.0, place_together(w, p, max(w // nodes, 1)))

    assert ours <= min((step_s(network, 0.0, s) for s in splits), default=np.inf) + 1e-9


TASKS = Tasks(Task(1.0, 2.0, 8.0), Task(0.0, 3.0, 9.0), 2, 99, 1.0, 1.0)


@settings(deadline=None)
@given(st.integers(1, 10), st.integers(1, 10), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_a_place_is_even_fits_and_uses_the_fewest_of_the_least_used(
    workers: int, servers: int, taken: list[int]
) -> None:
    view = view_of(Cluster(tuple(Node(NodeId(f"n{i}"), "v100", 4, 16.0, 96.0) for i in range(6))))
    for i, count in enumerate(taken):
        if count:
            view.free.take(Allocation((view.free.slice(i, count),)))
    room = NodeRemainder(view, 25.0)

    on = place_evenly(TASKS, workers, servers, room, "v100")

    left = sorted(([4 - t, 16.0 - 4.0 * t, 96.0 - 24.0 * t] for t in taken), key=lambda n: -n[1])
    if on is None:
        return
    split = TASKS.split(on)
    assert (sum(w for w, _ in split), sum(p for _, p in split)) == (workers, servers)
    for column in zip(*split, strict=True):
        assert max(column) - min(column) <= 1
    assert view.free.fits(on)
    for fewer in range(1, len(split)):
        dealt = [
            TASKS.need(len(range(i, workers, fewer)), len(range(i, servers, fewer)))[:3]
            for i in range(fewer)
        ]
        fits = all(
            (need <= np.array(room) + 1e-9).all()
            for need, room in zip(dealt, left[:fewer], strict=True)
        )
        assert not fits


def test_a_job_that_does_not_fit_whole_shrinks_to_what_does() -> None:
    room = NodeRemainder(view_of(cluster_of("1x2:v100")), 25.0)  # 16 cores

    on = shrink(TASKS, 4, 4, room, "v100")

    assert on is not None
    assert TASKS.split(on) == ((2, 3),)
    assert shrink(TASKS, 4, 4, NodeRemainder(view_of(cluster(1, 2, 4.0)), 25.0), "v100") is None


@pytest.mark.parametrize(("workers", "servers"), [*product(range(1, 4), range(1, 4))])
def test_where_there_is_room_a_job_that_shrinks_keeps_all(workers: int, servers: int) -> None:
    on = shrink(TASKS, workers, servers, NodeRemainder(view_of(cluster(1, 4, 99.0)), 25.0), "v100")

    assert on is not None
    assert TASKS.split(on) == ((workers, servers),)


def test_a_job_shrinks_by_turns() -> None:
    # Of seven cores a worker takes two, a server three, and then it is a server's turn.
    on = shrink(TASKS, 4, 4, NodeRemainder(view_of(cluster(1, 4, 7.0)), 25.0), "v100")

    assert on is not None
    assert TASKS.split(on) == ((1, 1),)


def test_links_are_counted_for_running_jobs() -> None:
    hungry = replace(TASKS, server=Task(0.0, 3.0, 9.0, 10.0))
    hints = {"server_cpus": 3.0, "worker_cpus": 2.0, "server_gbps": 10.0, "server_mem_gb": 9.0}
    job = Job(JobId("x"), demand=Demand(2), hints={**HINTS, **hints, "worker_mem_gb": 8.0})
    room = NodeRemainder(view_of(cluster_of("1x4:v100"), job), 25.0)
    on = place_evenly(hungry, 2, 2, room, "v100")
    assert on is not None

    room.take(job, on)

    assert room.left[0, 3] == pytest.approx(5.0)
    assert place_evenly(hungry, 1, 1, room, "v100") is None
    room.give(job, on)
    assert room.left[0, 3] == pytest.approx(25.0)


def test_the_tasks_of_a_job_are_dealt_evenly_to_its_nodes() -> None:
    # Two of each on two nodes of three cores: filled in turn the first would get two servers.
    asked = job("a", most_cpus=4.0)
    view = with_knowledge(view_of(cluster(2, 4, 3.0), asked), training=PORT)

    on = view.after(Optimus().decide(view))[asked.id]

    tasks = tasks_of(asked)
    assert tasks is not None
    assert tasks.split(on) == ((1, 1), (1, 1))


def test_what_tasks_of_running_jobs_take_of_links_is_not_left() -> None:
    asked = job("a", worker_gbps=3.0, server_gbps=4.0)
    state = State(cluster(2, 4, 16.0))
    state.fold(0.0, Submitted(asked))
    tasks = tasks_of(asked)
    assert tasks is not None
    on = place_evenly(tasks, 2, 1, NodeRemainder(view_of(state.cluster), 25.0), "v100")
    assert on is not None
    state.fold(0.0, Decided(1, {asked.id: on}))
    view = replace(view_of(state.cluster), table=state.table, free=state.free)

    assert NodeRemainder(view, 25.0).left[:, 3].tolist() == [25.0 - 2 * 3.0 - 4.0, 25.0]


def test_a_job_may_have_more_servers_than_workers() -> None:
    narrow = replace(job("a"), demand=Demand(1, min=1, max=2))
    view = with_knowledge(view_of(cluster(1, 9, 12.0), narrow), training=PORT)

    servers, workers = servers_held(view)["a"]

    assert servers > 2 >= workers


def test_jobs_of_few_tasks_are_placed_first() -> None:
    # Two nodes with room for four tasks each. The small job has one of each, and both fit whole
    # if it goes first: it takes two, the large one the other node with two of each.
    small = job("a", most_cpus=2.0)
    view = with_knowledge(
        view_of(cluster(2, 4, 4.0), job("b", most_cpus=4.0), small), training=PORT
    )

    after = view.after(Optimus().decide(view))

    assert [on.slices[0].node for on in (after[JobId("a")], after[JobId("b")])] == ["n0", "n1"]


# ---- resizing in place


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.integers(1, 20), st.integers(1, 16))
def test_a_resized_job_keeps_the_devices_it_can(taken: list[int], had: int, wanted: int) -> None:
    view = view_of(cluster_of("4x4:v100"))
    on = fewest_nodes(Job(JobId("a"), demand=Demand(min(had, 16))), view.free)
    assert on is not None
    view.free.take(on)
    for node, count in enumerate(taken):
        if count := min(count, view.free.on(node)):
            view.free.take(Allocation((view.free.slice(node, count),)))
    idle = view.free.idle("v100")
    view.free.give(on)

    to = resize(on, wanted, view.free)

    if wanted > on.gpus + idle:
        assert to is None
        return
    assert to is not None
    assert to.gpus == wanted
    assert view.free.fits(to)
    old = {(s.node, g) for s in on.slices for g in s.gpus}
    new = {(s.node, g) for s in to.slices for g in s.gpus}
    assert len(old & new) == min(len(old), wanted)


# ---- whole runs


def test_a_whole_run_beats_a_fixed_ratio_under_load() -> None:
    result = weft.compare(
        "servers", ["fifo", Optimus(interval=60.0)], "32x2:v100", jobs=60, load=4.0
    )

    assert result.mean("optimus", "finished") == 60
    assert result.mean("optimus", "avg_jct_h") < result.mean("fifo", "avg_jct_h")


def test_plain_jobs_and_jobs_with_servers_are_served_side_by_side() -> None:
    plain = Job(JobId("c"), demand=Demand(2, min=1, max=4))
    view = with_knowledge(view_of(cluster(2, 4, 40.0), job("a"), plain), training=PORT)

    after = view.after(Optimus().decide(view))

    assert set(after) == {"a", "c"}
