"""How a script joins its job."""

from __future__ import annotations

from pathlib import Path

from weft.train.checkpoints.files import Checkpoints
from weft.train.errors import TrainError
from weft.train.ranks.gang import Gang
from weft.train.reports import Reports
from weft.train.trainer import Job
from weft.wire.environment import Environment


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
    it nothing is saved. `seed` fixes the order of the samples.
    """
    env = Environment.read()
    if env.world_size == 1 and len(env.devices) > 1:
        raise TrainError(
            f"the job has {len(env.devices)} GPUs here but was started as one process",
            hint="say `processes: per-gpu` in the job file (--processes), or use torchrun",
        )
    folder = env.checkpoints or checkpoints
    return Job(
        env,
        Gang(env, device),
        Checkpoints(folder, env.attempt) if folder else None,
        Reports(env, report_every_s),
        checkpoint_every_s=checkpoint_every_s,
        seed=seed,
    )
