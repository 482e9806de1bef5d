"""The folders of an attempt on several nodes: what is written there, and what is asked there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from weft.core.model.job import Allocation, Discipline, NodeId
from weft.engines.attempts.job_folders import mark_of
from weft.engines.attempts.request import adjustment
from weft.engines.attempts.watch import ask_to_stop as ask_agent_to_stop
from weft.engines.attempts.watch import nudge
from weft.engines.fleet.port import Gang, Part
from weft.engines.fleet.requests import Cores, Site, coordinator_of, read_gang, write_gang
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
    read_json,
    write_whole,
)
from weft.wire.errors import WireError
from weft.wire.identity import Identity

GANG = "gang.json"  # in an attempt's folder: its parts, for the service that adopts it
TOKENS = "tokens"  # in the state folder: which disciplines are wanted on which nodes
COMMON = "agents"  # in a job's folder, where agents are its user: what they write for each other
OWNER = "owner"  # in the state folder: what everything of this service is tagged with


@frozen
class AskedToStop:
    """Files that were written, and folders of parts that no agent has or will have."""

    files: tuple[Path, ...]
    unclaimed: tuple[Path, ...]


def find_owner(root: Path) -> str:
    """12 hex digits of this service's own, the same for as long as its state folder is there."""
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
        if spec.coordinator:
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
    root: Path, gang: Gang, part: Part, spec: AttemptSpec, *, as_users: bool
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
        return None if body is None else read_gang(body)
    except (WireError, KeyError, TypeError, ValueError):
        return None


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
    gang: Gang, to: Allocation, cores: Mapping[NodeId, Cores], site: Site
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
        nudge(part.folder)
        files.append(part.folder / ADJUST)
    return files
