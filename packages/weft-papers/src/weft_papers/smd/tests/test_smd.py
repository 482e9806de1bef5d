"""The worked examples of SMD (INFOCOM 2021) and its invariants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.core.events.event import Decided, Submitted
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.formulas.training.tasks import Ratios, SigmoidUtility, Task, Tasks, tasks_of
from weft.perf.training.layered import ratios
from weft.perf.training.learner import Learner
from weft.testing import cluster_of, view_of, with_knowledge
from weft.testing.build import FixedPredictor
from weft.traces.options import DrawRequest
from weft.traces.synthetic.training import SERVERS
from weft_papers.smd.knapsack import KnapsackItems, _optimum, _Problem, approximate, choose
from weft_papers.smd.policy import JobOffers, SizeSearch, Smd, _widen, offers_of
from weft_papers.smd.sum_of_ratios import Inner, _points, by_grid, by_scan
from weft_papers.tests.training_ports import NoTraining, tasks_held

SYNC = Tasks(Task(1.0, 2.0), Task(0.0, 3.0), 1, 99, 2 * 12800.0, 128.0)
ASYNC = replace(SYNC, batch=32.0, sync=False)
WORTH = SigmoidUtility(10.0, 0.05, 200.0)


def seconds(tasks: Tasks) -> Ratios:
    return ratios(tasks, forward_s=0.01, backward_s=0.2, exchange_s=0.6)


def inner(tasks: Tasks) -> Inner:
    return Inner(
        np.array([seconds(tasks)]),
        np.array([[1.0, 2.0]]),
        np.array([[0.0, 3.0]]),
        np.array([[8.0, 24.0]]),
        np.ones(1),
        np.full(1, 99.0),
        np.full(1, 99.0),
    )


# ---- 6.1 completion time and the inner problem


@pytest.mark.parametrize(
    ("w", "p", "tau", "worth"),
    [
        (1, 1, 416.0, 0.000204),
        (2, 1, 408.0, 0.000304),
        (4, 2, 344.0, 0.007460),
        (4, 4, 224.0, 2.314752),
        (6, 4, 262.6667, 0.417530),
        (3, 6, 185.3333, 6.755363),
    ],
)
def test_completion_time_and_worth(w: int, p: int, tau: float, worth: float) -> None:
    took = seconds(SYNC).at(w, p)

    assert took == pytest.approx(tau, abs=1e-4)
    assert float(WORTH.at(took)) == pytest.approx(worth, abs=1e-6)


@pytest.mark.parametrize(
    ("eps", "best", "programs"),
    [(0.5, 186.0915, 12), (0.2, 185.4584, 24), (0.1, 185.2693, 44), (0.01, 185.2690, 411)],
)
def test_the_grid_of_programs(eps: float, best: float, programs: int) -> None:
    problem = inner(SYNC)

    workers, servers, solved = _points(problem, eps)

    least = np.nanmin(problem.seconds(workers, servers))
    assert least == pytest.approx(best, abs=1e-4)
    assert solved[0] == programs
    assert least <= (1.0 + eps) * 185.26892


@pytest.mark.parametrize("size", [by_scan, by_grid])
def test_the_best_whole_numbers(size: object) -> None:
    assert callable(size)
    sync, loose = size(inner(SYNC)), size(inner(ASYNC))

    assert (sync.workers[0], sync.servers[0]) == (3.0, 6.0)
    assert sync.seconds[0] == pytest.approx(185.3333, abs=1e-4)
    assert (loose.workers[0], loose.servers[0]) == (6.0, 4.0)
    assert loose.seconds[0] == pytest.approx(189.3333, abs=1e-4)
    assert float(WORTH.at(loose.seconds[0])) == pytest.approx(6.302602, abs=1e-6)


# ---- 6.2 the outer problem


def test_the_knapsack() -> None:
    need = np.array([[4, 20], [3, 10], [2, 14], [1, 12], [2, 4]], dtype=float)
    offers = KnapsackItems(np.arange(5), np.array([9.0, 7.0, 6.5, 4.0, 3.0]), need)

    chosen = choose(offers, np.array([6.0, 34.0]))

    assert chosen == [0, 2]
    assert offers.worth[chosen].sum() == 15.5


def draw_offers(seed: int, jobs: int = 7, sizes: int = 3) -> tuple[KnapsackItems, np.ndarray]:
    """Sizes of some jobs, of which each fits alone; worth in steps, so that some are equal."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(jobs), sizes)
    need = rng.integers(1, 9, (jobs * sizes, 2)).astype(float)
    worth = np.ceil(need.sum(axis=1) * rng.uniform(0.5, 2.0, jobs * sizes)) / 16.0
    return KnapsackItems(owner, worth, need), np.array([14.0, 18.0])


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_with_one_fixed_is_the_same_for_all_at_once(seed: int) -> None:
    problem = _Problem(*draw_offers(seed))

    alone = [problem.bound_with((i,)) for i in range(len(problem.offers))]

    assert problem.single_bounds().tolist() == pytest.approx(alone)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_fixed_first_finds_the_optimum_where_all_of_it_is_tried(seed: int) -> None:
    """No set that may win is passed over: with as many fixed as there are jobs one is the best."""
    offers, room = draw_offers(seed, jobs=4)
    best = offers.worth[_optimum(offers, room)].sum()

    fixed = [approximate(offers, room, count, None) for count in range(5)]

    worths = [offers.worth[chosen].sum() for chosen in fixed]
    assert worths == sorted(worths)
    assert worths[-1] == pytest.approx(best)
    assert all((offers.need[chosen].sum(axis=0) <= room + 1e-9).all() for chosen in fixed)
    assert all(len({*offers.owner[chosen]}) == len(chosen) for chosen in fixed)


