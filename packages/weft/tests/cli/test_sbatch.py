"""Slurm scripts as jobs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.refused import refused

from weft.cli.job_files.job_file import from_sbatch
from weft.cli.job_files.job_options import Flags, slurm_seconds_of
from weft.cli.job_files.sbatch import is_sbatch
from weft.core.errors import InvalidConfig

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=bert   # the name
#SBATCH --gres=gpu:A100:2
#SBATCH -c 8 --mem=64G
#SBATCH --time=1-12:00:00
#SBATCH --signal=B:USR1@120
#SBATCH -p gpu
#SBATCH --output=out-%j.log
#SBATCH --export=ALL,SEED=3

module=x
echo begin "$1" | cat
#SBATCH --gres=gpu:8
srun --unbuffered -n 1 echo "seed $SEED"
"""


def read(
    folder: Path, text: str, *arguments: str, flags: Flags | None = None
) -> tuple[dict[str, Any], list[str]]:
    path = folder / "s.sbatch"
    path.write_text(text)
    remarks: list[str] = []
    body = from_sbatch(path, arguments, flags or Flags(), remarks.append)
    return body, remarks


def test_the_header_becomes_the_fields_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    body, remarks = read(tmp_path, SCRIPT, "now")

    command = body.pop("command")
    assert body == {
        "name": "bert",
        "workdir": str(tmp_path),
        "processes": 1,
        "env": {
            "SLURM_NTASKS": "1",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_NAME": "bert",
            "SLURM_CPUS_PER_TASK": "8",
            "SEED": "3",
        },
        "gpus": 2,
        "kinds": ["a100"],
        "cpus": 8.0,
        "mem_gb": 64.0,
        "time_limit_s": 129_600.0,
        "warn_s": 120.0,
    }
    assert [text.partition(": ")[2].split(" is")[0] for text in remarks] == [
        "--output",
        "--partition",
    ]
    ran = subprocess.run(command, env={"SEED": "3", "PATH": "/usr/bin:/bin"}, capture_output=True)
    assert ran.stdout.decode() == "begin now\nseed 3\n", ran.stderr


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        ("--gpus=4", 4),
        ("-G h100:4", 4),
        ("-N 2 --gpus-per-node=4", 8),
        ("--gres=gpu", 1),
        ("-N2 --gres=gpu:3", 6),
        ("-n 1 --gpus-per-task=2", 2),
    ],
)
def test_gpus_are_counted_as_slurm_does(lines: str, gpus: int, tmp_path: Path) -> None:
    body, _ = read(tmp_path, f"#!/bin/sh\n#SBATCH {lines}\ntrue\n")

    assert body["gpus"] == gpus


def test_nodes_are_asked_for_where_the_script_says_how_many(tmp_path: Path) -> None:
    head = "#!/bin/sh\n#SBATCH -N 2-4 --gpus-per-node=4 --ntasks-per-node=1 -c 8 --mem=10G\n"

    body, remarks = read(tmp_path, head + "srun torchrun train.py\n")
    plain, _ = read(tmp_path, "#!/bin/sh\n#SBATCH --gpus=4\ntrue\n")

    assert (body["gpus"], body["nodes"], body["cpus"], body["mem_gb"]) == (8, 2, 16.0, 20.0)
    assert any("--nodes=2-4 is taken as 2" in text for text in remarks)
    assert "nodes" not in plain


@refused(
    InvalidConfig,
    {
        "#!/bin/bash\n#SBATCH --gres=gpu:1 --array=9-1\n": "is not an array of tasks",
        "#!/bin/bash\n#SBATCH --gres=gpu:1 --begin=noon\n": "--begin is not supported",
        "#!/bin/bash\n#SBATCH --gres=gpu:1 -d singleton\n": "--dependency=singleton is not",
        "#!/bin/bash\n#SBATCH --gres=gpu:1 -d afterok\n": "afterok:ID",
        "#!/bin/bash\n#SBATCH --gres=gpu:1 -d afterok:1?afterok:2\n": "is not supported",
        "#!/bin/bash\n#SBATCH --time=1h --gres=gpu:1\n": "--time=1h is not a time",
        "#!/bin/bash\n#SBATCH --gres=mps:3\n": "how many GPUs",
        "#!/bin/bash\n#SBATCH -n many\n": "#SBATCH: argument -n/--ntasks",
        "#!/bin/bash\n#SBATCH --gres=gpu:2 -n 2\nsrun python t.py\n": "srun would start 2",
        "#!/usr/bin/perl\n#SBATCH --gres=gpu:2\n": "expected a shell script",
    },
)
def test_what_would_not_be_the_same_job_is_refused(text: str, tmp_path: Path) -> None:
    read(tmp_path, text)


def test_flags_win_and_can_say_what_is_missing(tmp_path: Path) -> None:
    body, _ = read(tmp_path, "#!/bin/bash\n#SBATCH -J x\n", flags=Flags(gpus="1-4", name="y"))

    assert (body["gpus"], body["name"]) == ({"min": 1, "max": 4}, "y")


def test_only_scripts_with_a_header_are_slurm_scripts(tmp_path: Path) -> None:
    for name, text in (("a", "#!/bin/sh\n#SBATCH -J x\n"), ("b", "echo '#SBATCH'\n")):
        (tmp_path / name).write_text(text)

    assert is_sbatch(tmp_path / "a")
    assert not is_sbatch(tmp_path / "b")
    assert not is_sbatch(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400)],
)
def test_times_are_slurms(text: str, seconds: float) -> None:
    assert slurm_seconds_of(text) == seconds


def test_dependencies_are_those_of_a_job_file(tmp_path: Path) -> None:
    line = "#SBATCH --gres=gpu:1 --dependency=afterok:a:b,afterany:c,afternotok:d"

    body, _ = read(tmp_path, f"#!/bin/sh\n{line}\ntrue\n")

    assert body["after"] == {"ok": ["a", "b"], "any": ["c"], "not_ok": ["d"]}


def test_an_array_is_a_sweep_over_its_tasks(tmp_path: Path) -> None:
    body, _ = read(tmp_path, "#!/bin/sh\n#SBATCH --gres=gpu:1 --array=0-6:3,9%2\ntrue\n")

    assert body["sweep"] == {"list": [{"task": 0}, {"task": 3}, {"task": 6}, {"task": 9}]}
    assert body["max_parallel"] == 2
    assert body["env"]["SLURM_ARRAY_TASK_ID"] == "${task}"
    assert body["env"]["SLURM_ARRAY_TASK_MAX"] == "9"


def test_a_script_without_gpus_is_a_job_without_gpus(tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    path.write_text("#!/bin/bash\n#SBATCH -c 2\nmake\n")
    remarks: list[str] = []

    body = from_sbatch(path, (), Flags(), remarks.append)

    assert (body["gpus"], body["cpus"]) == (0, 2.0)
    assert "asks for no GPU" in remarks[0]
