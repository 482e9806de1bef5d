"""A running job that could use more says why it does not get it."""

from __future__ import annotations

import pytest

from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.about import About, Controls
from weft.core.state.capacity import Capacity
from weft.runtime.deciding.waiting import WaitExplainer, why_small

SIZES = About("sizes", "a test", controls=Controls.COUNT)


@pytest.mark.parametrize(
    ("cluster", "most", "about", "text"),
    [
        ("1x4:a100", 4, SIZES, "runs on 2 of up to 4 GPUs; 2 are free, but it grows only"),
        ("1x3:cpu", 4, SIZES, "runs on 2 of up to 4 CPU slots; 1 is free, but it grows only"),
        ("1x4:a100", 4, About("plain", "a test"), "but policy 'sizes' leaves jobs at the size"),
        ("1x4:a100", 2, SIZES, ""),  # it has all that it may
        ("1x2:a100", 4, SIZES, ""),  # nothing is free
    ],
)
def test_an_elastic_job_beside_free_devices_has_a_reason(
    cluster: str, most: int, about: About, text: str
) -> None:
    free = Capacity(parse_cluster(cluster))
    on = Allocation((free.slice_of(0, 0b11),))
    free.take(on)
    waits = WaitExplainer(free, free.cluster.nodes, about, "sizes", 0.0)

    why = why_small(waits, Job(JobId("a"), demand=Demand(2, 1, most)), on)

    assert text in why
    assert bool(why) == bool(text)
