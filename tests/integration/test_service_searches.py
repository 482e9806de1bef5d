"""Sweeps that search, with real jobs, through a restart of the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, get, serving
from tests.waiting import wait_until

ENGINE = "local:cpu=true,slots=2,warm=false"
# Says the words of the wire itself, as a watcher does. What should be stopped never ends by itself.
TRIAL = """
import json, os, socket, sys, time
rate = float(sys.argv[1])
for step in (1, 2, 3):
    body = {"type": "metrics", "job": os.environ["WEFT_JOB"], "rank": 0, "names": ["val_loss"],
            "attempt": int(os.environ["WEFT_ATTEMPT"]), "steps": [step], "values": [rate / step]}
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["WEFT_AGENT"])
    line.sendall(json.dumps(body).encode() + b"\\n")
    line.close()
if rate > 0.25:
    time.sleep(3600)
"""


def jobs_of(client: httpx.Client, sweep: str) -> dict[str, Any]:
    return {job["parameters"]["lr"]: job for job in get(client, "/jobs", app=sweep)["jobs"]}


def test_trials_that_fall_behind_give_way_also_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "trial.py").write_text(TRIAL)
    sweep = {
        "search": "asha",
        "space": {"lr": {"uniform": [0.0, 0.5]}},
        "trials": 8,
        "seed": 1,
        "metric": "val_loss",
        "eta": 2,
    }
    body = {
        "command": [sys.executable, "trial.py", "${lr}"],
        "workdir": str(tmp_path),
        "sweep": sweep,
        "gpus": 0,
        "max_parallel": 2,
    }
    with serving(ENGINE, tmp_path / "state", "fifo") as client:
        made = client.post(f"{API}/jobs", json=body)
        assert made.status_code == 201, made.text
        name = made.json()["id"]

        def aside() -> list[Any]:
            jobs = get(client, "/jobs", app=name)["jobs"]
            return [job for job in jobs if "is behind" in (job["suspended_by"] or job["reason"])]

        wait_until(lambda: bool(aside()))
    with serving(ENGINE, tmp_path / "state", "fifo") as client:

        def states() -> set[str]:
            return {job["state"] for job in get(client, "/jobs", app=name)["jobs"]}

        wait_until(lambda: states() <= {"succeeded", "failed", "cancelled"})
        jobs = get(client, "/jobs", app=name)["jobs"]

    assert len(jobs) == 8
    best = min(float(job["parameters"]["lr"]) for job in jobs)
    for job in jobs:
        rate = float(job["parameters"]["lr"])
        assert job["state"] == "succeeded" or "is behind" in job["reason"], job
        assert job["state"] == "cancelled" or rate < 0.25
        assert job["state"] == "succeeded" or rate > best
