"""Jobs without GPUs as real processes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until


def test_a_job_without_gpus_runs_beside_jobs_that_hold_all_devices(tmp_path: Path) -> None:
    with serving("local:slots=1,cpu=true,warm=false", tmp_path / "state") as client:
        holder = submit(client, command=["sleep", "60"], workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{holder}")["state"] == "running")

        script = "echo devices=$WEFT_DEVICES world=$WORLD_SIZE nice=$(nice)"
        job = submit(client, run=script, gpus=0, workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "succeeded")

        assert (
            client.get(f"{API}/jobs/{job}/logs").text
            == f"devices= world= nice={min(os.nice(0) + 5, 19)}\n"
        )
        answer = get(client, f"/jobs/{job}")
        assert answer["gpu_seconds"] == 0.0
        assert (answer["gpus"]["max"], answer["cpus"]) == (0, 1.0)
        client.delete(f"{API}/jobs/{holder}")


def test_one_that_waits_says_for_what(tmp_path: Path) -> None:
    with serving("local:slots=1,cpu=true,warm=false", tmp_path / "state") as client:
        cpus = get(client, "/nodes")["nodes"][0]["cpus"]
        first = submit(client, command=["sleep", "60"], gpus=0, cpus=cpus, workdir=str(tmp_path))
        second = submit(client, command=["true"], gpus=0, cpus=1.0, workdir=str(tmp_path))
        wait_until(lambda: get(client, f"/jobs/{first}")["state"] == "running")

        answer = get(client, f"/jobs/{second}/explain")
        assert answer["reason"].startswith("waits for 1 CPU; other jobs without GPUs have them")
        assert answer["blocked_by"] == "cpu_jobs"

        client.delete(f"{API}/jobs/{first}")
        wait_until(lambda: get(client, f"/jobs/{second}")["state"] == "succeeded")
