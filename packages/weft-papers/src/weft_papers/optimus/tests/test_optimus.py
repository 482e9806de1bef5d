"""The worked examples of Optimus (EuroSys 2018) and its invariants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Allocation, Demand, Job, JobId, Sharing
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.training.learner import Learner
from weft.perf.training.loss_laws import LossCurve, epochs_left, fit_loss, normalise
from weft.perf.training.servers import (
    Asynchronous,
    SpeedPoint,
    Synchronous,
    average,
    fit_asynchronous,
    fit_synchronous,
    nonnegative,
)
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.testing import cluster_of, view_of
from weft.testing.build import FixedPredictor as Remaining
from weft.testing.build import with_knowledge
from weft_papers.optimus.marginal import Counts, Growth, grow
from weft_papers.optimus.policy import Optimus, _left, _seconds
from weft_papers.sia.tests.test_sia import CLUSTER, MODELS, Told, drawn

SYNC = Synchronous(0.02, 0.5, 1.0, 0.02, 0.05, batch=128)
ASYNC = Asynchronous(2.0, 1.0, 0.05, 0.1)
GRID = [(p, w) for p in range(1, 5) for w in range(1, 5)]


# ---- 5.1 speed


@pytest.mark.parametrize(
    ("servers", "workers", "speed"),
    [
        (1, 1, 0.242131),
        (1, 2, 0.258398),
        (2, 2, 0.342466),
        (2, 4, 0.301205),
        (4, 4, 0.413223),
        (4, 8, 0.314465),
    ],
)
def test_synchronous_speed(servers: int, workers: int, speed: float) -> None:
    assert SYNC.speed(servers, workers) == pytest.approx(speed, abs=1e-6)


@pytest.mark.parametrize(
    ("servers", "workers", "speed"),
    [(1, 1, 0.317460), (1, 2, 0.476190), (2, 4, 0.909091), (4, 4, 1.111111)],
)
def test_asynchronous_speed(servers: int, workers: int, speed: float) -> None:
    assert ASYNC.speed(servers, workers) == pytest.approx(speed, abs=1e-6)


def test_exact_speeds_give_the_coefficients_back() -> None:
    sync = fit_synchronous([SpeedPoint(p, w, SYNC.speed(p, w)) for p, w in GRID], 128)
    own = fit_asynchronous([SpeedPoint(p, w, ASYNC.speed(p, w)) for p, w in GRID])

    assert sync == pytest.approx(SYNC)
    assert own == pytest.approx(ASYNC)


def test_noisy_speeds_give_no_negative_coefficients() -> None:
    rng = np.random.default_rng(0)
    noisy = [SpeedPoint(p, w, SYNC.speed(p, w) * float(rng.lognormal(0, 0.05))) for p, w in GRID]

    coefficients = fit_synchronous(noisy, 128)

    assert min(coefficients) >= 0.0
    for p, w in GRID:
        assert coefficients.speed(p, w) == pytest.approx(SYNC.speed(p, w), rel=0.15)


def test_too_few_points_are_refused() -> None:
    twice = [SpeedPoint(1, w, 1.0) for w in (1, 2, 1, 2, 1)]  # two configurations only

    with pytest.raises(InvalidConfig, match="2 measured speeds"):
        fit_synchronous(twice, 128)


def test_repeated_measurements_count_once() -> None:
    points = average([SpeedPoint(2, 2, 0.3), SpeedPoint(1, 1, 0.2), SpeedPoint(2, 2, 0.5)])

    assert points == [SpeedPoint(1, 1, 0.2), SpeedPoint(2, 2, 0.4)]


matrices = st.integers(1, 4).flatmap(
    lambda n: st.lists(
        st.lists(st.floats(-3, 3), min_size=n + 1, max_size=n + 1), min_size=n, max_size=6
    )
)


@given(matrices)
def test_non_negative_least_squares_meets_the_conditions_of_an_optimum(
    rows: list[list[float]],
) -> None:
    both = np.round(np.array(rows), 3)
    a, b = both[:, :-1], both[:, -1]

    x = nonnegative(a, b)

    pull = a.T @ (b - a @ x)
    scale = 1.0 + float(np.abs(a).max(initial=0.0)) * (1.0 + float(np.abs(b).max(initial=0.0)))
    assert (x >= 0.0).all()
    assert (pull <= 1e-6 * scale).all()
    assert np.abs(pull * x).max(initial=0.0) <= 1e-5 * scale * (1.0 + x.max(initial=0.0))


# ---- 5.2 greedy


def table_of(law: Synchronous | Asynchronous, work: float, most: int = 12) -> Floats:
    """Seconds by servers and workers; nothing runs without one of each."""
    seconds = np.full((most + 1, most + 1), np.inf)
    for p, w in product(range(1, most + 1), repeat=2):
        seconds[p, w] = work / law.speed(p, w)
    return seconds


A, B = table_of(SYNC, 1000.0), table_of(ASYNC, 200.0)
ONE = np.ones((2, 1))


def test_the_order_of_additions() -> None:
    problem = Growth([A, B], [(1, 1), (1, 1)], [ONE, ONE], np.array([12.0]))

    counts, order = grow(problem)

    expected = [
        (0, 0, 450.0), (0, 1, 760.0), (0, 0, 283.333), (1, 1, 210.0),
        (0, 0, 116.667), (0, 1, 156.667), (0, 0, 100.0), (1, 0, 90.0),
    ]  # fmt: skip
    assert [(a.job, a.task) for a in order] == [(job, task) for job, task, _ in expected]
    assert [a.gain for a in order] == pytest.approx([gain for *_, gain in expected], abs=1e-3)
    assert counts == [(5, 3), (2, 2)]
    assert A[5, 3] == pytest.approx(2263.333, abs=1e-3)
    assert B[2, 2] == pytest.approx(330.0)


def test_the_greedy_finds_the_best_of_all_here() -> None:
    counts, _ = grow(Growth([A, B], [(1, 1), (1, 1)], [ONE, ONE], np.array([12.0])))

    every = product(range(1, 12), repeat=4)
    best = min(A[p, w] + B[q, v] for p, w, q, v in every if p + w + q + v <= 12)
    assert A[counts[0]] + B[counts[1]] == pytest.approx(best)
    assert best == pytest.approx(2593.333, abs=1e-3)


def test_gains_are_divided_by_what_the_dominant_resource_gives() -> None:
    # Servers take 3 of 30 CPUs; workers 1 of 4 GPUs and 1 CPU.
    needs = np.array([[3.0, 0.0], [1.0, 1.0]])

    _, order = grow(Growth([A], [(1, 1)], [needs], np.array([30.0, 4.0])))

    assert order[0].task == 1
    assert order[0].gain == pytest.approx(A[1, 1] - A[1, 2])
    assert A[1, 1] - A[2, 1] > A[1, 1] - A[1, 2] > (A[1, 1] - A[2, 1]) / 3.0


def test_ties_go_to_the_first_task_and_the_earlier_job() -> None:
    even = np.array([[np.inf, np.inf, np.inf], [np.inf, 10.0, 8.0], [np.inf, 8.0, 7.0]])

    _, order = grow(Growth([even, even], [(1, 1), (1, 1)], [ONE, ONE], np.array([5.0])))

    assert [(a.job, a.task) for a in order] == [(0, 0)]


def test_a_task_that_does_not_fit_ends_its_job_or_everybody() -> None:
    wide, thin = np.array([[2.0]]), np.array([[1.0]])
    fast, slow = np.array([np.inf, 100.0, 10.0]), np.array([np.inf, 10.0, 9.0])
    problem = Growth([fast, slow], [(1,), (1,)], [wide, thin], np.array([4.0]))

    patient, _ = grow(problem)
    strict, _ = grow(problem, stop_at_misfit=True)

    assert patient == [(1,), (2,)]
    assert strict == [(1,), (1,)]


def test_nobody_grows_for_nothing() -> None:
    flat, worse = np.array([np.inf, 5.0, 5.0]), np.array([np.inf, 5.0, 6.0])

    counts, order = grow(
        Growth([flat, worse], [(1,), (1,)], [np.ones((1, 1))] * 2, np.array([9.0]))
    )

    assert counts == [(1,), (1,)]
    assert not order
    assert grow(Growth([], [], [], np.array([9.0]))) == ([], [])


@given(st.data())
def test_the_greedy_keeps_to_capacity_and_ends_where_nothing_is_left_to_gain(data: Any) -> None:
    jobs = data.draw(st.integers(1, 4))
    room = float(data.draw(st.integers(jobs, 12)))
    falls = st.lists(st.integers(1, 100), min_size=2, max_size=8)
    seconds = [np.array([np.inf, *map(float, data.draw(falls))]) for _ in range(jobs)]
    unit = np.ones((1, 1))
    start: list[Counts] = [(1,)] * jobs

    counts, order = grow(Growth(seconds, start, [unit] * jobs, np.array([room])))

    used = sum(n for (n,) in counts)
    assert used <= room
    assert all(added.gain > 0.0 for added in order)
    stuck = [n + 1 >= len(s) or s[n + 1] >= s[n] for s, (n,) in zip(seconds, counts, strict=True)]
    assert used == room or all(stuck)


# ---- 5.3 loss


def test_the_loss_curve_and_where_it_ends() -> None:
    curve = LossCurve(0.1, 1.0, 0.2)

    values = [curve.at(k) for k in (0, 1, 2, 5, 10, 20, 50)]

    expected = (1.2, 1.109091, 1.033333, 0.866667, 0.7, 0.533333, 0.366667)
    assert values == pytest.approx(expected, abs=1e-6)
    assert curve.converged(drop=0.01, over=1) == 23
    assert curve.converged(drop=0.0, over=1, most=40) == 40


@pytest.mark.parametrize("curve", [(0.1, 1.0, 0.2), (0.5, 0.8, 0.0), (0.02, 2.0, 0.4)])
def test_exact_losses_give_the_coefficients_back(curve: tuple[float, float, float]) -> None:
    coefficients = fit_loss([LossCurve(*curve).at(k) for k in range(10)])

    assert coefficients == pytest.approx(curve, abs=1e-3)


def test_noisy_losses_are_followed_most_closely_at_the_end() -> None:
    rng = np.random.default_rng(3)
    curve = LossCurve(0.1, 1.0, 0.2)
    losses = [curve.at(k) * float(rng.lognormal(0.0, 0.01)) for k in range(30)]

    fit = fit_loss(losses)

    assert fit is not None
    assert min(fit) >= 0.0
    assert fit.at(29) == pytest.approx(curve.at(29), rel=0.02)
    assert fit.at(60) == pytest.approx(curve.at(60), rel=0.1)


def test_later_points_weigh_more() -> None:
    early = [LossCurve(0.5, 0.5, 0.5).at(k) for k in range(6)]
    late = [LossCurve(0.1, 1.0, 0.2).at(k) for k in range(6, 18)]

    fit = fit_loss([*early, *late])

    assert fit is not None
    assert fit.at(17) == pytest.approx(late[-1], rel=0.02)


def test_losses_that_follow_no_law_are_given_twenty_more_epochs() -> None:
    assert fit_loss([1.0, 0.9]) is None
    assert fit_loss([1.0, float("nan"), 0.5]) is None
    assert epochs_left([1.0, 0.9]) == 20.0
    assert epochs_left([]) == 20.0


def test_epochs_left_are_those_until_the_loss_hardly_falls() -> None:
    curve = LossCurve(0.1, 1.0, 0.2)
    losses = [curve.at(k) for k in range(12)]
    scaled = LossCurve(1.2 * curve.b0, 1.2 * curve.b1, curve.b2 / 1.2)  # parts of the first loss

    left = epochs_left(losses)

    assert left == scaled.converged() - 12
    assert epochs_left([curve.at(k) for k in range(90)]) == 0.0


def test_outliers_are_replaced_by_the_mean_of_their_neighbours() -> None:
    losses = [2.0, 1.6, 9.0, 1.2, 1.0]

    normalised = normalise(losses)

    assert normalised[2] == pytest.approx((1.6 + 1.2) / 2.0 / 2.0)
    assert normalise([1.0, 0.8, 0.7]) == pytest.approx([1.0, 0.8, 0.7])


# ---- the policy


def elastic(name: str, most: int = 8, least: int = 1, **fields: Any) -> Job:
    return Job(JobId(name), demand=Demand(1, least, most), **fields)


def gpus(view: View, plan: Plan) -> dict[str, int]:
    return {str(job): on.gpus for job, on in view.after(plan).items()}


def queue(gpus_there: int, *jobs: tuple[Job, float]) -> View:
    view = view_of(gpus_there, *(job for job, _ in jobs))
    return with_knowledge(view, predictor=Remaining([left for _, left in jobs]))


def test_everybody_gets_the_least_first() -> None:
    view = queue(4, (elastic("long"), 1e9), *((elastic(f"s{i}"), 1.0) for i in range(3)))

    held = gpus(view, Optimus().decide(view))

    assert held == {"long": 1, "s0": 1, "s1": 1, "s2": 1}


def test_the_rest_goes_where_it_saves_most_time() -> None:
    view = queue(8, (elastic("short"), 100.0), (elastic("long"), 900.0))

    held = gpus(view, Optimus().decide(view))

    # Linear speed-ups: 900 (1/5 - 1/6) = 30 < 100 (1 - 1/2) = 50 > 900 (1/6 - 1/7) = 21.
    assert held == {"short": 2, "long": 6}


def test_growth_ends_where_a_job_gains_nothing() -> None:
    view = queue(8, (elastic("a"), 100.0))
    saturated = np.array([[1.0, 1.8, 2.4, 2.4, 2.3, 2.2, 2.1, 2.0]])

    held = gpus(view, Optimus().decide(with_knowledge(view, beliefs=Told(saturated))))

    assert held == {"a": 3}


def test_speeds_of_which_nobody_believes_anything_are_linear() -> None:
    jobs = [Job(JobId(name), demand=Demand(1, min=1, max=8)) for name in "abc"]
    view = with_knowledge(view_of(8, *jobs), beliefs=None, predictor=Remaining([9e3, 900.0, 90.0]))

    sizes = {name: on.gpus for name, on in view.after(Optimus().decide(view)).items()}

    # One more saves "a" 4,500, 1,500, 750 and 450 s, "b" 450 s, "c" 45 s.
    assert sizes == {"a": 5, "b": 2, "c": 1}


def test_a_pipeline_grows_by_whole_replicas() -> None:
    view = queue(8, (elastic("deep"), 100.0), (elastic("other"), 1.0))
    speed = np.zeros((2, 8))
    speed[:, 1::2] = (2.0, 4.0, 6.0, 8.0)

    held = gpus(view, Optimus().decide(with_knowledge(view, beliefs=Told(speed, unit=2.0))))

    assert held == {"deep": 6, "other": 2}


def test_the_least_of_a_pipeline_is_the_least_of_the_job_in_whole_replicas() -> None:
    deep, other = (Job(JobId(name), demand=Demand(3, 3, 8)) for name in ("deep", "other"))
    view = queue(8, (deep, 100.0), (other, 1.0))
    speed = np.zeros((2, 8))
    speed[:, 1::2] = (2.0, 4.0, 6.0, 8.0)

    held = gpus(view, Optimus().decide(with_knowledge(view, beliefs=Told(speed, unit=2.0))))

    assert held == {"deep": 4, "other": 4}


def test_a_job_gets_nothing_of_a_kind_on_which_it_cannot_run() -> None:
    view = queue(8, (elastic("a"), 100.0))
    nowhere = Told(np.zeros((1, 8)), unit=0.0)

    assert not Optimus().decide(with_knowledge(view, beliefs=nowhere)).changes


def test_rigid_jobs_are_served_whole_in_queue_order() -> None:
    view = view_of(8, ("a", 4, 10.0), ("b", 8, 10.0), ("c", 2, 10.0))

    held = gpus(view, Optimus().decide(view))

    assert held == {"a": 4, "c": 2}


def test_a_job_gets_the_kind_with_most_room_and_one_kind_only() -> None:
    view = view_of("2x4:t4+1x4:a100", ("x", 4, 10.0), ("y", 4, 10.0), ("z", 4, 10.0))

    after = view.after(Optimus().decide(view))

    kinds = {str(job): view.cluster.kind_of(on) for job, on in after.items()}
    assert kinds == {"x": "t4", "y": "t4", "z": "a100"}


def running(view: View, plan: Plan, now: float) -> View:
    """The view after a plan was carried out."""
    state = State(view.cluster)
    for job in view.table.jobs:
        state.fold(0.0, Submitted(job))
    state.fold(0.0, Decided(1, plan.changes))
    for name in plan.changes:
        state.fold(0.0, Started(name, 1))
    return replace(view, now=now, table=state.table, free=state.free)


def test_a_job_stays_where_it_is_while_its_size_is_the_same() -> None:
    view = queue(8, (elastic("short"), 100.0), (elastic("long"), 900.0))
    later = running(view, Optimus().decide(view), now=600.0)

    assert not Optimus().decide(later).changes


def test_a_newcomer_gets_its_least_from_those_that_have_more() -> None:
    view = queue(8, (elastic("a"), 900.0), (elastic("b", submitted=600.0), 900.0))
    alone = running(view, Plan({JobId("a"): Allocation((view.free.slice(0, 8),))}), now=600.0)

    held = gpus(alone, Optimus().decide(alone))

    assert held == {"a": 4, "b": 4}


def test_a_job_that_may_not_be_stopped_keeps_all_it_has() -> None:
    view = queue(8, (elastic("a", preemptible=False), 900.0), (elastic("b"), 900.0))
    alone = running(view, Plan({JobId("a"): Allocation((view.free.slice(0, 6),))}), now=600.0)

    plan = Optimus().decide(alone)

    assert JobId("a") not in plan.changes
    assert gpus(alone, plan) == {"a": 6, "b": 2}


def test_jobs_that_share_a_device_and_may_not_be_stopped_keep_it_together() -> None:
    half = Demand(1, share=0.5)
    jobs = [(Job(JobId(n), demand=half, preemptible=False), 9.0) for n in ("a", "b")]
    view = queue(1, *jobs)
    where = Allocation((view.free.slice(0, 1, 0.5),), Sharing(share=0.5))
    both = running(view, Plan({JobId("a"): where, JobId("b"): where}), now=600.0)

    assert not Optimus().decide(both).changes


def test_jobs_without_any_estimate_share_alike() -> None:
    view = queue(8, (elastic("a"), np.inf), (elastic("b"), np.inf))

    assert gpus(view, Optimus().decide(view)) == {"a": 4, "b": 4}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(0, 12))
def test_more_gpus_never_serve_fewer_jobs_of_one_gpu(most: list[int], there: int) -> None:
    jobs = [(elastic(f"j{i}", m), 100.0 + i) for i, m in enumerate(most)]

    fewer, more = queue(there, *jobs), queue(there + 1, *jobs)

    served = len(gpus(fewer, Optimus().decide(fewer)))
    assert served == min(there, len(jobs)) <= len(gpus(more, Optimus().decide(more)))


@dataclass
class Watched:
    """Optimus with every decision checked."""

    inner: Optimus
    decisions: int = 0

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        plan = self.inner.decide(view)
        self.decisions += 1
        self._check(view, view.after(plan))
        return plan

    def _check(self, view: View, held: Mapping[JobId, Allocation]) -> None:
        devices = [(s.node, g) for on in held.values() for s in on.slices for g in s.gpus]
        assert len(devices) == len(set(devices)) <= view.cluster.gpus
        assert len(held) == min(len(view.table), view.cluster.gpus)


def test_a_whole_run_of_self_tuning_jobs() -> None:
    trace, watched = drawn(30, seed=2), Watched(Optimus())
    physics = Physics(trace, Adaptive(MODELS))
    beliefs = FittedBeliefs(MeasuredFacts(MODELS))
    oracle = Oracle(physics.remaining)
    scheduler = Scheduler(watched, CLUSTER, knowledge=Knowledge(oracle, beliefs))

    Simulation(scheduler, physics, CLUSTER).run()

    assert watched.decisions > 5
    assert np.isfinite(physics.ended_at).all()
    assert max(run.on.gpus for run in physics.runs) > 1


def test_an_empty_cluster_is_no_trouble() -> None:
    assert not Optimus().decide(view_of(cluster_of(0), ("a", 1, 1.0))).changes


def test_a_job_whose_loss_has_fallen_is_taken_to_be_near_its_end() -> None:
    jobs = (elastic("nearly"), 900.0), (elastic("far"), 900.0)
    view, trained = queue(6, *jobs), queue(6, *jobs)
    training = Learner()
    for step in range(0, 1001, 10):
        for row, flat in ((0, 40.0), (1, 0.2)):  # how fast it falls, by epoch
            report = Report(
                steps=float(step),
                epoch=float(step // 100),
                loss=0.1 + 1.0 / (flat * step / 100 + 1.0),
                step_s=1.0,
                grad_s=0.8,
                per_gpu=32.0,
            )
            training.observe(view.job(row), "cpu", report)

    trained = with_knowledge(trained, training=training)

    assert gpus(view, Optimus().decide(view)) == {"nearly": 3, "far": 3}
    assert gpus(trained, Optimus().decide(trained)) == {"nearly": 1, "far": 5}


def test_a_size_that_is_out_of_reach_is_taken_to_be_linear_from_the_nearest_below() -> None:
    # 100 s are left on four GPUs, of which two are the most that it can run on yet.
    speed = np.array([1.0, 1.6, 0.0, 0.0])

    assert _seconds(100.0, 4, 2, speed).tolist() == [np.inf, 320.0, 200.0]
    assert _seconds(100.0, 2, 2, speed).tolist() == [np.inf, 160.0, 100.0]
    assert _seconds(100.0, 1, 2, np.array([0.0, 2.0])).tolist() == [np.inf, np.inf, 50.0]
    assert _seconds(100.0, 1, 2, np.array([0.5, 0.8])).tolist() == [np.inf, 100.0, 62.5]
    assert _seconds(100.0, 4, 2, np.zeros(4)).tolist() == [np.inf] * 3


def test_what_nobody_knows_is_taken_for_the_longest_there_is() -> None:
    known = [("a", 1, 600.0), ("b", 1, 6000.0)]

    assert _left(view_of(4, *known, Job(JobId("c")))).tolist() == [600.0, 6000.0, 6000.0]
