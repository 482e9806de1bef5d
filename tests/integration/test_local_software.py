"""Jobs in environments of their own, and secrets that nobody is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.integration.serving import API, get, serving, submit
from tests.waiting import LIMIT_S, wait_until

ENGINE = "local:slots=2,cpu=true,warm=false"
PREFIX = "python -c 'import sys; print(sys.prefix)'"


def output(client: httpx.Client, **fields: Any) -> str:
    job = submit(client, retries=0, **fields)
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] in ("succeeded", "failed"))
    return client.get(f"{API}/jobs/{job}/logs").text


def test_a_job_runs_in_its_virtual_environment_with_its_setup(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"],
        check=True,
        timeout=LIMIT_S,
    )
    with serving(ENGINE, tmp_path / "state") as client:
        printed = output(
            client,
            command=["python", "-c", "import sys; print(sys.prefix)"],
            setup=PREFIX,
            environment={"venv": "own"},
            workdir=str(tmp_path),
        )

        assert printed == f"{tmp_path}/own\n" * 2


def test_an_environment_that_is_not_there_fails_the_job_in_words(tmp_path: Path) -> None:
    with serving(ENGINE, tmp_path / "state") as client:
        gone = {"venv": "gone"}
        job = submit(client, run="true", environment=gone, workdir=str(tmp_path), retries=3)
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] in ("succeeded", "failed"))

        ended = get(client, f"/jobs/{job}")
        assert client.get(f"{API}/jobs/{job}/logs").text == "no virtual environment in gone\n"
        assert ended["attempt"] == 1
        assert "environment is not found, so it is not tried again" in ended["reason"]


def test_uv_makes_the_environment_of_a_project(tmp_path: Path) -> None:
    project = '[project]\nname = "p"\nversion = "0"\nrequires-python = ">=3.11"\n'
    (tmp_path / "pyproject.toml").write_text(project)
    with serving(ENGINE, tmp_path / "state") as client:
        printed = output(client, run=PREFIX, environment={"uv": "."}, workdir=str(tmp_path))

        assert f"{tmp_path}/.venv\n" in printed


def test_secrets_reach_the_job_and_nobody_else(tmp_path: Path) -> None:
    env = {"API_TOKEN": "hunter-2-token", "DSN": "s3cr3t-dsn", "PLAIN": "shown"}
    with serving(ENGINE, tmp_path / "state") as client:
        job = submit(
            client,
            command=["sh", "-c", 'echo $API_TOKEN $DSN $PLAIN; test "$DSN" = s3cr3t-dsn; exit 3'],
            env=env,
            secrets=["DSN"],
            retries=0,
            workdir=str(tmp_path),
        )
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "failed")

        log = client.get(f"{API}/jobs/{job}/logs").text
        assert log == f"{'*' * 14} {'*' * 10} shown\n"
        shown = json.dumps([get(client, f"/jobs/{job}"), get(client, f"/jobs/{job}/events")])
        assert "*** *** shown" in shown or "shown" in shown
        assert "hunter-2" not in shown
        assert "s3cr3t" not in shown


def test_a_secret_that_is_no_variable_is_refused(tmp_path: Path) -> None:
    with serving("simulated:cluster=1x1:a100,speed=1") as client:
        answer = client.post(f"{API}/jobs", json={"secrets": ["NOPE"]})

        assert answer.status_code == 422
        assert "'NOPE' has no value in env" in answer.json()["error"]
