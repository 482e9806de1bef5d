"""Sweeps through the service and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.integration.serving import API, FAST, STILL, get, serving
from tests.waiting import wait_until
from weft.cli.main import cli


def weft(client: httpx.Client, *words: str) -> str:
    where = {"WEFT_URL": str(client.base_url).rstrip("/"), "COLUMNS": "120"}
    ran = CliRunner().invoke(cli, [*words], env=where)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_a_sweep_is_one_line_and_goes_as_one(tmp_path: Path) -> None:
    (tmp_path / "tune.yaml").write_text(
        "name: tune\ncommand: [train, '--lr=${lr}']\n"
        "sweep: {grid: {lr: [0.1, 0.01, 0.001]}}\nmax_parallel: 2\n"
    )
    with serving(STILL) as client:
        printed = weft(client, "submit", str(tmp_path / "tune.yaml"))
        sweep = printed.split()[1].rstrip(",")
        assert "3 jobs" in printed
        wait_until(lambda: len(get(client, "/jobs", state="running")["jobs"]) == 2)

        lines = [line for line in weft(client, "jobs").splitlines() if sweep in line]
        assert len(lines) == 1
        assert "3 jobs: 2 running, 1 pending" in lines[0]
        assert weft(client, "jobs", sweep).count(f"{sweep}.") == 3
        assert weft(client, "jobs", "--all").count(f"{sweep}.") == 3
        last = get(client, f"/jobs/{sweep}.2")
        assert last["reason"] == f"waits behind others of {sweep}: 2 of them may run at once"
        assert last["parameters"] == {"lr": "0.001"}
        assert last["command"] == ["train", "--lr=0.001"]

        weft(client, "cancel", sweep)
        assert {job["state"] for job in get(client, "/jobs", app=sweep)["jobs"]} == {"cancelled"}


def test_a_job_runs_after_all_jobs_of_a_sweep() -> None:
    with serving(FAST) as client:
        body = {"name": "tune", "hints": {"duration_s": 600}, "sweep": {"grid": {"a": [1, 2, 3]}}}
        made = client.post(f"{API}/jobs", json=body).json()
        last = client.post(f"{API}/jobs", json={"after": {"ok": ["tune"]}}).json()["id"]

        assert sorted(get(client, f"/jobs/{last}")["after"]["ok"]) == sorted(made["jobs"])
        wait_until(lambda: get(client, f"/jobs/{last}")["started"] is not None)
        assert all(get(client, f"/jobs/{job}")["state"] == "succeeded" for job in made["jobs"])


def test_a_sweep_with_an_id_is_handed_in_once() -> None:
    with serving(STILL) as client:
        body = {"id": "tune", "sweep": {"grid": {"a": [1, 2]}}}

        first, again = (client.post(f"{API}/jobs", json=body).json() for _ in range(2))

        assert first == again
        assert (first["id"], first["jobs"]) == ("tune", ["tune.0", "tune.1"])
        assert len(get(client, "/jobs")["jobs"]) == 2


def test_a_sweep_with_a_job_that_cannot_run_leaves_none_behind(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with serving("local:slots=2,cpu=true,warm=false", tmp_path / "state") as client:
        body = {
            "command": ["true"],
            "workdir": f"{tmp_path}/${{dir}}",
            "sweep": {"grid": {"dir": ["a", "b"]}},
        }
        answer = client.post(f"{API}/jobs", json=body)

        assert answer.status_code == 422
        assert "is not a folder here" in answer.json()["error"]
        assert get(client, "/jobs")["jobs"] == []


@pytest.mark.parametrize("flags", [["--array", "1-3%2"], ["--sweep", "task=1,2,3"]])
def test_flags_make_sweeps(flags: list[str], tmp_path: Path) -> None:
    with serving("local:slots=2,cpu=true,warm=false", tmp_path / "state") as client:
        printed = weft(
            client, "submit", *flags, "--json", "--workdir", str(tmp_path),
            "--", "sh", "-c", "echo $WEFT_SWEEP_TASK/${task}",
        )  # fmt: skip
        made = json.loads(printed)
        wait_until(lambda: get(client, f"/jobs/{made['jobs'][2]}")["state"] == "succeeded")

        assert client.get(f"{API}/jobs/{made['jobs'][2]}/logs").text == "3/3\n"
