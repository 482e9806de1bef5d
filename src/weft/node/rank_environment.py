"""The variables that one rank of an attempt is started with."""

from __future__ import annotations

import os
from pathlib import Path

from weft.wire.attempt import TAG, AttemptSpec
from weft.wire.environment import Environment


def rank_environment(
    spec: AttemptSpec, folder: Path, local: int, *, socket: str, port: int
) -> dict[str, str]:
    """Our own variables that are not secret, the job's, and who and where the rank is."""
    here = len(spec.devices)
    cores = spec.cores[local] if spec.cores else ()
    told = Environment(
        job=spec.job,
        attempt=spec.attempt,
        checkpoints=spec.checkpoints,
        agent=socket,
        coordinator=spec.coordinator,
        tier=spec.tier,
        weight=spec.weight,
        phase=spec.phase,
        devices=spec.devices,
        kind=spec.kind,
        nodes=spec.nodes,
        cpus=spec.cpus / here or float(len(cores)),
        gpu_mem_gb=spec.gpu_mem_gb,
        rank=spec.first_rank + local,
        world_size=spec.world_size or here,
        local_rank=local,
        local_world_size=here,
        master_addr=spec.master_addr,
        master_port=port,
    )
    # The service's own variables are not the job's: its token may be among them.
    env = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
    if spec.user is not None:
        env.update(spec.user.variables(spec.workdir))
    env["PYTHONUNBUFFERED"] = "1"
    if told.cpus:
        env["OMP_NUM_THREADS"] = str(len(cores) or max(int(told.cpus), 1))
    if spec.master_addr == "127.0.0.1":
        env["GLOO_SOCKET_IFNAME"] = "lo"
    if spec.visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = spec.visible
    return {**env, **spec.env, **told.variables(), TAG: str(folder)}
