"""The workload of jobs that can share GPUs."""

from __future__ import annotations

import pytest

from weft.perf.sharing.batching import MODELS, find_batching
from weft.traces.options import DrawRequest
from weft.traces.synthetic.colocated import BATCHES, generate


def test_every_job_is_tunable_and_submitted_with_its_models_batch() -> None:
    trace = generate(DrawRequest(seed=3, jobs=100))

    assert {name: model.known.init for name, model in MODELS.items()} == BATCHES
    assert all(find_batching(job) is MODELS[job.model] for job, _ in trace)
    assert {job.model for job, _ in trace} == set(BATCHES)


def test_the_load_is_what_was_asked_for() -> None:
    trace = generate(DrawRequest(seed=0, jobs=2000, load=0.9, gpus=40))

    assert trace.load(40) == pytest.approx(0.9, rel=1e-6)
    assert generate(DrawRequest(seed=0)) == generate(DrawRequest(seed=0))
    assert generate(DrawRequest(seed=0)) != generate(DrawRequest(seed=1))
