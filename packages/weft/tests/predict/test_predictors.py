"""How long jobs will still take, by whoever is asked."""

from __future__ import annotations

import math

import numpy as np
import pytest

from weft.core.events.job_end import Ended, EndKind
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.predict.history import HistoryPredictor
from weft.predict.noisy import Noisy
from weft.predict.none import NoPredictor
from weft.predict.oracle import Oracle
from weft.sim.physics import Physics


def table_of(*jobs: Job, first: int = 0) -> JobTable:
    table = JobTable()
    for seq, job in enumerate(jobs, first):
        table.add(job, seq)
    return table


def job(name: str = "j", gpus: int = 1, **more: str) -> Job:
    return Job(JobId(name), demand=Demand(gpus), **more)  # type: ignore[arg-type]


def finished(job: Job, ran: float) -> Ended:
    return Ended(job, ran, ran * job.demand.gpus, finished=True, how=EndKind.COMPLETED)


def hinted(name: str, seconds: float) -> Job:
    return Job(JobId(name), hints={"duration_s": seconds})


# ---- oracle


def test_the_oracle_is_exact_through_restarts() -> None:
    only = job("a")
    physics = Physics(Trace("t", ((only, Truth(100.0)),)), Replay(10.0))
    oracle, table = Oracle(physics.remaining), table_of(only)
    on = Allocation((Slice(NodeId("n"), (0,)),))

    assert oracle.remaining(table, 0.0).tolist() == [100.0]
    physics.start(0.0, only, on, "v100")
    assert oracle.remaining(table, 30.0).tolist() == [70.0]
    physics.end_run(30.0, 0)
    assert oracle.remaining(table, 99.0).tolist() == [70.0]
    end = physics.start(100.0, only, on, "v100").at
    assert oracle.remaining(table, 105.0).tolist() == [70.0]
    assert oracle.remaining(table, end - 1.0).tolist() == [1.0]
    assert oracle.remaining(table, end + 1.0).tolist() == [0.0]
    assert oracle.label == "oracle"


# ---- noisy


def noisy(seed: int = 0, sigma: float = 0.5, done: float = 0.0) -> Noisy:
    def truth(seq: Floats, now: float) -> Floats:
        return np.full(len(seq), 100.0 - done)

    def total(seq: Floats, now: float) -> Floats:
        return np.full(len(seq), 100.0)

    return Noisy(truth, total, seed, sigma)


def factors(predictor: Noisy, count: int) -> Floats:
    table = table_of(*(job(f"j{i}") for i in range(count)))
    return predictor.remaining(table, 0.0) / 100.0


def test_noise_has_the_right_median_and_spread() -> None:
    drawn = np.log(factors(noisy(sigma=0.5), 4000))

    assert np.median(drawn) == pytest.approx(0.0, abs=0.03)
    assert drawn.std() == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.05


def test_noise_is_a_jobs_own_whoever_else_is_there() -> None:
    predictor = noisy()
    everyone = table_of(*(job(f"j{i}") for i in range(10)))
    some = everyone.pick(np.arange(10) % 3 == 0)

    assert (
        predictor.remaining(some, 0.0).tolist() == predictor.remaining(everyone, 0.0)[::3].tolist()
    )


def test_noise_depends_on_the_seed() -> None:
    assert factors(noisy(seed=1), 50).tolist() == factors(noisy(seed=1), 50).tolist()
    assert factors(noisy(seed=1), 50).tolist() != factors(noisy(seed=2), 50).tolist()


def test_without_noise_it_is_the_truth() -> None:
    assert factors(noisy(sigma=0.0), 5).tolist() == [1.0] * 5
    assert noisy(sigma=0.25).label == "noisy(sigma=0.25)"


def test_progress_is_taken_off_and_a_job_that_outlives_its_estimate_is_about_to_end() -> None:
    fresh, old = factors(noisy(), 200), factors(noisy(done=90.0), 200)

    assert np.allclose(old, np.maximum(fresh - 0.9, 0.0))
    assert (old == 0.0).any()
    assert (old > 0.1).any()


# ---- hinted


def test_hints_are_trusted_less_the_time_executed() -> None:
    table = table_of(hinted("a", 60.0), hinted("b", 60.0), job("c"))
    table.set(1, TableColumns.RAN_BASE, 20.0)

    assert Hinted().remaining(table, 0.0).tolist() == [60.0, 40.0, math.inf]


def test_a_hint_that_was_too_short_is_nothing_left() -> None:
    table = table_of(hinted("a", 60.0))
    table.set(0, TableColumns.RAN_BASE, 100.0)

    assert Hinted().remaining(table, 0.0).tolist() == [0.0]


