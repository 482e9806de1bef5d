"""From an allocation to the request for an agent: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from weft.base.fence import is_url
from weft.base.messages import Turns
from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Batch, Job, TimeShift, name_of
from weft.core.model.launch import Software, SoftwareKind
from weft.engines.machine.containers import enter_container
from weft.engines.machine.devices import LocalMachine
from weft.engines.machine.host_part import HostPart, Means, host_part, notices, read_asked
from weft.engines.machine.users import may_walk_to
from weft.frozen import frozen
from weft.run_terms import RunTerms
from weft.wire.attempt import AttemptSpec, job_folder
from weft.wire.cgroups import Base, limits_of
from weft.wire.identity import Identity

NO_ENV: Mapping[str, str] = MappingProxyType({})
CHECKPOINTS = "checkpoints"  # in a job's folder, where it names no other
NO_MEANS = Means()
ESTIMATE_MARGIN = 2.0  # times what a table says about a model: optimizers and allocators differ
PROCESS_GB = 2.0  # of a device for a context, and what libraries work in
REQUIREMENTS = (".txt", ".in")
# As a shell says of a command: what is not there will not be there at the next try either.
MISSING = "{ echo %s >&2; exit 127; }"


@frozen
class LocalSite:
    """The engine's folders, the sockets that its agents notify, and its control groups."""

    root: Path
    notify: str = ""
    groups: Base | None = None


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
    machine: LocalMachine,
    site: LocalSite,
    *,
    discipline: str = "none",
    coordinator: str = "",
    env: Mapping[str, str] = NO_ENV,
    user: Identity | None = None,
    cores: tuple[tuple[int, ...], ...] = (),
    means: Means = NO_MEANS,
    resize_limit_s: float = 0.0,
    suspender: tuple[str, ...] = (),
) -> AttemptSpec:
    """Run every rank of `job` on this machine; `env` is the engine's own addition.

    With a `resize_limit_s` ranks may come and go as they train, where their script can.
    """
    devices = tuple(gpu for part in on.slices for gpu in part.gpus)
    part = host_part(read_asked(job), on, machine.node)
    common = common_spec(job, on, attempt, site.root)
    if means.waits and job.gpu_mem_gb is None:
        common = replace(common, gpu_mem_gb=0.0)
    sharing = sharing_env(machine, job, common.gpu_mem_gb, devices, means)
    return replace(
        common,
        devices=devices,
        env={**env, **sharing, **common.env},
        kind=machine.node.kind,
        node=machine.node.id,
        world_size=max(len(devices), 1),
        visible=visible(machine, devices),
        cores=cores,
        cpus=part.cpus,
        asked_cpus=job.cpus or 0.0,
        mem_gb=part.mem_gb,
        group=str(group_of(site, job.id, attempt) or ""),
        limits=group_limits(site, part),
        notices=notices(part, common.gpu_mem_gb, means),
        discipline=discipline,
        turns=replace(common.turns, coordinator=coordinator),
        notify=site.notify,
        lock=str(job_folder(site.root, job.id) / "running.lock"),
        user=user,
        most_ranks=max(job.demand.max, 1) if resize_limit_s else 0,
        resize_limit_s=resize_limit_s,
        suspender=suspender,
    )


def common_spec(
    job: Job, on: Allocation, attempt: int, root: Path, *, inside: bool = False
) -> AttemptSpec:
    """The request for all agents of an attempt, whatever their nodes; `root` keeps jobs' files.

    `inside` says that an image's agents are in its container already.
    """
    launch = job.launch
    if launch is None:
        raise InvalidConfig(f"job {job.id!r} has no command")
    workdir, own = Path(launch.workdir).absolute(), job_folder(root, job.id)
    remote = is_url(launch.checkpoint)
    folder = workdir / launch.checkpoint if launch.checkpoint and not remote else None
    return AttemptSpec(
        job=job.id,
        attempt=attempt,
        command=launch.command,
        workdir=str(workdir),
        checkpoints=str(folder or own / CHECKPOINTS),
        objects=launch.checkpoint if remote else "",
        devices=(),
        env={**tracking_names(job), **plan_env(on), **launch.env},
        run=RunTerms(**launch.terms()),
        prepare=preparation(launch.software),
        activate=activation(launch.software),
        container="" if inside else enter_container(launch.software, launch.env),
        gpu_mem_gb=memory_cap(job, on),
        batch=wire_batch(on.batch),
        turns=wire_turns(on, ""),
        time_shift=wire_shift(on.time_shift),
        name=launch.name or job.id,
        audit=str(root / "audit.jsonl"),
    )


