"""How a script joins its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from weft.plural import say_gpus
from weft.train.checkpoints.files import Checkpoints, folder_only
from weft.train.checkpoints.save_times import SaveTimes
from weft.train.checkpoints.saver import CheckpointStore, Saver
from weft.train.errors import TrainError
from weft.train.ranks.gang import Gang
from weft.train.reports import Reports
from weft.train.trainer import Job
from weft.wire.environment import Environment
from weft.wire.fence import is_url

if TYPE_CHECKING:
    from weft.train.plans.planned import Planned


def init(
    checkpoints: str | Path | None = None,
    *,
    checkpoint_every_s: float = 120.0,
    report_every_s: float = 1.0,
    seed: int = 0,
    device: str | None = None,
) -> Job:
    """Join the gang and find the last checkpoint.

    Under Weft the environment says where checkpoints go; alone, `checkpoints` does, and without
    it nothing is saved. It is a folder, or an address that fsspec opens (`s3://bucket/run`). `seed`
    fixes the order of the samples.
    """
    env = Environment.read()
    if env.world_size == 1 and len(env.devices) > 1:
        raise TrainError(
            f"the job has {say_gpus(len(env.devices))} here but was started as one process",
            hint="say `processes: per-gpu` in the job file (--processes), or use torchrun",
        )
    folder = env.checkpoints or checkpoints
    gang, reports = Gang(env, device), Reports(env, report_every_s)
    return Job(
        env,
        gang,
        Saver(_open_store(str(folder), env) if folder else None, gang, reports),
        reports,
        checkpoint_every_s=checkpoint_every_s,
        seed=seed,
    )


def _open_store(place: str, env: Environment) -> CheckpointStore:
    if not is_url(place := place.removeprefix("file://")):
        return Checkpoints(place, env.attempt)
    from weft.train.checkpoints.objects import ObjectCheckpoints

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
) -> Planned:
    """Build a model, divide it as the plan says, and restore the last checkpoint.

    `build` makes the model; every rank makes the same one. `optimizer` is given its parameters.
    `loss` is the mean over the rows it is given. `batch` is the rows of a step over all ranks.
    `layers` names the parts that are called one after the other: what a pipeline is cut between
    and what ZeRO and checkpointing work on. `tensor` says which linear layers are divided by
    `column` and which by `row`. `default` is the plan where `WEFT_PLAN` names none.
    """
    from weft.train.plans.layout import read_layout
    from weft.train.plans.planned import Planned, Recipe

    env = Environment.read()
    gang = Gang(env, device)
    folder = env.checkpoints or checkpoints
    layout = read_layout(env.plan or default, gang.size)
    torch.manual_seed(seed)
    recipe = Recipe(optimizer, loss, batch, layers, tensor or {}, clip, seed)
    return Planned(
        env,
        gang,
        Reports(env, report_every_s),
        SaveTimes(checkpoint_every_s),
        folder_only(folder) if folder else None,
        layout,
        build(),
        recipe,
    )
