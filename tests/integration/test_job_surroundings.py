"""What processes of a job, and shells beside them, find around them."""

from __future__ import annotations

import json
import logging
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from weft.cli.commands.cluster.serve import daily_log
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.engines.attempts.request import tracking_names
from weft.node.ranks.command_plan import plan_command, shell_command
from weft.node.ranks.process import rank_environment, slurm_number
from weft.run_terms import RunTerms
from weft.runtime.records.usage import DAY_S
from weft.wire.attempt import AttemptSpec


def spec(**env: str) -> AttemptSpec:
    return AttemptSpec("train-1", 2, ("x",), "/", "", (0, 1), env=env, cpus=4.0)


def test_a_script_of_slurm_finds_its_variables(tmp_path: Path) -> None:
    variables = rank_environment(spec(SLURM_SUBMIT_DIR="/here"), tmp_path, 1, socket="", port=0)

    assert variables["SLURM_JOB_ID"] == variables["SLURM_JOBID"] == str(slurm_number("train-1"))
    port = "echo $((10000 + SLURM_JOB_ID % 50000))"  # as scripts choose it
    done = subprocess.run(
        ["bash", "-c", port], env=variables, capture_output=True, text=True, check=True
    )
    assert 10_000 <= int(done.stdout) < 60_000
    assert variables["SLURM_PROCID"] == variables["SLURM_LOCALID"] == "1"
    assert variables["SLURM_NTASKS"] == variables["SLURM_GPUS_ON_NODE"] == "2"
    assert variables["SLURM_RESTART_COUNT"] == "1"
    assert variables["SLURM_JOB_NODELIST"] == variables["SLURMD_NODENAME"]  # it has one node
    plain = rank_environment(spec(), tmp_path, 1, socket="", port=0)
    assert not [name for name in plain if name.startswith("SLURM_")]


def test_a_shell_keeps_the_environment_of_its_job_whatever_bashrc_says(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text(
        "export PATH=/own:/usr/bin CUDA_VISIBLE_DEVICES=7 MINE=yes; alias ll='ls -l'\n"
    )
    variables = {
        "HOME": str(tmp_path),
        "PATH": "/job/venv/bin:/usr/bin:/bin",
        "CUDA_VISIBLE_DEVICES": "2",
        "PS1": "",
    }

    ran = subprocess.run(
        [*shell_command("/bin/bash"), "-i"],
        env=variables,
        input="echo $PATH $CUDA_VISIBLE_DEVICES $MINE; alias ll\n",
        capture_output=True,
        text=True,
        check=True,
    )

    path, device, mine = ran.stdout.splitlines()[0].split()
    assert path.startswith("/job/venv/bin:/usr/bin:/bin:")
    assert "/own" in path
    assert (device, mine) == ("2", "yes")
    assert "ls -l" in ran.stdout


def test_a_session_that_is_a_shell_keeps_its_environment_as_well() -> None:
    session = replace(spec(), command=("/bin/bash",), run=RunTerms(pty=True))

    assert plan_command(session, 0, warm=False).command == shell_command("/bin/bash")
    other = replace(session, command=("bash", "-l"))
    assert [*plan_command(other, 0, warm=False).command] == ["bash", "-l"]


def test_runs_are_named_for_the_tools_that_track_them() -> None:
    swept = Job(JobId("try-1"), app="lrs", launch=Launch(("x",), name="try"))

    names = tracking_names(swept)

    assert (names["WANDB_NAME"], names["WANDB_RUN_GROUP"]) == ("try", "lrs")
    assert names["MLFLOW_EXPERIMENT_NAME"] == "lrs"
    assert json.loads(names["MLFLOW_RUN_CONTEXT"])["mlflow.runName"] == "try"
    assert "WANDB_RUN_GROUP" not in tracking_names(replace(swept, app=""))


def test_a_service_logs_to_a_file_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, handler = logging.getLogger("weft.test"), daily_log(tmp_path / "logs")
    made = (tmp_path / "logs" / "weft.log").stat().st_mtime
    midnight = (made // DAY_S + 1.0) * DAY_S
    now = midnight - 3600.0
    monkeypatch.setattr("time.time", lambda: now)
    log.addHandler(handler)
    try:
        log.warning("the first day")
        now += 3000.0
        log.warning("its last hour")
        now += 1200.0  # past midnight
        log.warning("the second day")
    finally:
        log.removeHandler(handler)
        handler.close()

    old = f"weft.log.{datetime.fromtimestamp(made, UTC):%Y-%m-%d}"
    files = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert sorted(files) == ["weft.log", old]
    assert files[old].count("day") == 1
    assert files[old].endswith("its last hour\n")
    assert files["weft.log"].endswith("the second day\n")