def test_to_fix_one_job_finds_more_than_to_fix_none() -> None:
    drawn = [draw_offers(seed) for seed in range(20)]

    without, with_job = (
        [offers.worth[approximate(offers, room, fixed, 16)].sum() for offers, room in drawn]
        for fixed in (0, 1)
    )

    assert all(more >= fewer - 1e-9 for fewer, more in zip(without, with_job, strict=True))
    assert sum(with_job) > sum(without) + 1e-6


# ---- the policy

LADDER = SizeSearch(rungs=1, eps=0.1, exact=True, node_gbps=10.0)


class Stated(NoTraining):
    """A training port that repeats ratios it was told."""

    def __init__(self, known: Mapping[JobId, Ratios]) -> None:
        self._known = known

    def ratios(self, job: Job) -> Ratios | None:
        return self._known.get(job.id)


HINTS = {
    "worker_cpus": 2.0,
    "server_cpus": 3.0,
    "samples": 25600.0,
    "batch": 128.0,
    "most_gpus": 8.0,
    "most_cpus": 24.0,
    "most_servers": 99.0,
    "worth": 10.0,
    "haste": 0.05,
    "target_s": 200.0,
}


def job(name: str, **more: float) -> Job:
    return Job(JobId(name), demand=Demand(3, min=1, max=8), hints={**HINTS, **more})


def machines(*sizes: tuple[int, float]) -> Cluster:
    return Cluster(
        tuple(Node(NodeId(f"n{i}"), "v100", g, c, 512.0) for i, (g, c) in enumerate(sizes))
    )


def view(cluster: Cluster, *jobs: Job, now: float = 0.0) -> View:
    stated = Stated({job.id: seconds(SYNC) for job in jobs})
    return with_knowledge(view_of(cluster, *jobs, now=now), training=stated)


def test_a_lone_job_gets_its_best_size() -> None:
    assert tasks_held(view(machines((8, 64.0)), job("a")), Smd()) == {"a": (3, 6)}


