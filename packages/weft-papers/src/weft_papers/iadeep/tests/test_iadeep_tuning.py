"""IADeep's tuning from end to end, against an independent simulation of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.seeds import seeds

from weft.core.events.event import Reported, Started, Submitted, Woken
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.profile import Profile
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import BatchRange, Job, JobId
from weft.core.scheduler import Scheduler
from weft.perf.sharing.batching import find_batching
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of as shipped_profile_of
from weft.perf.sharing.device_models import unordered
from weft.perf.sharing.hinted_profile import profile_of
from weft_papers.iadeep.policy import IADeep
from weft_papers.iadeep.tests.iadeep_tuning_reference import Trainer, simulate_pair
from weft_papers.iadeep.tuning import TuningSession
from weft_papers.tests.together import together

DEVICE_GB = 24.0
# Batch, seconds of a step and GB (fixed, a sample), gradient noise.
KNOWN = {
    "vgg16": (512, (0.020, 1.95e-4), (1.5, 0.0085), 1000.0),
    "resnet50": (256, (0.025, 7.0e-4), (2.0, 0.0300), 1500.0),
    "lstm": (256, (0.050, 1.6e-4), (1.2, 0.0060), 200.0),
    "bert": (32, (0.030, 5.5e-3), (4.0, 0.2200), 40.0),
    "yolov5": (32, (0.050, 5.0e-3), (2.5, 0.2000), 60.0),
}


def by_use(group: Sequence[Profile]) -> list[float]:
    busy = [profile.gpu_use for profile in group]
    return [1.0 / (1.0 + sum(busy) - own) for own in busy]


def draw_pair(seed: int) -> tuple[list[str], list[Trainer]]:
    rng = np.random.default_rng(seed)
    models = [str(name) for name in rng.choice(sorted(KNOWN), size=2, replace=False)]
    arrivals = (0.0, float(rng.integers(10, 100)))
    lengths = rng.uniform((150.0, 20.0), 900.0)
    jobs = [
        Trainer(*KNOWN[model], at, float(length))
        for model, at, length in zip(models, arrivals, lengths, strict=True)
    ]
    return models, jobs


@pytest.mark.parametrize("seed", seeds(6))
def test_two_jobs_that_are_tuned_end_as_in_an_independent_simulation(seed: int) -> None:
    models, jobs = draw_pair(seed)
    work = []
    for name, model, job in zip("ab", models, jobs, strict=True):
        sizes = BatchRange(job.batch, 2 * job.batch, 2 * job.batch)
        work.append((Job(JobId(name), job.at, model=model, batch=sizes), job.seconds))

    truth = Colocated(profile_of, by_use, batching=find_batching)
    done = together(IADeep(probes=8, patience=4, probe_s=5.0), work, "1x1:rtx3090", truth)

    expected = simulate_pair(jobs, DEVICE_GB, 8, 4, 5.0)
    assert [done.end["a"], done.end["b"]] == pytest.approx(expected, rel=1e-6)
    plain = together(IADeep(tune=False), work, "1x1:rtx3090", truth)
    assert plain.end != pytest.approx(done.end, rel=1e-6)


def test_a_search_says_how_far_it_has_come() -> None:
    session = TuningSession((JobId("a"), JobId("b")), (32, 64), 5.0)

    later = replace(session.with_result(2.0), asked=(16, 96)).with_result(1.5)

    assert session.describe(1, 10).startswith("batch 64 is on trial, 1 of at most 10")
    assert replace(later, asked=(24, 80)).describe(0, 10) == (
        "batch 24 is on trial, 3 of at most 10; best so far 16, 25% less degradation than at first"
    )
    assert later.summarise(0) == "batch 16 was the best of 2, 25% less degradation than at first"


def test_real_jobs_are_tuned_once_they_have_told_of_their_batches() -> None:
    believed = Colocated(shipped_profile_of, unordered("timeslicing"))
    scheduler = Scheduler(
        IADeep(), parse_cluster("1x1:h200"), knowledge=Knowledge(colocation=believed)
    )
    hints = {"gpu_util": 30.0, "gmem_util": 20.0, "gmem_mib": 4000.0}
    jobs = [Job(JobId(n), batch=BatchRange(32, 64, 64), hints=hints) for n in ("a", "b")]
    for job in jobs:
        scheduler.step(0.0, [Submitted(job)])
        scheduler.step(0.0, [Started(job.id, 1)])
    sizes: set[tuple[int, ...]] = set()
    for second in range(1, 40):
        for job, on in zip(jobs, scheduler.state.table.allocations, strict=True):
            assert on is not None
            assert on.batch is not None
            size = on.batch.per_gpu
            report = Report(batch=float(size), step_s=0.05 + 0.001 * size, mem_gb=4.0, noise=500.0)
            scheduler.step(float(second), [Reported(job.id, 1, report)])
        scheduler.step(float(second), [Woken()])
        held = [on.batch for on in scheduler.state.table.allocations if on is not None]
        sizes.add(tuple(batch.per_gpu for batch in held if batch is not None))

    assert len(sizes) > 3
    assert max(size for pair in sizes for size in pair) > 32