def visible(machine: LocalMachine, devices: tuple[int, ...]) -> str | None:
    """CUDA_VISIBLE_DEVICES for a job's ranks; None where there are no GPUs."""
    if not machine.gpus:
        return None
    return ",".join(str(machine.gpus[device].index) for device in devices)


def group_of(site: LocalSite, job: str, attempt: int) -> Path | None:
    """The control group of an attempt; None where there are none."""
    if site.groups is None:
        return None
    return site.groups.path / f"{job_folder(site.root, job).name}@{attempt}"


def group_limits(site: LocalSite, part: HostPart) -> dict[str, str]:
    """The texts for the files of an attempt's control group."""
    if site.groups is None:
        return {}
    return limits_of(site.groups.controllers, part.cpus, part.mem_gb, part.soft_gb)


def means_of(
    site: LocalSite, machine: LocalMachine, *, pin: bool, mps: bool, waits: bool = False
) -> Means:
    """The limits that this machine lets us apply."""
    groups = site.groups
    return Means(
        cpu_controller=groups is not None and groups.limits_cpu,
        memory_controller=groups is not None and groups.limits_memory,
        pin=pin,
        mps=mps,
        gpus=bool(machine.gpus),
        waits=waits,
    )


def tracking_names(job: Job) -> dict[str, str]:
    """The names of a run for MLflow and Weights & Biases, and what it belongs to."""
    tags = {"mlflow.runName": name_of(job), "weft.job": str(job.id)}
    named = {"WANDB_NAME": name_of(job), "MLFLOW_RUN_CONTEXT": json.dumps(tags)}
    groups = {"WANDB_RUN_GROUP": job.app, "MLFLOW_EXPERIMENT_NAME": job.app} if job.app else {}
    return {**named, **groups}


def plan_env(on: Allocation) -> dict[str, str]:
    """The execution plan for a rank; replicas are as many as its gang allows."""
    return {} if on.plan is None else {"WEFT_PLAN": replace(on.plan, data=0).text}


def sharing_env(
    machine: LocalMachine, job: Job, claim_gb: float, devices: tuple[int, ...], means: Means
) -> dict[str, str]:
    """Variables that limit a client of the MPS daemon to its part of a device and of its memory.

    Shares that a policy gives to neighbours do not limit them: the limit of a process cannot
    change while it runs, and would outlast the neighbour it was for.
    """
    env: dict[str, str] = {}
    share = job.demand.share
    if machine.gpus and share < 1.0:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{max(1, round(100 * share))}"
    if machine.gpus and claim_gb:
        env |= memory_limits(claim_gb / machine.node.device_gb)
    if machine.gpus and claim_gb and means.mps:
        most = f"{max(1, int(claim_gb * 1024))}M"
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(
            f"{at}={most}" for at in range(len(devices))
        )
    return env


def memory_cap(job: Job, on: Allocation) -> float:
    """The GB that a job may take of each device beside others; 0 for no limit.

    What its owner declared is taken at his word. What a policy claims for a known model counts its
    tensors alone, so the process gets room for its context and its allocator on top: too small a
    limit would kill a job that harms no other. A job with a device to itself needs no limit.
    """
    claim_gb = on.sharing.gpu_mem_gb
    if claim_gb is None:
        return 0.0
    if job.gpu_mem_gb is not None:
        return claim_gb
    if on.sharing.share >= 1.0:
        return 0.0
    return claim_gb * ESTIMATE_MARGIN + PROCESS_GB if job.model else claim_gb


