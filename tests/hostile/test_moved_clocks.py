"""Clocks that jump while no service runs, and a machine that comes back under another name."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.serving import FAST, get, serving, submit
from tests.waiting import wait_until
from weft.judge.judge import judge
from weft.judge.log_lines import LogLine, read_log

DAY_S = 86_400.0
# A job that notes that it began, and holds a lock that a second one of it could not have.
ONCE = 'exec 9>>"$0.lock"; flock -n 9 || { echo twice >>"$0"; exit 1; }; echo began >>"$0"; '


def test_the_log_and_the_books_outlive_clocks_that_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jobs = time.time, list[str]()
    for shift in (0.0, -DAY_S, DAY_S, -2 * DAY_S):
        monkeypatch.setattr(time, "time", lambda shift=shift: real() + shift)
        with serving(FAST, tmp_path) as client:
            jobs.append(submit(client, gpus=1, hints={"duration_s": 60}))
            last = f"/jobs/{jobs[-1]}"
            wait_until(lambda last=last: get(client, last)["state"] == "succeeded")  # type: ignore[misc]
            accounts = get(client, "/accounting")

    times = [line.at for line in read_log(tmp_path) if isinstance(line, LogLine)]
    assert all(before <= after for before, after in pairwise(times))
    assert {row["id"]: row["state"] for row in accounts["jobs"]} == dict.fromkeys(jobs, "succeeded")
    assert all(row["submitted"] <= row["started"] <= row["ended"] for row in accounts["jobs"])
    (tenant,) = accounts["tenants"]
    assert (
        0.0
        < tenant["gpu_seconds"]
        == pytest.approx(sum(r["gpu_seconds"] for r in accounts["jobs"]))
    )
    assert judge(read_log(tmp_path)).wrong == 0


def test_a_machine_that_comes_back_with_another_name_runs_no_job_twice(tmp_path: Path) -> None:
    state, note = tmp_path / "state", tmp_path / "note"
    command = ["bash", "-c", f"{ONCE} until [ -e $0.go ]; do sleep 0.1; done", str(note)]
    with serving("local:slots=1,cpu=true,warm=false,name=old", state) as client:
        job = submit(client, command=command, workdir=str(tmp_path), checkpoint={"dir": "."})
        wait_until(note.exists)

    with serving("local:slots=1,cpu=true,warm=false,name=new", state) as client:
        (tmp_path / "note.go").touch()
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "succeeded")
        nodes = {node["id"]: node["state"] for node in get(client, "/nodes")["nodes"]}

    assert nodes["new"] == "up"
    assert set(note.read_text().split()) == {"began"}
    assert judge(read_log(state)).wrong == 0
