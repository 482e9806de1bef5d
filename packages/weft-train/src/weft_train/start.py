"""The entry of a script into its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from weft_train.base.environment import Environment
from weft_train.base.fence import is_url
from weft_train.checkpoints.files import Checkpoints, folder_only
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.checkpoints.saver import CheckpointSaver, CheckpointStore
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang
from weft_train.reports import Reports
from weft_train.trainer import TrainingJob

if TYPE_CHECKING:
    from weft_train.plans.planned import PlannedRank


def init(
    checkpoints: str | Path | None = None,
    *,
    checkpoint_every_s: float = 120.0,
    report_every_s: float = 1.0,
    seed: int = 0,
    device: str | None = None,
) -> TrainingJob:
    """Join the gang and find the last checkpoint.

    Under Weft the environment says where checkpoints go; alone, `checkpoints` does, and without
    it nothing is saved. It is a folder, or an address that fsspec opens (`s3://bucket/run`). `seed`
    fixes the order of the samples.
    """
    env = Environment.read()
    if env.world_size == 1 and len(env.devices) > 1:
        gpus = ", ".join(map(str, env.devices))
        raise TrainError(
            f"the job has GPUs {gpus} here but was started as one process",
            hint="say `processes: per-gpu` in the job file (--processes), or use torchrun",
        )
    folder = env.checkpoints or checkpoints
    gang, reports = RankGang(env, device), Reports(env, report_every_s)
    return TrainingJob(
        env,
        gang,
        CheckpointSaver(_open_store(str(folder), env) if folder else None, gang, reports),
        reports,
        checkpoint_every_s=checkpoint_every_s,
        seed=seed,
    )


def _open_store(place: str, env: Environment) -> CheckpointStore:
    if not is_url(place := place.removeprefix("file://")):
        return Checkpoints(place, env.attempt)
    from weft_train.checkpoints.objects import ObjectCheckpoints

    return ObjectCheckpoints(place, env.job, env.attempt)


def plan(
    build: Callable[[], torch.nn.Module],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    batch: int,
    layers: Sequence[str] = ("*",),
    tensor: Mapping[str, str] | None = None,
    clip: float | None = None,
    default: str = "dp",
    checkpoints: str | Path | None = None,
    checkpoint_every_s: float = 120.0,
    report_every_s: float = 1.0,
    seed: int = 0,
    device: str | None = None,
) -> PlannedRank:
    """Build a model, divide it as the plan says, and restore the last checkpoint.

    `build` makes the model; every rank makes the same one. `optimizer` is given its parameters.
    `loss` is the mean over the rows it is given. `batch` is the rows of a step over all ranks.
    `layers` names the parts that are called one after the other: what a pipeline is cut between
    and what ZeRO and checkpointing work on. `tensor` says which linear layers are divided by
    `column` and which by `row`. `default` is the plan where `WEFT_PLAN` names none.
    """
    from weft_train.plans.divided import PlanRecipe
    from weft_train.plans.layout import read_layout
    from weft_train.plans.planned import PlannedRank

    env = Environment.read()
    if env.world_size > 1 and find_spec("numpy") is None:
        raise TrainError(
            "torch divides models and their checkpoints over several ranks by way of numpy",
            hint="pip install 'weft-train[plans]'",
        )
    gang = RankGang(env, device)
    folder = env.checkpoints or checkpoints
    text = env.plan or default
    layout = read_layout(text, gang.size)
    recipe = PlanRecipe(build, optimizer, loss, batch, layers, tensor or {}, clip, seed)
    return PlannedRank(
        env,
        gang,
        Reports(env, report_every_s),
        SaveTimes(checkpoint_every_s),
        folder_only(folder) if folder else None,
        layout,
        text,
        recipe,
    )
