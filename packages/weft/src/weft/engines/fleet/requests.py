"""From an allocation to the requests for each node's agent and the manager: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import CPU
from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId, Slice
from weft.core.model.launch import SoftwareKind
from weft.core.model.priorities import priority_word
from weft.core.plan.about import Controls
from weft.engines.attempts.request import common_spec
from weft.engines.fleet.port import Abilities, Gang, Machine, Part
from weft.engines.machine.host_part import Asked, HostPart, host_part, read_asked
from weft.frozen import frozen
from weft.wire.attempt import AttemptSpec, folder_of, part_folder, token_socket

Cores = tuple[tuple[int, ...], ...]
ASKS = "SBATCH_"  # how variables begin that a manager reads as requests
RESIZE_LIMIT_S = 180.0  # for new ranks to be ready, their place in a queue included
SLACK_S = 60.0  # beyond a job's own time limit, before a manager may end it


@frozen
class Site:
    """Where attempts are kept and which nodes they have."""

    root: Path
    machines: Mapping[NodeId, Machine]
    abilities: Abilities

    def machine(self, node: NodeId) -> Machine:
        """The node of that name; EngineError if it is not there."""
        if node not in self.machines:
            raise EngineError(f"node {node!r} is not there any more")
        return self.machines[node]


def make_gang(
    job: Job, on: Allocation, attempt: int, site: Site, added: Sequence[Slice] = (), epoch: int = 0
) -> Gang:
    """What the manager is asked to start: all, or what is `added` to it in `epoch`."""
    launch = job.launch
    if launch is None:
        raise InvalidConfig(f"job {job.id!r} has no command")
    whole = folder_of(site.root, job.id, attempt)
    parts = []
    for some in added or on.slices:
        host = part_of_host(read_asked(job), on, some, site)
        folder = part_folder(whole, some.node, epoch)
        parts.append(Part(some.node, some.gpus, host.cpus, host.mem_gb, folder))
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


def part_of_host(asked: Asked, on: Allocation, some: Slice, site: Site) -> HostPart:
    """What one part may use of its node: its devices' part of what the job asked for."""
    part = len(some.gpus) / on.gpus if on.gpus else 1.0
    own = Asked(asked.cpus * part, asked.mem_gb * part)
    return host_part(own, replace(on, slices=(some,)), site.machine(some.node).node)


def make_specs(
    job: Job, on: Allocation, gang: Gang, site: Site, cores: Mapping[NodeId, Cores]
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
                pty=common.pty and at == 0,
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
                coordinator=coordinator_of(on, part.node, site),
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


def coordinator_of(on: Allocation, node: NodeId, site: Site) -> str:
    """Where the ranks of a job that takes turns find the coordinator of its node; empty for none.

    There is one per node, so a gang over several nodes takes no turns.
    """
    discipline = on.sharing.discipline
    if discipline is Discipline.NONE or not site.abilities.tokens or len(on.slices) > 1:
        return ""
    return token_socket(site.root, node, str(discipline))


def write_gang(gang: Gang) -> dict[str, Any]:
    """As it is kept in the attempt's folder, for the service that adopts it."""
    return {**asdict(gang), "parts": [write_part(part) for part in gang.parts]}


def write_part(part: Part) -> dict[str, Any]:
    """One part of a gang, in the same way."""
    return {**asdict(part), "folder": str(part.folder)}


def read_part(part: Mapping[str, Any]) -> Part:
    """What `write_part` wrote."""
    return Part(
        NodeId(part["node"]),
        tuple(part["gpus"]),
        float(part["cpus"]),
        float(part["mem_gb"]),
        Path(part["folder"]),
        numbers=tuple(part.get("numbers", ())),
    )


def read_gang(body: Mapping[str, Any]) -> Gang:
    """What `write_gang` wrote."""
    parts = tuple(map(read_part, body["parts"]))
    rest = {name: value for name, value in body.items() if name not in ("parts", "job", "volumes")}
    volumes = tuple(body.get("volumes", ()))
    return Gang(job=JobId(body["job"]), parts=parts, volumes=volumes, **rest)


def agent_command(python: str, folder: str) -> Sequence[str]:
    """What runs on a node; a manager may put more around it."""
    return (python, "-P", "-m", "weft.node.agent", folder)
