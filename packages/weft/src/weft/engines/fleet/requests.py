"""From an allocation to requests for each node's agent, and the folders they are written to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import CPU
from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId, Slice, priority_word
from weft.core.model.launch import SoftwareKind
from weft.core.plan.about import Controls
from weft.engines.attempts.job_folders import mark_of
from weft.engines.attempts.request import adjustment, common_spec
from weft.engines.attempts.watch import ask_to_stop as ask_agent_to_stop
from weft.engines.attempts.watch import wake_agent
from weft.engines.fleet.port import Abilities, AttemptPart, Gang, Machine
from weft.engines.machine.host_part import HostPart, HostRequest, host_part, read_asked
from weft.engines.machine.users import give_folder, make_folder
from weft.frozen import frozen
from weft.wire.attempt import (
    ADJUST,
    CURRENT,
    SPEC,
    STOP,
    AttemptSpec,
    folder_of,
    job_folder,
    part_folder,
    read_json,
    token_socket,
    write_whole,
)
from weft.wire.identity import Identity

Cores = tuple[tuple[int, ...], ...]
ASKS = "SBATCH_"  # how variables begin that a manager reads as requests
RESIZE_LIMIT_S = 180.0  # for new ranks to be ready, their place in a queue included
SLACK_S = 60.0  # beyond a job's own time limit, before a manager may end it


@frozen
class AttemptSite:
    """The folders of attempts, and the nodes that they have."""

    root: Path
    machines: Mapping[NodeId, Machine]
    abilities: Abilities

    def machine(self, node: NodeId) -> Machine:
        """The node of that name; EngineError if it is not there."""
        if node not in self.machines:
            raise EngineError(f"node {node!r} is not there any more")
        return self.machines[node]


def make_gang(
    job: Job,
    on: Allocation,
    attempt: int,
    site: AttemptSite,
    added: Sequence[Slice] = (),
    epoch: int = 0,
) -> Gang:
    """The gang that the manager is asked to start: all, or what is `added` to it in `epoch`."""
    launch = job.launch
    if launch is None:
        raise InvalidConfig(f"job {job.id!r} has no command")
    whole = folder_of(site.root, job.id, attempt)
    parts = []
    for some in added or on.slices:
        host = part_of_host(read_asked(job), on, some, site)
        folder = part_folder(whole, some.node, epoch)
        parts.append(AttemptPart(some.node, some.gpus, host.cpus, host.mem_gb, folder))
    software = launch.software
    image = software if software and software.kind is SoftwareKind.IMAGE else None
    limit = launch.time_limit_s
    return Gang(
        job=job.id,
        attempt=attempt,
        name=launch.name or job.id,
        tenant=job.tenant,
        parts=tuple(parts),
        time_limit_s=limit + launch.grace_s + SLACK_S if limit else 0.0,
        grace_s=launch.grace_s,
        image=image.name if image else "",
        volumes=image.volumes if image else (),
        asked={name: value for name, value in launch.env.items() if name.startswith(ASKS)},
        priority=priority_word(job),
    )


def part_of_host(asked: HostRequest, on: Allocation, some: Slice, site: AttemptSite) -> HostPart:
    """The part of its node that one part may use: its devices' part of what the job asked for."""
    part = len(some.gpus) / on.gpus if on.gpus else 1.0
    own = HostRequest(asked.cpus * part, asked.mem_gb * part)
    return host_part(own, replace(on, slices=(some,)), site.machine(some.node).node)


