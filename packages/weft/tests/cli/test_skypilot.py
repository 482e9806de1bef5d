"""SkyPilot task files as jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.refused import refused

from weft.cli.job_files.job_file import from_file
from weft.cli.job_files.job_options import Flags
from weft.core.errors import InvalidConfig

TASK = """\
name: train
workdir: code
num_nodes: 2
resources:
  accelerators: A100:4
  cpus: 16+
  memory: 64
  use_spot: true
  cloud: aws
envs:
  MODEL: bert
  SEED: 3
setup: |
  pip list
run: |
  python train.py | tee log
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "task.yaml"
    path.write_text(text)
    return path


def test_a_task_becomes_the_fields_of_a_job(tmp_path: Path) -> None:
    remarks: list[str] = []

    body = from_file(written(tmp_path, TASK), Flags(), remarks.append)

    assert body == {
        "name": "train",
        "workdir": str(tmp_path / "code"),
        "setup": "pip list\n",
        "run": "python train.py | tee log\n",
        "gpus": 8,
        "nodes": 2,
        "kinds": ["a100"],
        "processes": 1,
        "cpus": 32.0,
        "mem_gb": 128.0,
        "priority": "opportunistic",
        "preemptible": True,
        "env": {"MODEL": "bert", "SEED": "3", "SKYPILOT_NUM_GPUS_PER_NODE": "4"},
    }
    assert [text.rpartition(": ")[2] for text in remarks if "cloud" in text] == [
        "resources.cloud is not used"
    ]


@pytest.mark.parametrize(
    ("accelerators", "kinds", "gpus"),
    [("H100", ["h100"], 1), ("{H100: 2}", ["h100"], 2), ("[A100:2, H100:2]", ["a100", "h100"], 2)],
)
def test_accelerators_are_read_in_every_form(
    accelerators: str, kinds: list[str], gpus: int, tmp_path: Path
) -> None:
    text = f"resources: {{accelerators: {accelerators}}}\nrun: true\n"

    body = from_file(written(tmp_path, text), Flags())

    assert (body["kinds"], body["gpus"]) == (kinds, gpus)


@refused(
    InvalidConfig,
    {
        "resources: {accelerators: [A100:1, H100:2]}\nrun: x\n": "one whole number",
        "resources: {accelerators: A100:0.5}\nrun: x\n": "one whole number",
        "resources: {accelerators: A100}\nfile_mounts: {/d: s3://b}\n": "file_mounts is not",
        "resources: {accelerators: A100}\nenvs: {NO_SUCH_KEY: null}\n": "NO_SUCH_KEY has no",
        "resources: {accelerators: A100, memory: lots}\n": "resources.memory is 'lots'",
    },
)
def test_what_is_not_supported_is_said(text: str, tmp_path: Path) -> None:
    from_file(written(tmp_path, text), Flags())
