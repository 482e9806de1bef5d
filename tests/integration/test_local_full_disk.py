"""Full disks, real ones: of a job's checkpoints, and of the service's own log."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import serving
from tests.integration.small_disk import fill, on_a_small_disk
from tests.waiting import wait_until
from weft.wire.attempt import EVENTS, folder_of
from weft_train.checkpoints.files import Checkpoints, verify

API = "/api/v1"
LOCAL = "local:slots=2,warm=false,cpu=true,name=here"
SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2] / "packages/weft-train/tests")!r})
from train_script import train
train(sys.argv[1], epochs=100_000, every_s=0.2, ballast=100_000)
"""


def job_of(client: httpx.Client, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get(f"{API}/jobs/{name}").json()
    return answer


def notices_of(client: httpx.Client, name: str) -> list[str]:
    return [notice["text"] for notice in job_of(client, name)["notices"]]


def rank_of(state: Path, name: str, attempt: int) -> int:
    import json

    lines = (folder_of(state, name, attempt) / EVENTS).read_text().splitlines()
    started = next(line for line in map(json.loads, lines) if line["event"] == "started")
    pid: int = started["ranks"]["0"][0]
    return pid


def test_a_job_outlives_the_full_disk_of_its_checkpoints(tmp_path: Path) -> None:
    on_a_small_disk(lambda disk: outlives(disk, tmp_path), tmp_path, kb=4096)


def outlives(disk: Path, tmp_path: Path) -> None:
    script, state, kept = tmp_path / "job.py", tmp_path / "state", disk / "ckpt"
    script.write_text(SCRIPT)
    body = {
        "command": [sys.executable, str(script), str(tmp_path / "seen")],
        "workdir": str(tmp_path),
        "checkpoint": {"dir": str(kept), "grace_s": 20},
    }
    with serving(LOCAL, state) as client:
        name = client.post(f"{API}/jobs", json=body).json()["id"]
        wait_until(lambda: job_of(client, name)["saved_step"], "no checkpoint was written")

        filler = fill(disk, leave_kb=100)
        wait_until(
            lambda: any("could not write" in text for text in notices_of(client, name)), "not told"
        )

        job = job_of(client, name)
        assert job["state"] == "running"
        assert job["restarts"] == 0
        good, _ = Checkpoints(kept).find_newest()
        assert good is not None
        step = verify(good)["step"]
        assert step == job_of(client, name)["saved_step"]

        # A crash while the disk is full: it goes on from there, not from the beginning.
        os.kill(rank_of(state, name, 1), signal.SIGKILL)
        wait_until(lambda: job_of(client, name)["restarts"] == 1, "not started again")
        wait_until(lambda: len(notices_of(client, name)) and good.exists(), "the good one is gone")
        assert job_of(client, name)["saved_step"] == step

        filler.unlink()
        wait_until(lambda: job_of(client, name)["saved_step"] > step, "no checkpoints any more")
        assert job_of(client, name)["restarts"] == 1
        client.delete(f"{API}/jobs/{name}")
        wait_until(lambda: job_of(client, name)["state"] == "cancelled", "not cancelled")
    assert first_step(tmp_path, 2) >= step


def first_step(folder: Path, attempts: int) -> int:
    """The first step of the last attempt."""
    import json

    files = sorted(folder.glob("seen.*"), key=lambda path: path.stat().st_ctime)
    assert len(files) == attempts
    step: int = json.loads(files[-1].read_text().splitlines()[0])["step"]
    return step


def test_a_service_with_a_full_disk_refuses_and_comes_back(tmp_path: Path) -> None:
    on_a_small_disk(lambda disk: comes_back(disk, tmp_path), tmp_path, kb=2048)


def comes_back(disk: Path, tmp_path: Path) -> None:
    state = disk / "state"
    flag = tmp_path / "flag"
    waits = ["sh", "-c", f"while [ ! -e {flag} ]; do sleep 0.05; done; echo done"]
    body = {"command": waits, "workdir": str(tmp_path)}
    with serving(LOCAL, state) as client:
        running = client.post(f"{API}/jobs", json=body).json()["id"]
        wait_until(lambda: job_of(client, running)["state"] == "running", "not started")

        filler = fill(disk)
        accepted, answer = [running], client.post(f"{API}/jobs", json=body)
        while answer.status_code == 201:  # what was there already has some room left
            accepted.append(answer.json()["id"])
            answer = client.post(f"{API}/jobs", json=body)

        assert answer.status_code == 503
        assert "cannot write its log" in answer.json()["error"]
        assert "free space" in answer.json()["hint"]
        assert "cannot write its log" in client.get(f"{API}/cluster").json()["trouble"]
        listed = [job["id"] for job in client.get(f"{API}/jobs").json()["jobs"]]
        assert listed == accepted
        flag.touch()  # it ends while nothing can be written down

        filler.unlink()
        late = wait_until(lambda: submitted(client, body), "still refused")
        accepted.append(late)
        for name in accepted:
            wait_until(lambda name=name: job_of(client, name)["state"] == "succeeded", name)  # type: ignore[misc]
        assert client.get(f"{API}/cluster").json()["trouble"] == ""
    with serving(LOCAL, state) as client:
        listed = [job["id"] for job in client.get(f"{API}/jobs").json()["jobs"]]
        assert listed == accepted


def submitted(client: httpx.Client, body: dict[str, Any]) -> str:
    answer = client.post(f"{API}/jobs", json=body)
    return str(answer.json()["id"]) if answer.status_code == 201 else ""
