"""What a batch size does to a job."""

from __future__ import annotations

import pytest

from weft.core.model.job import Allocation, Batch, BatchRange, Demand, Job, JobId, NodeId, Slice
from weft.core.protocols import Resident
from weft.perf.sharing.batching import MODELS, find_batching
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered
from weft.perf.sharing.hinted_profile import profile_of


def job(model: str, init: int | None = None) -> Job:
    first = init or MODELS[model].known.init
    return Job(JobId(model), model=model, batch=BatchRange(first, 4 * first, 4 * first))


def resident(model: str, batch: int | None) -> Resident:
    on = Allocation((Slice(NodeId("a"), (0,)),), batch=Batch(batch) if batch else None)
    return Resident(job(model), on, "rtx3090")


@pytest.mark.parametrize("model", MODELS)
def test_the_initial_batch_is_the_unit_of_speed(model: str) -> None:
    known = MODELS[model]

    assert known.speed(known.known.init) == pytest.approx(1.0)
    assert known.profile(known.known.init).mem_gb < 12.0
    assert known.profile(2 * known.known.init).gpu_use > known.profile(known.known.init).gpu_use


def test_speed_alone_peaks_where_fixed_time_and_noise_balance() -> None:
    known = MODELS["vgg16"]
    best = (known.fixed_s * known.known.noise / known.sample_s) ** 0.5

    peak = max(range(64, 1024, 8), key=known.speed)

    assert peak == pytest.approx(best, abs=8)


def test_only_adaptive_jobs_on_one_gpu_are_tunable() -> None:
    assert find_batching(job("vgg16")) is MODELS["vgg16"]
    assert find_batching(Job(JobId("a"), model="vgg16")) is None
    gang = Job(JobId("a"), model="vgg16", demand=Demand(2), batch=BatchRange(512, 1024, 1024))
    assert find_batching(gang) is None
    assert find_batching(Job(JobId("a"), model="gpt5", batch=BatchRange(1, 2, 2))) is None
    other = find_batching(job("vgg16", 256))
    assert other is not None
    assert other.known.init == 256
    assert other.speed(256) == pytest.approx(1.0)


def test_a_smaller_batch_leaves_more_to_a_neighbour() -> None:
    truth = Colocated(profile_of, Unordered("timeslicing"), batching=find_batching)
    bert = resident("bert", None)

    usual = truth.speed(bert, [resident("yolov5", 32)])
    gentle = truth.speed(bert, [resident("yolov5", 20)])

    assert truth.speed(bert, []) == 1.0
    assert usual < gentle < 1.0
    assert truth.speed(resident("vgg16", 340), []) == pytest.approx(MODELS["vgg16"].speed(340))
