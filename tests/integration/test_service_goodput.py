"""A goodput policy and a real elastic job: what it reports decides what it gets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.engines.elastic_scenario import submit
from tests.ports import free_port
from weft.cli.commands.cluster.demo import end_all
from weft.cli.connect.client import ServiceClient
from weft.cli.connect.own_service import own_service
from weft.service.responses.answers import JobAnswer

LIMIT_S = 900.0


@pytest.mark.slow
def test_sia_grows_a_job_that_nobody_knew_by_what_it_measures(tmp_path: Path) -> None:
    engine = ("--engine", "local:cpu=true,slots=4", "--policy", "sia:interval=3")
    with own_service(tmp_path / "state", free_port(), *engine) as client:
        try:
            name = submit(client, tmp_path, epochs=200)
            sizes = watch(client, name)
        finally:
            end_all(client, tmp_path / "state")

    assert sizes[0] == 1
    assert max(sizes) >= 2
    # Sia at most doubles what a job has run on: it must have measured before it grew.
    assert all(later <= 2 * max(sizes[: i + 1]) for i, later in enumerate(sizes[1:]))


def watch(client: ServiceClient, name: str) -> list[int]:
    """The sizes a job has run on, one after the other, until it grew or ended."""
    sizes: list[int] = []
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        job = client.get(JobAnswer, f"/jobs/{name}")
        if job.state == "running" and job.allocation:
            size = sum(len(part.gpus) for part in job.allocation)
            if not sizes or sizes[-1] != size:
                sizes.append(size)
        if job.state == "succeeded" or len(sizes) > 2:
            return sizes
        assert job.state not in ("failed", "cancelled"), job.reason
        time.sleep(0.2)
    return sizes
