"""Options of the local engine that hardly anybody changes, each with real jobs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.engines.elastic_scenario import Service, size
from tests.engines.elastic_scenario import submit as submit_elastic
from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until


def test_without_sleep_a_suspended_job_leaves_and_comes_back_as_another_attempt(
    tmp_path: Path,
) -> None:
    with serving("local:cpu=true,slots=2,warm=false,sleep=false", state=tmp_path) as client:
        job = submit(client, gpus=1, command=["sleep", "1000"], workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "running")
        client.post(f"{API}/jobs/{job}/suspend", json={"restart": True}).raise_for_status()
        wait_until(lambda: not get(client, f"/jobs/{job}")["allocation"])
        client.post(f"{API}/jobs/{job}/resume").raise_for_status()
        wait_until(lambda: names_of(client, job).count("Started") == 2)
        events = names_of(client, job)
        client.delete(f"{API}/jobs/{job}")

    assert "Stopped" in events
    assert "Slept" not in events


def names_of(client: httpx.Client, job: str) -> list[str]:
    return [event["event"] for event in get(client, f"/jobs/{job}/events")["events"]]


@pytest.mark.slow
def test_without_a_limit_for_live_resizes_a_training_is_stopped_for_them(tmp_path: Path) -> None:
    engine = "local:cpu=true,slots=4,warm=false,resize_limit_s=0"
    service = Service(tmp_path / "state", ("--engine", engine, "--policy", "sia:interval=3"))
    service.start()
    try:
        job = submit_elastic(service.client, tmp_path)
        wait_until(lambda: size(service.job(job)) >= 2, "it was grown")

        assert service.job(job).attempt >= 2
    finally:
        service.client.delete(f"/jobs/{job}")
        service.end()