def test_a_scan_of_all_sizes_finds_what_a_coarse_grid_passes_over() -> None:
    # Worked out: 3 workers and 6 servers are best where all workers wait for each other, 6 and 4
    # where they do not and nobody may have more than 6 workers.
    both = (replace(job("in-step"), demand=Demand(3, min=1, max=8)),)
    loose = replace(job("loose"), demand=Demand(3, min=1, max=6))
    known = Stated({both[0].id: seconds(SYNC), loose.id: seconds(ASYNC)})

    def sizes(policy: Smd, job: Job) -> tuple[int, int]:
        there = with_knowledge(view_of(machines((8, 64.0)), job), training=known)
        return tasks_held(there, policy)[job.id]

    exact, coarse = Smd(exact=True, rungs=1), Smd(eps=50.0, rungs=1)
    assert [sizes(exact, asked) for asked in (*both, loose)] == [(3, 6), (6, 4)]
    assert sizes(coarse, both[0]) != (3, 6)


def test_jobs_that_do_not_fit_together_take_smaller_rungs_or_wait() -> None:
    two = view(machines((8, 36.0)), job("a", worth=10.0, haste=0.001), job("b", haste=0.001))

    with_rungs = tasks_held(two, Smd())
    without = tasks_held(two, Smd(rungs=1))

    assert set(with_rungs) == {"a", "b"}
    assert len(without) == 1


def test_what_is_worth_most_is_admitted() -> None:
    rich = view(machines((8, 24.0)), job("poor", worth=1.0), job("rich", worth=100.0))

    assert set(tasks_held(rich, Smd(rungs=1))) == {"rich"}


@pytest.mark.parametrize("rows", [(0, 1), (1, 0)])
def test_waiting_lowers_worth(rows: tuple[int, int]) -> None:
    jobs = job("old"), replace(job("young"), submitted=1000.0)
    both = view(machines((8, 24.0)), *(jobs[row] for row in rows), now=1000.0)

    assert set(tasks_held(both, Smd(rungs=1))) == {"young"}


class Begun(Stated):
    """A training port that also knows how many updates are left of some jobs."""

    left: Mapping[JobId, float]

    def steps_left(self, job: Job) -> float | None:
        return self.left.get(job.id)


@pytest.mark.parametrize("rows", [(0, 1), (1, 0)])
def test_a_job_that_was_stopped_has_only_the_rest_of_its_updates_to_make(
    rows: tuple[int, int],
) -> None:
    # Of 200 updates 100 are left: it takes 92.7 s instead of 185.3, and is worth more.
    jobs = job("new"), job("begun")
    known = Begun({asked.id: seconds(SYNC) for asked in jobs})
    known.left = {JobId("begun"): 100.0, JobId("new"): 400.0}  # no more than there are in all
    there = with_knowledge(
        view_of(machines((8, 24.0)), *(jobs[row] for row in rows)), training=known
    )

    offered = offers_of(there, LADDER)

    begun = there.table.row(JobId("begun"))
    took = {size.row: s for size, s in zip(offered.sizes, offered.seconds.tolist(), strict=True)}
    assert took == pytest.approx({begun: 185.3333 / 2.0, 1 - begun: 185.3333}, abs=1e-4)
    assert set(tasks_held(there, Smd(rungs=1))) == {"begun"}


def test_a_job_without_servers_speeds_up_with_its_gpus_and_has_sizes_at_halves_of_its_most() -> (
    None
):
    plain = Job(JobId("a"), demand=Demand(4, min=2, max=8))
    there = with_knowledge(view(machines((8, 64.0)), plain), predictor=FixedPredictor([600.0]))

    offered = offers_of(there, replace(LADDER, rungs=4))

    assert [size.workers for size in offered.sizes] == [8, 4, 2]
    assert offered.seconds.tolist() == [300.0, 600.0, 1200.0]


