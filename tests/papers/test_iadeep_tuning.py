"""IADeep's tuning from end to end, against an independent simulation of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.papers.iadeep_tuning_reference import Trainer, simulate_pair
from tests.papers.together import together
from weft.core.knowledge.profile import Profile
from weft.core.model.job import BatchRange, Job, JobId
from weft.perf.sharing.batching import find_batching
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of
from weft.policies.iadeep.policy import IADeep
from weft.policies.iadeep.tuning import Session

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
    models = [str(one) for one in rng.choice(sorted(KNOWN), size=2, replace=False)]
    arrivals = (0.0, float(rng.integers(10, 100)))
    lengths = rng.uniform((150.0, 20.0), 900.0)
    jobs = [
        Trainer(*KNOWN[model], at, float(length))
        for model, at, length in zip(models, arrivals, lengths, strict=True)
    ]
    return models, jobs


@pytest.mark.parametrize("seed", range(6))
def test_two_jobs_that_are_tuned_end_as_in_an_independent_simulation(seed: int) -> None:
    models, jobs = draw_pair(seed)
    work = []
    for name, model, one in zip("ab", models, jobs, strict=True):
        sizes = BatchRange(one.batch, 2 * one.batch, 2 * one.batch)
        work.append((Job(JobId(name), one.at, model=model, batch=sizes), one.seconds))

    truth = Colocated(profile_of, by_use, batching=find_batching)
    done = together(IADeep(probes=8, patience=4, probe_s=5.0), work, "1x1:rtx3090", truth)

    expected = simulate_pair(jobs, DEVICE_GB, 8, 4, 5.0)
    assert [done.end["a"], done.end["b"]] == pytest.approx(expected, rel=1e-6)
    plain = together(IADeep(tune=False), work, "1x1:rtx3090", truth)
    assert plain.end != pytest.approx(done.end, rel=1e-6)


def test_a_search_says_how_far_it_has_come() -> None:
    session = Session((JobId("a"), JobId("b")), (32, 64), 5.0)

    later = replace(session.told(2.0), asked=(16, 96)).told(1.5)

    assert session.describe(1, 10).startswith("batch 64 is on trial, 1 of at most 10")
    assert replace(later, asked=(24, 80)).describe(0, 10) == (
        "batch 24 is on trial, 3 of at most 10; best so far 16, 25% less degradation than at first"
    )
    assert later.summarise(0) == "batch 16 was the best of 2, 25% less degradation than at first"
