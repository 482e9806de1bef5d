"""How commands are started, and what launchers are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.node.ranks.command_plan import (
    AUTO,
    ONE,
    PER_GPU,
    LaunchPlace,
    find_launcher,
    fit_launcher,
    starts_per_gpu,
    why_restarted,
)
from weft.wire.attempt import AttemptSpec

HERE = LaunchPlace(gpus=2, nodes=1, node=0, address="127.0.0.1", port=29)
FAR = LaunchPlace(gpus=4, nodes=3, node=1, address="10.0.0.1", port=29)


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun train.py", ("torchrun", 1)),
        ("/opt/bin/torchrun --standalone train.py", ("torchrun", 1)),
        ("python -m torch.distributed.run train.py", ("torchrun", 3)),
        ("env A=1 uv run torchrun train.py", ("torchrun", 5)),
        ("accelerate launch train.py", ("accelerate", 2)),
        ("accelerate config", None),
        ("deepspeed train.py", ("deepspeed", 1)),
        ("mpirun -np 2 ./a", ("mpirun", 1)),
        ("python -m weft.node.ray_job python tune.py", ("ray_job", 3)),
        ("python train.py", None),
        ("python launch.py torchrun", None),
        ("echo torchrun", None),
        ("bash -c torchrun", None),
    ],
)
def test_launchers_are_found_where_a_command_begins(
    command: str, launcher: tuple[str, int] | None
) -> None:
    assert find_launcher(command.split()) == launcher


def test_torchrun_is_told_how_many_and_where() -> None:
    assert fit_launcher(["torchrun", "t.py", "--lr", "1"], FAR) == [
        "torchrun", "--nproc-per-node=4", "--nnodes=3", "--node-rank=1",
        "--master-addr=10.0.0.1", "--master-port=29", "t.py", "--lr", "1",
    ]  # fmt: skip
    own = ["torchrun", "--nproc_per_node", "8", "--standalone", "t.py"]
    assert fit_launcher(own, HERE) == own
    script = ["torchrun", "--standalone", "t.py", "--nproc-per-node=9"]
    assert fit_launcher(script, HERE)[1] == "--nproc-per-node=2"


def test_the_others_are_told_in_their_words() -> None:
    assert fit_launcher(["accelerate", "launch", "--cpu", "t.py"], HERE) == [
        "accelerate", "launch", "--num_processes=2", "--num_machines=1",
        "--main_process_port=29", "--cpu", "t.py",
    ]  # fmt: skip
    assert fit_launcher(["deepspeed", "t.py"], HERE) == [
        "deepspeed", "--num_gpus=2", "--master_port=29", "t.py",
    ]  # fmt: skip
    assert "--no_ssh" in fit_launcher(["deepspeed", "t.py"], FAR)
    assert fit_launcher(["mpirun", "./a", "-n", "5"], HERE) == [
        "mpirun", "-np", "2", "./a", "-n", "5",
    ]  # fmt: skip
    assert fit_launcher(["mpirun", "-n", "3", "./a"], HERE) == ["mpirun", "-n", "3", "./a"]


@pytest.mark.parametrize(
    ("text", "per_gpu"),
    [
        ("import weft_train as wt\n", True),
        ("if True:\n    from weft_train.huggingface import Elastic\n", True),
        ("import weft.train as wt\n", True),
        ("if True:\n    from weft.train.huggingface import Elastic\n", True),
        ("from weft import train\n", True),
        ("import torch\n# uses no weft.train\n", False),
        ("import weft.training\n", False),
        ("import weft_training\n", False),
    ],
)
def test_scripts_that_import_the_trainer_are_started_for_each_gpu(
    text: str, per_gpu: bool, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(text)

    assert starts_per_gpu(AUTO, ["python", "t.py", "--x"], str(tmp_path), 2) is per_gpu
    assert not starts_per_gpu(AUTO, ["torchrun", "t.py"], str(tmp_path), 2)
    assert not starts_per_gpu(ONE, ["python", "t.py"], str(tmp_path), 2)
    assert starts_per_gpu(PER_GPU, ["torchrun", "t.py"], str(tmp_path), 2)
    assert starts_per_gpu(AUTO, ["true"], str(tmp_path), 1)
    assert not starts_per_gpu(AUTO, ["torchrun", "t.py"], str(tmp_path), 1)


def test_what_cannot_be_looked_into_is_started_once(tmp_path: Path) -> None:
    assert not starts_per_gpu(AUTO, ["python", "missing.py"], str(tmp_path), 2)
    assert not starts_per_gpu(AUTO, ["./run"], str(tmp_path), 2)


def test_a_launcher_that_cannot_let_ranks_come_and_go_is_named() -> None:
    spec = AttemptSpec("j", 1, ("torchrun", "t.py"), "/", "/c", (0, 1), most_ranks=4)

    assert "torchrun starts its processes" in why_restarted(spec)
    assert not why_restarted(replace(spec, command=("python", "t.py")))
    assert not why_restarted(replace(spec, most_ranks=1))
    assert not why_restarted(replace(spec, first_rank=2))
