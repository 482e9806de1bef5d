"""The variables that one process of an attempt is started with."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from weft.node.ranks.launchers import Place, find_launcher, launcher_variables
from weft.wire.attempt import TAG, AttemptSpec
from weft.wire.environment import Environment

WATCHER = Path(__file__).parents[1] / "watcher"
# A launcher tells its own processes these; a plain program is not one of several.
SCRIPT_OF_SLURM = "SLURM_SUBMIT_DIR"  # told to scripts of sbatch
SLURM_NUMBERS = 1 << 26  # its own are smaller
OF_A_GANG = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def rank_environment(
    spec: AttemptSpec,
    folder: Path,
    local: int,
    *,
    socket: str,
    port: int,
    alone: Place | None = None,
) -> dict[str, str]:
    """Our own variables that are not secret, the job's, and the rank's identity and place.

    `alone` is for the one process that has all devices of the job here.
    """
    here = max(len(spec.devices), 1)  # one process also where there is no device
    # A launcher starts a process for each device, with the cores of one.
    whole = alone is not None and not find_launcher(spec.command)
    parts = spec.cores if whole else spec.cores[local : local + 1]
    cores = tuple(core for part in parts for core in part)
    environment = Environment(
        job=spec.job,
        attempt=spec.attempt,
        checkpoints=spec.objects or spec.checkpoints,
        agent=socket,
        coordinator=spec.coordinator,
        tier=spec.tier,
        weight=spec.weight,
        phase=spec.phase,
        devices=spec.devices,
        kind=spec.kind,
        nodes=spec.nodes,
        cpus=spec.cpus / (1 if whole else here) or float(len(cores)),
        gpu_mem_gb=spec.gpu_mem_gb,
        most_ranks=0 if alone is not None else spec.most_ranks,
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
    if environment.cpus:
        env["OMP_NUM_THREADS"] = str(len(cores) or max(int(environment.cpus), 1))
    if spec.master_addr == "127.0.0.1":
        env["GLOO_SOCKET_IFNAME"] = "lo"
    if spec.visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = spec.visible
    place = environment.variables()
    if alone is not None:
        place = {name: value for name, value in place.items() if name not in OF_A_GANG}
        place |= launcher_variables(alone)
    env = {**slurm_variables(spec, local), **env, **spec.env, **place, TAG: str(folder)}
    return {**env, **watcher_variables(env.get("PYTHONPATH", ""))} if spec.watch else env


def slurm_number(job: str) -> int:
    """A job as a number in the range of Slurm's: scripts compute ports and seeds from it."""
    return zlib.crc32(job.encode()) % SLURM_NUMBERS or 1


def slurm_variables(spec: AttemptSpec, local: int) -> dict[str, str]:
    """What scripts written for Slurm look for; nothing for jobs that are none."""
    if SCRIPT_OF_SLURM not in spec.env:
        return {}
    tasks = spec.world_size or max(len(spec.devices), 1)
    number = slurm_number(spec.job)
    variables = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NUM_NODES": spec.nodes,
        "SLURM_NNODES": spec.nodes,
        "SLURM_NODEID": spec.node_rank,
        "SLURM_PROCID": spec.first_rank + local,
        "SLURM_LOCALID": local,
        "SLURM_GPUS_ON_NODE": len(spec.devices),
        "SLURM_CPUS_ON_NODE": max(round(spec.cpus), 1),
        "SLURM_NTASKS": tasks,
        "SLURM_RESTART_COUNT": spec.attempt - 1,
        "SLURMD_NODENAME": (here := os.uname().nodename),
        **({"SLURM_JOB_NODELIST": here, "SLURM_NODELIST": here} if spec.nodes == 1 else {}),
    }
    return {name: str(value) for name, value in variables.items()}


def watcher_variables(python_path: str) -> dict[str, str]:
    """What puts the watcher into every Python process, in front of the job's own modules."""
    path = os.pathsep.join(filter(None, (str(WATCHER), python_path)))
    return {"WEFT_WATCH": "1", "PYTHONPATH": path}