def test_a_hint_is_of_the_size_that_a_job_asks_for() -> None:
    """Three jobs of 100 s on 2 GPUs have run for 40 s: on 1, on 2 and on 4 GPUs."""
    hints = {"duration_s": 100.0}
    table = table_of(*(Job(JobId(n), demand=Demand(2, 1, 4), hints=hints) for n in "abc"))
    for row, gpus in enumerate((1, 2, 4)):
        table.meters_on(row, 0.0, gpus)

    assert Hinted().remaining(table, 40.0).tolist() == [80.0, 60.0, 60.0]


def test_estimates_follow_jobs_as_rows_move_and_numbers_grow() -> None:
    predictor = Hinted()
    table = table_of(*(hinted(f"j{i}", float(i)) for i in range(200)))
    assert predictor.remaining(table, 0.0).tolist() == [float(i) for i in range(200)]

    for _ in range(150):
        table.remove(0)
    table.add(hinted("late", 7.0), 5000)

    assert predictor.remaining(table, 0.0).tolist() == [*map(float, range(150, 200)), 7.0]


def test_nothing_is_estimated_of_nobody() -> None:
    assert Hinted().remaining(JobTable(), 0.0).size == 0


# ---- history


def test_before_any_job_has_finished_nothing_is_known() -> None:
    assert HistoryPredictor().remaining(table_of(job()), 0.0).tolist() == [math.inf]


def test_the_past_is_a_geometric_mean() -> None:
    history = HistoryPredictor()
    for ran in (10.0, 100.0, 1000.0):
        history.learn(finished(job(model="bert"), ran))

    assert history.remaining(table_of(job(model="bert")), 0.0).tolist() == pytest.approx([100.0])


def test_jobs_alike_are_asked_before_wider_groups() -> None:
    history = HistoryPredictor(min_samples=2)
    learned = (
        (job(tenant="t", user="u", model="m"), 10.0),
        (job(tenant="t", user="u", model="other"), 1000.0),
        (job(tenant="t", user="v", model="m"), 30.0),
        (job(tenant="x", user="v", model="m"), 500.0),
        (job(tenant="x", user="v", model="m", gpus=4), 7000.0),
    )
    for past, ran in learned:
        for _ in range(2):
            history.learn(finished(past, ran))

    table = table_of(
        job("alike", tenant="t", user="u", model="m"),
        job("same-user", tenant="t", user="u", model="new"),
        job("same-tenant", tenant="t", user="new", model="m"),
        job("same-size", tenant="new", user="new", model="m"),
        job("any", gpus=2, tenant="new", user="new"),
    )

    known = history.remaining(table, 0.0)

    def mean(*runs: float) -> float:
        return math.exp(sum(map(math.log, runs)) / len(runs))

    assert known.tolist() == pytest.approx(
        [
            10.0,
            mean(10.0, 1000.0),
            mean(10.0, 1000.0, 30.0),
            mean(10.0, 1000.0, 30.0, 500.0),
            mean(10.0, 1000.0, 30.0, 500.0, 7000.0),
        ]
    )


def test_too_few_samples_are_not_enough_for_a_group_but_for_the_cluster_one_is() -> None:
    history = HistoryPredictor(min_samples=3)
    history.learn(finished(job(model="m"), 50.0))

    assert history.remaining(table_of(job(model="m")), 0.0).tolist() == pytest.approx([50.0])


def test_parts_of_a_gpu_are_a_size_of_their_own() -> None:
    history = HistoryPredictor(min_samples=1)
    half = Job(JobId("h"), demand=Demand(1, share=0.5))
    history.learn(finished(half, 20.0))
    history.learn(finished(job(), 2000.0))

    assert history.remaining(table_of(half), 0.0).tolist() == pytest.approx([20.0])


def test_an_estimate_is_made_when_a_job_is_first_seen() -> None:
    history, table = HistoryPredictor(min_samples=1), table_of(job("a"))
    history.learn(finished(job(), 50.0))
    assert history.remaining(table, 0.0).tolist() == pytest.approx([50.0])

    history.learn(finished(job(), 5000.0))
    table.add(job("b"), 1)

    assert history.remaining(table, 0.0).tolist() == pytest.approx([50.0, 500.0])


def test_a_job_of_no_length_counts_as_a_second() -> None:
    history = HistoryPredictor(min_samples=1)

    history.learn(finished(job(), 0.0))

    assert history.remaining(table_of(job()), 0.0).tolist() == [1.0]


# ---- none


def test_without_knowledge_every_job_may_take_for_ever() -> None:
    predictor = NoPredictor()
    predictor.learn(finished(job(), 5.0))

    assert predictor.remaining(table_of(job("a"), job("b")), 9.0).tolist() == [math.inf] * 2


def test_every_predictor_names_itself() -> None:
    assert [p.label for p in (Hinted(), HistoryPredictor(), NoPredictor())] == [
        "hinted",
        "history",
        "none",
    ]