def make_specs(
    job: Job, on: Allocation, gang: Gang, site: AttemptSite, cores: Mapping[NodeId, Cores]
) -> list[AttemptSpec]:
    """The request for each part's agent, in the order of the parts."""
    common = common_spec(job, on, gang.attempt, site.root, inside=site.abilities.images)
    specs, rank = [], 0
    resizes = Controls.RESIZE in site.abilities.controls
    for at, part in enumerate(gang.parts):
        node = site.machine(part.node).node
        real = bool(part.gpus) and node.kind != CPU
        exact = real and site.abilities.exact_devices
        specs.append(
            replace(
                common,
                devices=part.gpus,
                run=replace(common.run, pty=common.run.pty and at == 0),
                kind=node.kind,
                node=part.node,
                nodes=len(gang.parts),
                node_rank=at,
                first_rank=rank,
                world_size=max(on.gpus, 1),
                master_addr=site.machine(gang.parts[0].node).address,
                visible=",".join(map(str, part.gpus)) if exact else None,
                cores=cores.get(part.node, ()),
                cpus=part.cpus,
                asked_cpus=(job.cpus or 0.0) * (len(part.gpus) / on.gpus if on.gpus else 1.0),
                mem_gb=part.mem_gb,
                discipline=str(on.sharing.discipline),
                turns=replace(common.turns, coordinator=coordinator_of(on, part.node, site)),
                audit=common.audit if site.abilities.sees_state else "",
                part=True,
                learnt=real and not exact,
                address=site.machine(part.node).address,
                most_ranks=max(job.demand.max, 1) if resizes else 0,
                resize_limit_s=RESIZE_LIMIT_S,
            )
        )
        rank += len(part.gpus)
    return specs


def coordinator_of(on: Allocation, node: NodeId, site: AttemptSite) -> str:
    """The socket of the coordinator of a node for jobs that take turns; empty for none.

    There is one per node, so a gang over several nodes takes no turns.
    """
    discipline = on.sharing.discipline
    if discipline is Discipline.NONE or not site.abilities.tokens or len(on.slices) > 1:
        return ""
    return token_socket(site.root, node, str(discipline))


def write_gang(gang: Gang) -> dict[str, Any]:
    """As it is kept in the attempt's folder, for the service that adopts it."""
    return {**asdict(gang), "parts": [write_part(part) for part in gang.parts]}


def write_part(part: AttemptPart) -> dict[str, Any]:
    """Write one part of a gang as JSON."""
    return {**asdict(part), "folder": str(part.folder)}


def read_part(part: Mapping[str, Any]) -> AttemptPart:
    """The part that `write_part` wrote."""
    return AttemptPart(
        NodeId(part["node"]),
        tuple(part["gpus"]),
        float(part["cpus"]),
        float(part["mem_gb"]),
        Path(part["folder"]),
        numbers=tuple(part.get("numbers", ())),
    )


def read_gang(body: Mapping[str, Any]) -> Gang:
    """The gang that `write_gang` wrote."""
    parts = tuple(map(read_part, body["parts"]))
    rest = {name: value for name, value in body.items() if name not in ("parts", "job", "volumes")}
    volumes = tuple(body.get("volumes", ()))
    return Gang(job=JobId(body["job"]), parts=parts, volumes=volumes, **rest)


def agent_command(python: str, folder: str) -> Sequence[str]:
    """The command that runs on a node; a manager may put more around it."""
    return (python, "-P", "-m", "weft.node.agent", folder)


GANG = "gang.json"  # in an attempt's folder: its parts, for the service that adopts it
TOKENS = "tokens"  # in the state folder: which disciplines are wanted on which nodes
COMMON = "agents"  # in a job's folder, where agents are its user: what they write for each other
OWNER = "owner"  # in the state folder: what everything of this service is tagged with


@frozen
class AskedToStop:
    """Files that were written, and folders of parts that no agent has or will have."""

    files: tuple[Path, ...]
    unclaimed: tuple[Path, ...]


def service_id(root: Path) -> str:
    """12 hex digits of this service's own, which stay for as long as its state folder is there."""
    file = root / OWNER
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        drawn = hashlib.sha256(os.urandom(32)).hexdigest()[:12]
        file.write_text(drawn + "\n")
        return drawn


