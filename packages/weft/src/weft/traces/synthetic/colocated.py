"""Single-GPU training jobs that leave room on a GPU, for policies that share devices.

The eight models of IADeep's evaluation (Cai et al., SC 2023) in equal parts, with Poisson arrivals
and log-normal lengths; nothing of the paper's trace.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.job import BatchRange, Job, JobId
from weft.core.model.trace import LoadReport, Trace, Truth
from weft.traces.draft import Workload
from weft.traces.options import DrawRequest

CLUSTER, GPUS, JOBS, LOAD = "5x4:rtx3090", 20, 400, 1.3
MEAN_S, SPREAD, LEAST_S = 1800.0, 1.0, 60.0
# Models with the batch they are submitted with.
BATCHES = {
    "vgg16": 512,
    "squeezenet": 512,
    "resnet50": 256,
    "neumf": 8192,
    "ad-gcl": 32,
    "lstm": 256,
    "bert": 32,
    "yolov5": 32,
}


def generate(request: DrawRequest) -> Trace:
    """Draw the jobs; arrivals are spaced so that alone on their GPUs they would offer `load`."""
    rng = np.random.default_rng(request.seed)
    count = request.jobs or JOBS
    # The mean of the factor is 1.
    lengths = np.maximum(LEAST_S, MEAN_S * rng.lognormal(-(SPREAD**2) / 2.0, SPREAD, count))
    arrivals = np.cumsum(rng.exponential(1.0, count))
    arrivals -= arrivals[0]
    span = lengths.sum() / ((request.gpus or GPUS) * (request.load or LOAD))
    arrivals *= span / (arrivals[-1] or 1.0)
    models = rng.choice(list(BATCHES), count)
    jobs = []
    for i in range(count):
        model = str(models[i])
        init = BATCHES[model]
        batch = BatchRange(init, 2 * init, 2 * init)
        job = Job(JobId(f"{model}-{i}"), round(float(arrivals[i]), 3), model=model, batch=batch)
        jobs.append((job, Truth(round(float(lengths[i]), 3))))
    return Trace("colocated", tuple(jobs), CLUSTER, report=LoadReport(count, count))


COLOCATED = Workload(
    "colocated", "single-GPU jobs of eight models that can share GPUs", CLUSTER, generate
)
