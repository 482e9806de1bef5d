"""Consolidate only the models that need it (Tiresias, NSDI 2019).

A model whose largest tensor is a large part of the whole suffers when its gang is spread; the
others may fill the gaps.
"""

from __future__ import annotations

from weft.core.model.job import Allocation, Job
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import Placer, consolidate, in_gaps

# Largest tensor over all tensors, from the sizes published with the Tiresias simulator.
SKEW = {
    "vgg11": 0.774,
    "vgg16": 0.744,
    "vgg19": 0.717,
    "alexnet": 0.611,
    "inception3": 0.138,
    "resnet50": 0.112,
    "resnet101": 0.075,
    "resnet152": 0.060,
    "inception4": 0.044,
}


def skew_of(job: Job) -> float:
    """The job's hint `skew`, else its model's, else 0: an unknown model is not held up."""
    return job.hints.get("skew", SKEW.get(job.model.lower(), 0.0))


def by_skew(limit: float) -> Placer:
    """Consolidate models with a skew above `limit`, let the others fill the gaps."""

    def place(job: Job, free: Capacity) -> Allocation | None:
        return consolidate(job, free) if skew_of(job) > limit else in_gaps(job, free)

    return place
