"""A job that tunes its own batch, on tables made by hand and on the published ones."""

from __future__ import annotations

import numpy as np
import pytest
from packages.weft.tests.perf.goodput.tuned import on, run
from tests.goodput_example import TIMES

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.perf.goodput.adaptive import Adaptive, AdaptiveJob, split, table_of
from weft.perf.goodput.model import BatchBounds, Noise, best_batch
from weft.perf.goodput.tables import Curve, KindTable, ModelTable

SIZES = np.arange(32.0, 257.0, 32.0)
EPOCHS = np.array((1000.0, 2500.0, 3000.0))


def curve(nodes: int, gpus: int) -> Curve:
    step = [TIMES.step(nodes, gpus, m) for m in SIZES]
    sync = [of_step - TIMES.grad(m) for of_step, m in zip(step, SIZES, strict=True)]
    return SIZES.tolist(), step, sync


def toy(slowdown: float = 1.0) -> ModelTable:
    """A model whose step times obey the law, with the same noise in every epoch."""
    shapes = {(n, k): curve(n, k) for n, k in ((1, 1), (1, 2), (1, 4), (2, 8))}
    kind = KindTable(32, 256, 1000.0, 4, 2, {}, shapes)
    same = ((0.5, 2.0), (0.5, 2.0))
    return ModelTable(
        "toy", 128, 4096, 3, 50.0, 30.0, slowdown, {"t4": kind},
        (128.0, 4096.0), tuple(EPOCHS.tolist()), (same, same, same),
    )  # fmt: skip


def started(*placement: int, length: float = 1000.0, slowdown: float = 1.0) -> AdaptiveJob:
    tuner = AdaptiveJob(toy(slowdown), length)
    tuner.begin(on(*placement), "t4")
    return tuner


# ---- the batch


def test_the_first_batch_is_the_initial_one() -> None:
    tuner = started(4)

    assert (tuner.local, tuner.accumulate) == (32, 1)


def test_a_job_too_wide_for_its_initial_batch_takes_the_least_a_gpu_can() -> None:
    tuner = started(4, 4)

    assert (tuner.local, tuner.accumulate) == (32, 1)  # 256 samples, not 128


def test_the_next_batch_is_the_best_under_the_fitted_model() -> None:
    tuner = started(4)
    tuner.pace(0.0, 60.0)

    tuner.pace(10.0, 60.0)

    ideal = best_batch(TIMES, Noise(0.5, 2.0, 128), 1, 4, BatchBounds(4096, 32, 256))
    assert tuner.local * tuner.accumulate > 32
    assert tuner.local == pytest.approx(ideal.local, rel=0.35)  # one point fixes half a model


def test_a_batch_settles_when_there_is_nothing_left_to_learn() -> None:
    tuner = started(1)

    batches = []
    for done in range(0, 300, 10):
        tuner.pace(float(done), 60.0)
        batches.append((tuner.local, tuner.accumulate))

    assert len(set(batches[-5:])) == 1


def test_the_first_step_time_of_a_configuration_is_what_the_tables_say() -> None:
    tuner = started(2)
    run(tuner)

    rows = tuner.measured["t4"].rows

    assert len(rows) > 1
    for (nodes, replicas, local), row in rows.items():
        assert (nodes, replicas) == (1, 2)
        assert row.step_s == pytest.approx(TIMES.step(1, 2, local), rel=0.01)
        assert row.grad_s == pytest.approx(TIMES.grad(local), rel=0.01)


@pytest.mark.parametrize(
    ("batch", "replicas", "expected"),
    [
        (128, 1, (128, 1)),
        (128, 4, (32, 1)),
        (129, 1, (65, 2)),  # one GPU that grows its batch accumulates
        (1024, 1, (256, 4)),
        (1025, 1, (205, 5)),
        (1000, 3, (167, 2)),
    ],
)
def test_a_batch_is_split_into_equal_parts_that_fit(
    batch: int, replicas: int, expected: tuple[int, int]
) -> None:
    local, accumulate = split(batch, replicas, 256, 128)

    assert (local, accumulate) == expected
    assert local * replicas * accumulate >= batch


# ---- the pace


def test_a_pace_ends_with_the_round_or_with_the_epoch() -> None:
    tuner = started(1)

    first = tuner.pace(0.0, 60.0)
    near = started(1).pace(300.0, 60.0)  # 900 of the 1000 iterations of the epoch are done

    assert first.seconds == 60.0
    assert near.seconds == 18.0  # 100 iterations of 0.178 s, in whole seconds
    assert near.rate * near.seconds == pytest.approx(100.0 / 3.0)


def test_a_pace_reports_what_the_job_can_measure() -> None:
    report = started(2).pace(0.0, 60.0).report

    assert report is not None
    assert (report.nodes, report.replicas, report.per_gpu) == (1, 2, 64)
    assert report.last_s == pytest.approx(TIMES.step(1, 2, 64))
    assert report.grad_s == pytest.approx(TIMES.grad(64))
    assert (report.grad_sqr, report.grad_var) == pytest.approx((0.5, 2.0))


def test_the_rate_is_gain_over_iteration_time_over_slowdown() -> None:
    plain = started(1, length=3000.0).pace(0.0, 60.0)
    slow = started(1, length=3000.0, slowdown=2.0).pace(0.0, 60.0)

    assert plain.rate == pytest.approx(1.0 / TIMES.grad(128))
    assert slow.rate == pytest.approx(plain.rate / 2.0)


def test_more_gpus_finish_sooner() -> None:
    seconds = [run(started(*placement)) for placement in ((1,), (2,), (4,), (4, 4))]

    assert seconds == sorted(seconds, reverse=True)


def test_length_only_scales_the_unit_of_progress() -> None:
    assert run(started(2, length=1.0)) == pytest.approx(run(started(2, length=1e6)))


# ---- the model of many


def test_every_start_costs_the_model_s_restart_or_the_one_given() -> None:
    models, job = {"toy": toy()}, Job(JobId("a"), model="toy")

    assert Adaptive(models).restart(job, first=True) == 50.0
    assert Adaptive(models).restart(job, first=False) == 50.0
    assert Adaptive(models, 7.0).restart(job, first=False) == 7.0
    assert not Adaptive(models).steady


def test_an_agent_has_the_length_of_its_job() -> None:
    agent = Adaptive({"toy": toy()}).simulate_job(Job(JobId("a"), model="toy"), Truth(123.0))

    assert isinstance(agent, AdaptiveJob)
    assert agent.length == 123.0


def test_a_model_without_a_profile_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match="'gpt'") as caught:
        table_of({"toy": toy()}, Job(JobId("a"), model="gpt"))

    assert "toy" in str(caught.value.hint)
