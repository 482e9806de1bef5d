"""From a promise to what an agent is told: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from weft.core.errors import InvalidConfig
from weft.core.model import Allocation, Batch, Job
from weft.engines.devices import Machine
from weft.engines.users import may_walk_to
from weft.wire.attempt import AttemptSpec, job_folder
from weft.wire.identity import Identity

NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Site:
    """Where this engine keeps things, and whom its agents poke."""

    root: Path
    notify: str = ""
    pin: bool = True


def check_launch(job: Job, user: Identity | None = None) -> None:
    """Raise InvalidConfig for a job without a command that `user` can run here."""
    launch = job.launch
    if launch is None or not launch.command:
        raise InvalidConfig(f"job {job.id!r} has no command", hint="give it one after `--`")
    if any("\0" in text for text in (*launch.command, *launch.env, *launch.env.values())):
        raise InvalidConfig(f"job {job.id!r}: a command or variable holds a NUL character")
    if bad := [name for name in launch.env if not name or "=" in name]:
        raise InvalidConfig(f"job {job.id!r}: {bad[0]!r} is not the name of a variable")
    workdir = Path(launch.workdir)
    if may_walk_to(workdir, user) and not workdir.is_dir():
        raise InvalidConfig(
            f"job {job.id!r}: its workdir {launch.workdir!r} is not a folder here",
            hint="give an absolute path that this machine has",
        )


def attempt_spec(
    job: Job,
    on: Allocation,
    attempt: int,
    machine: Machine,
    site: Site,
    *,
    discipline: str = "none",
    coordinator: str = "",
    env: Mapping[str, str] = NO_ENV,
    user: Identity | None = None,
) -> AttemptSpec:
    """Run every rank of `job` on this machine; `env` is the engine's own addition."""
    launch = job.launch
    if launch is None:
        raise InvalidConfig(f"job {job.id!r} has no command")
    devices = tuple(gpu for part in on.slices for gpu in part.gpus)
    own = job_folder(site.root, job.id)
    workdir = Path(launch.workdir).absolute()
    return AttemptSpec(
        job=job.id,
        attempt=attempt,
        command=launch.command,
        workdir=str(workdir),
        checkpoints=str(workdir / launch.checkpoint if launch.checkpoint else own / "checkpoints"),
        devices=devices,
        env={**env, **sharing_env(machine, job), **launch.env},
        kind=machine.node.kind,
        node=machine.node.id,
        world_size=len(devices),
        visible=visible(machine, devices),
        cores=tuple(machine.cores[device] for device in devices) if site.pin else (),
        mem_gb=job.mem_gb or 0.0,
        batch=wire_batch(on.batch),
        discipline=discipline,
        coordinator=coordinator,
        tier=on.sharing.tier.name.lower(),
        weight=on.sharing.share,
        phase=on.sharing.phase,
        notify=site.notify,
        lock=str(own / "running.lock"),
        user=user,
        audit=str(site.root / "audit.jsonl"),
    )


def visible(machine: Machine, devices: tuple[int, ...]) -> str | None:
    """CUDA_VISIBLE_DEVICES for a job's ranks; None where there are no GPUs."""
    if not machine.gpus:
        return None
    return ",".join(str(machine.gpus[device].index) for device in devices)


def sharing_env(machine: Machine, job: Job) -> dict[str, str]:
    """What limits a client of the MPS daemon to the part of a device that it asked for.

    Claims that a policy gives to neighbours do not limit them: the limit of a process cannot
    change while it runs, and would outlast the neighbour it was for.
    """
    share = job.demand.share
    if not machine.gpus or share >= 1.0:
        return {}
    return {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{max(1, round(100 * share))}"}


def adjustment(to: Allocation, discipline: str, coordinator: str) -> dict[str, object]:
    """What a running attempt's agent is told of its new terms."""
    sharing = to.sharing
    return {
        "batch": wire_batch(to.batch) or (0, 0),
        "discipline": discipline,
        "turns": {
            "coordinator": coordinator,
            "tier": sharing.tier.name.lower(),
            "weight": sharing.share,
            "phase": sharing.phase,
        },
    }


def wire_batch(batch: Batch | None) -> tuple[int, int] | None:
    """A batch as ranks are told it."""
    return None if batch is None else (batch.per_gpu, batch.accumulate)