def prepare(
    root: Path, gang: Gang, specs: Sequence[AttemptSpec], *, as_users: bool = False
) -> list[Path]:
    """All that agents need to begin; the files that were written, in order.

    From here on earlier attempts of the job are fenced: their agents end when they see it. With
    `as_users` agents run as the job's user, who is given the folders that they write in.
    """
    whole = folder_of(root, gang.job, gang.attempt)
    written = []
    for part, spec in zip(gang.parts, specs, strict=True):
        spec = make_part(root, gang, part, spec, as_users=as_users)
        if spec.turns.coordinator:
            want_coordinator(root, part.node, Discipline(spec.discipline))
        written.append(part.folder / SPEC)
    current = job_folder(root, gang.job) / CURRENT
    fresh = current.with_name(f".{CURRENT}.{os.getpid()}")
    fresh.write_text(f"{gang.attempt}\n")
    fresh.chmod(0o644)  # agents may be others; the folder around it lets in those of this job
    fresh.replace(current)
    mark_of(root, whole).touch()
    write_whole(whole / GANG, write_gang(gang))
    return [*written, current, whole / GANG]


def make_part(
    root: Path, gang: Gang, part: AttemptPart, spec: AttemptSpec, *, as_users: bool
) -> AttemptSpec:
    """The folder of a part with its agent's description, which is returned."""
    part.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if spec.user is not None:
        for folder in (part.folder.parent, part.folder):
            make_folder(folder, root, gang.job, Path(spec.checkpoints), spec.user)
    if spec.user is not None and as_users:
        _give_folders(root, gang, part.folder, spec.user)
        common = str(job_folder(root, gang.job) / COMMON)
        spec = replace(spec, user=None, audit="", common=common)
    spec.write(part.folder)
    return spec


def _give_folders(root: Path, gang: Gang, part: Path, user: Identity) -> None:
    give_folder(part, user)
    give_folder(job_folder(root, gang.job) / COMMON, user)


def open_gang(folder: Path) -> Gang | None:
    """The attempt that was prepared in a folder; None if none was."""
    try:
        body = read_json(folder / GANG)
        if body is not None:
            return read_gang(body)
        return gang_alone(folder) if (folder / SPEC).exists() else None
    except (WireError, KeyError, TypeError, ValueError):
        return None


def gang_alone(folder: Path) -> Gang:
    """The attempt in a folder whose one part is the folder itself."""
    spec = AttemptSpec.read(folder / SPEC)
    part = AttemptPart(NodeId(spec.node), spec.devices, spec.cpus, spec.mem_gb, folder)
    return Gang(JobId(spec.job), spec.attempt, spec.name, "", (part,), grace_s=spec.run.grace_s)


def ask_to_stop(gang: Gang, grace_s: float) -> AskedToStop:
    """Ask every agent to leave within `grace_s`, unless it was asked for sooner."""
    files, unclaimed = [], []
    for part in gang.parts:
        if ask_agent_to_stop(part.folder, grace_s):
            unclaimed.append(part.folder)
        files.append(part.folder / STOP)
    return AskedToStop(tuple(files), tuple(unclaimed))


def want_coordinator(root: Path, node: NodeId, discipline: Discipline) -> None:
    """Record that jobs take turns on a node; the holder of the node starts a coordinator."""
    folder = root / TOKENS / node
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / str(discipline)).touch()


def write_terms(
    gang: Gang, to: Allocation, cores: Mapping[NodeId, Cores], site: AttemptSite
) -> list[Path]:
    """Send a running attempt's agents its new settings; returns the files written."""
    files = []
    for part in gang.parts:
        own = cores.get(part.node, ())
        coordinator = coordinator_of(to, part.node, site)
        if coordinator:
            want_coordinator(site.root, part.node, to.sharing.discipline)
        asked = adjustment(to, str(to.sharing.discipline), coordinator, own)
        write_whole(part.folder / ADJUST, asked)
        wake_agent(part.folder)
        files.append(part.folder / ADJUST)
    return files