def memory_limits(part: float) -> dict[str, str]:
    """Variables that keep a framework to a part of its device's memory: torch, XLA, TF."""
    if not 0.0 < part < 1.0:
        return {}
    return {
        "WEFT_GPU_MEMORY_FRACTION": f"{part:.4f}",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{part:.4f}",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def adjustment(
    to: Allocation,
    discipline: str,
    coordinator: str,
    cores: tuple[tuple[int, ...], ...] = (),
    limits: Mapping[str, str] = NO_ENV,
) -> dict[str, object]:
    """The request that gives a running attempt's agent its new settings."""
    return {
        "cores": cores,
        "limits": dict(limits),
        "batch": wire_batch(to.batch) or (0, 0),
        "discipline": discipline,
        "turns": asdict(wire_turns(to, coordinator)),
        "time_shift": wire_shift(to.time_shift) or (0.0, 0.0),
    }


def wire_batch(batch: Batch | None) -> tuple[int, int] | None:
    """A batch as sent to ranks."""
    return None if batch is None else (batch.per_gpu, batch.accumulate)


def wire_turns(on: Allocation, coordinator: str) -> Turns:
    """The terms on which a job shares its devices, as sent to ranks."""
    sharing = on.sharing
    return Turns(coordinator, sharing.tier.name.lower(), sharing.share, sharing.phase)


def wire_shift(shift: TimeShift | None) -> tuple[float, float] | None:
    """The start of iterations, as sent to ranks: period and shift."""
    return None if shift is None else (shift.period_s, shift.shift_s)


# ---- How an environment is made and activated: lines for bash, run where the job runs. Pure


def preparation(software: Software | None) -> str:
    """The commands run once before the job, at every start; empty for nothing."""
    if software is None or software.kind is not SoftwareKind.UV:
        return ""
    name = quote(software.name)
    if not software.name.endswith(REQUIREMENTS):
        return f"{_need('uv')}\nuv sync --quiet --project {name}"
    return (
        f"{_need('uv')}\n{_folder(software)}\n"
        '[ -x "$weft_env/bin/python" ] || uv venv --quiet "$weft_env"\n'
        f'VIRTUAL_ENV="$weft_env" uv pip install --quiet -r {name}'
    )


def activation(software: Software | None) -> str:
    """The commands that every process of the job begins with; empty for nothing."""
    if software is None:
        return ""
    name = quote(software.name)
    match software.kind:
        case SoftwareKind.VENV:
            return _source(f"{name}/bin/activate", f"no virtual environment in {software.name}")
        case SoftwareKind.CONDA:
            absent = MISSING % quote(f"no conda environment {software.name}")
            begin = f'{_need("conda")}\neval "$(conda shell.bash hook)"'
            return f"{begin}\nconda activate {name} || {absent}"
        case SoftwareKind.UV if software.name.endswith(REQUIREMENTS):
            return f'{_folder(software)}\n. "$weft_env/bin/activate"'
        case SoftwareKind.UV:
            made = f"uv has made no environment in {software.name}"
            return _source(f"{name}/.venv/bin/activate", made)
        case SoftwareKind.IMAGE:
            return ""  # entered by `weft.engines.machine.containers`


def _source(path: str, otherwise: str) -> str:
    return f"[ -f {path} ] || {MISSING % quote(otherwise)}\n. {path}"


def _need(program: str) -> str:
    return (
        f"command -v {program} >/dev/null || {MISSING % quote(f'{program} is not installed here')}"
    )


def _folder(software: Software) -> str:
    """The folder of the environment of a file of requirements: equal files share one."""
    digest = f"$(sha256sum {quote(software.name)} | cut -c1-16)"
    return f'weft_env="${{XDG_CACHE_HOME:-$HOME/.cache}}/weft/uv/{digest}"'