def test_half_a_device_beside_another_half_is_room_for_a_job_that_asks_for_one() -> None:
    half = Demand(1, share=0.5)
    state = State(machines((1, 8.0)))
    first, second = (Job(JobId(name), demand=half) for name in "ab")
    for submitted in (first, second):
        state.fold(0.0, Submitted(submitted))
    on = Allocation((state.free.slice(0, 1, 0.5),), Sharing(share=0.5))
    state.fold(0.0, Decided(1, {first.id: on}))
    base = with_knowledge(view_of(state.cluster), predictor=FixedPredictor([600.0, 600.0]))

    plan = Smd().decide(replace(base, table=state.table, free=state.free, now=60.0))

    assert set(plan.changes) == {second.id}


def test_where_not_all_that_were_chosen_have_a_place_worth_for_each_part_of_room_decides() -> None:
    # Half a device is left, which counts as one: both are chosen, and one of them has a place.
    state = State(machines((1, 8.0)))
    worths = {"runs": (0.5, 1.0), "half": (0.5, 10.0), "quarter": (0.25, 9.0)}
    for name, (share, worth) in worths.items():
        hints = {"worth": worth, "haste": 0.001, "target_s": 1e6}
        state.fold(0.0, Submitted(Job(JobId(name), demand=Demand(1, share=share), hints=hints)))
    on = Allocation((Slice(NodeId("n0"), (0,), 0.0, 0.0),), Sharing(share=0.5))
    state.fold(0.0, Decided(1, {JobId("runs"): on}))
    base = with_knowledge(view_of(state.cluster), predictor=FixedPredictor([600.0] * 3))

    plan = Smd().decide(replace(base, table=state.table, free=state.free, now=60.0))

    assert set(plan.changes) == {"quarter"}


def test_links_limit_what_a_node_holds() -> None:
    hungry = job("a", server_gbps=5.0, worker_gbps=0.0)
    node = machines((8, 64.0))

    assert tasks_held(view(node, hungry), Smd(node_gbps=30.0))["a"][1] == 6
    assert tasks_held(view(node, hungry), Smd())["a"][1] < 6  # six take 30 Gbit/s, a node has 25
    assert tasks_held(view(node, hungry), Smd(node_gbps=10.0))["a"][1] <= 2


def test_nobody_is_resized_or_stopped_once_admitted() -> None:
    state = State(machines((8, 64.0)))
    first, second = job("a"), job("b", worth=1000.0)
    for submitted in (first, second):
        state.fold(0.0, Submitted(submitted))
    stated = Stated({job.id: seconds(SYNC) for job in (first, second)})
    base = view_of(state.cluster)
    before = replace(with_knowledge(base, training=stated), table=state.table, free=state.free)
    plan = Smd(spare=False).decide(before.restrict(np.array([True, False])))
    state.free.rollback(0)
    state.fold(0.0, Decided(1, plan.changes))
    state.free.commit()
    after = replace(
        with_knowledge(base, training=stated), table=state.table, free=state.free, now=60.0
    )

    again = Smd().decide(after)

    assert "a" not in again.changes


def test_the_unit_of_worth_changes_no_decision() -> None:
    names = "abcdef"
    cluster = machines((8, 40.0), (8, 40.0))
    jobs = [job(n, worth=1.0 + i, target_s=150.0 + 40 * i) for i, n in enumerate(names)]
    more = [replace(j, hints={**j.hints, "worth": 1e3 * j.hints["worth"]}) for j in jobs]

    assert tasks_held(view(cluster, *jobs), Smd()) == tasks_held(view(cluster, *more), Smd())


def test_capacity_and_caps_hold_in_a_large_queue() -> None:
    cluster = cluster_of("8x4:v100")
    trace = SERVERS.generate(DrawRequest(seed=3, jobs=120, gpus=32, load=1.0))
    training = Learner(cluster)
    there = with_knowledge(view_of(cluster, *(j for j, _ in trace), now=1e4), training=training)

    after = there.after(Smd().decide(there))

    used = {node.id: np.zeros(4) for node in cluster.nodes}
    for name, on in after.items():
        job = there.job(there.table.row(name))
        tasks = tasks_of(job)
        assert tasks is not None
        split = tasks.split(on)
        w, p = (sum(column) for column in zip(*split, strict=True))
        assert w >= 1 and p >= 1
        assert (tasks.need(w, p) <= np.array(tasks.caps) + 1e-6).all()
        for part, (here, beside) in zip(on.slices, split, strict=True):
            used[part.node] += tasks.need(here, beside)
    assert after
    assert all((taken <= [4, 32, 256, 25.0 + 1e-6]).all() for taken in used.values())


def test_under_overload_it_is_worth_more_than_first_come_first_served() -> None:
    result = weft.compare("servers", ["fifo", "smd"], "32x2:v100", jobs=60, load=6.0)

    assert result.mean("smd", "total_utility") > result.mean("fifo", "total_utility")
    assert result.mean("smd", "finished") == 60


def test_a_size_is_one_that_nodes_can_hold() -> None:
    # Alone, one worker with seven servers is best within 24 cores; no node has more than 12.
    heavy = Job(JobId("a"), demand=Demand(1, min=1, max=1), hints=HINTS)
    there = view(machines((2, 12.0), (2, 12.0), (2, 12.0)), heavy)

    assert tasks_held(there, Smd(rungs=1)) == {"a": (1, 3)}


def test_on_an_idle_cluster_something_runs_even_if_no_size_can_be_held_whole() -> None:
    # Seven cores a node hold a worker and a server; four of each need 20 of 21 cores in all.
    wide = replace(job("a", most_cpus=21.0), demand=Demand(4, min=2, max=8))
    there = view(machines((2, 7.0), (1, 7.0), (1, 7.0)), wide)

    assert tasks_held(there, Smd(rungs=1))["a"][0] >= 2


@pytest.mark.parametrize(
    ("cores", "workers", "servers"), [(12.0, 1, [3]), (5.0, 1, [1]), (4.0, 1, []), (5.0, 2, [2])]
)
def test_as_many_servers_are_offered_as_nodes_have_room_for_beside_each_worker(
    cores: float, workers: int, servers: list[int]
) -> None:
    # A worker takes two cores and a server three.
    demand = Demand(workers, min=workers, max=workers)
    job = Job(JobId("a"), demand=demand, hints=HINTS)

    offered = offers_of(view(machines((2, cores), (2, cores)), job), LADDER)

    assert [size.servers for size in offered.sizes] == servers


def test_a_job_with_servers_of_which_no_ratios_are_known_is_sized_by_its_gpus_alone() -> None:
    there = view_of(machines((8, 64.0)), job("a"))
    there = with_knowledge(there, training=None)

    offered = offers_of(there, LADDER)

    assert {size.servers for size in offered.sizes} == {0}


def test_what_is_left_is_given_once() -> None:
    # Both have a faster size of three GPUs, worth the same, and two GPUs are left in all.
    items = KnapsackItems(
        np.array([0, 0, 1, 1]), np.ones(4), np.array([[1.0], [3.0], [1.0], [3.0]])
    )
    offered = JobOffers([], items, np.array([50.0, 20.0, 40.0, 20.0]))

    assert sorted(_widen(offered, [0, 2], np.array([4.0]))) == [1, 2]
    assert sorted(_widen(offered, [0, 2], np.array([6.0]))) == [1, 3]


def test_a_job_without_servers_takes_its_part_of_cores_and_memory() -> None:
    plain = Job(JobId("a"), demand=Demand(2))
    there = view(machines((8, 64.0)), plain)

    offered = offers_of(there, LADDER)

    assert offered.offers.need.tolist() == [[2.0, 16.0, 128.0, 0.0]]
