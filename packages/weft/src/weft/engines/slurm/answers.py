"""Reads what Slurm's programs print: explicit text formats, which do not change with releases."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from weft.core.model.cluster import CPU, Node
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptObservation, AttemptPhase, Key, Machine, NodeHealth
from weft.engines.machine.devices import kind_of
from weft.frozen import frozen

NODES = ("sinfo", "-h", "-N", "-o", "%N|%T|%c|%m|%G|%o|%E")
# What people write themselves comes last: it may hold bars.
JOBS = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%N|%b|%U|%n|%k")
USED_WIDTHS = (100, 400, 40)  # of names, GPUs in use, and CPUs: in use/idle/other/all
USED = ("sinfo", "-h", "-N", "-O", "NodeList:100,GresUsed:400,CPUsState:40")
HOSTS = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?(?:,|$)")
STEPS = ("squeue", "-h", "-s", "-o", "%i|%N|%j")
GPU = re.compile(r"gpu(?::(?P<type>[^:(,]+))??:(?P<count>\d+)")
FLAGS = "*~#!%$@^+-"  # after a node's state: not responding, powered down, ...
PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
HOLDING = RUNNING | {"CONFIGURING"}  # also while its nodes are switched on
WORDS = {
    "TIMEOUT": "it ran into the time limit that Slurm set for it",
    "PREEMPTED": "Slurm preempted it for a job of its own",
    "CANCELLED": "it was cancelled in Slurm",
    "NODE_FAIL": "Slurm lost one of its nodes",
    "BOOT_FAIL": "one of its nodes could not be started",
    "OUT_OF_MEMORY": "Slurm ended it because it took too much memory",
    "DEADLINE": "Slurm ended it at its deadline",
    "FAILED": "its batch script failed",
}
PREPARES, PREPARED = "CONFIGURING", "its nodes are being switched on or made ready"
TAKEN_AWAY = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL")  # by no doing of the job
TAG = "weft"
ATTEMPT = re.compile("[0-9]{1,9}")  # any user can write a tag with more digits than Python reads
ALL = 1_000  # more GPUs than any node has


def in_partition(name: str) -> tuple[str, ...]:
    """The option that has Slurm show a partition alone; none where all are meant."""
    return ("-p", name) if name else ()


@frozen
class SlurmNode:
    """A node as Slurm names things: `gres` is how its GPUs are asked for, less their number."""

    machine: Machine
    gres: str


@frozen
class SlurmJob:
    """A batch job or a component of one; `gpus` are those of each of its nodes.

    `uid` is the user whose job it is, `wanted` are the nodes it asks for.
    """

    id: str
    state: str
    reason: str
    nodes: str
    gpus: int = 0
    uid: int = -1
    wanted: str = ""


def read_nodes(text: str, slots: int) -> dict[NodeId, SlurmNode]:
    """The answer to `NODES`; a node without GPUs has `slots` CPU slots, 0 for one per core."""
    nodes: dict[NodeId, SlurmNode] = {}
    for line in text.splitlines():
        words = line.split("|", 6)
        if len(words) != 7:
            continue  # the rest of a reason of several lines
        name, state, cpus, mem_mb, gres, address, reason = words
        kind, count, asked = read_gres(gres)
        node = Node(
            NodeId(name),
            kind,
            count or slots or int(cpus),
            cpus=float(cpus),
            mem_gb=float(mem_mb) / 1000.0,
        )
        health = health_of(state)
        why = reason if reason not in ("", "none", "(null)") else f"Slurm says {state}"
        machine = Machine(node, health, "" if health is NodeHealth.UP else why, address)
        nodes[node.id] = SlurmNode(machine, asked)
    return nodes


def read_gres(text: str) -> tuple[str, int, str]:
    """Kind, number and request of a node's GPUs: `gpu:a100:4(S:0-1)` is a100, 4, `gpu:a100`."""
    counts: dict[str, int] = {}
    for match in GPU.finditer(text):
        counts[match["type"] or ""] = counts.get(match["type"] or "", 0) + int(match["count"])
    if not counts:
        return CPU, 0, ""
    most = max(counts, key=lambda kind: counts[kind])
    kind = kind_of(most.replace("_", " ")) if most else "gpu"
    return kind, counts[most], f"gpu:{most}" if most else "gpu"


def health_of(state: str) -> NodeHealth:
    """The fitness for jobs of a node in this state.

    One that does not answer (`*`) is not down yet: all are like that after a controller's restart.
    """
    plain = state.rstrip(FLAGS).lower()
    if plain.startswith(("down", "fail", "error", "power", "inval", "future", "reboot")):
        return NodeHealth.DOWN
    if plain.startswith(("drain", "maint", "block")):
        return NodeHealth.DRAINING
    return NodeHealth.UP


def write_tag(owner: str, key: Key) -> str:
    """The tag that an attempt is found by: a comment without spaces or bars."""
    return f"{TAG}:{owner}:{quote(key[0], safe='')}:{key[1]}"


def read_tag(owner: str, text: str) -> Key | None:
    """The attempt of a comment; None for one that is not this owner's."""
    words = text.strip().split(":")
    if len(words) != 4 or words[:2] != [TAG, owner] or not ATTEMPT.fullmatch(words[3]):
        return None
    return JobId(unquote(words[2])), int(words[3])


def read_jobs(text: str) -> list[tuple[str, SlurmJob]]:
    """The answer to `JOBS`: comments and jobs."""
    jobs = []
    for line in text.splitlines():
        words = line.split("|", 7)
        if len(words) != 8 or not words[5].isdigit():
            continue  # the rest of a comment of several lines, not a job of ours
        name, state, reason, nodes, gres, uid, wanted, comment = words
        why = "" if reason == "None" else reason
        gpus = read_gres(gres)[1]
        jobs.append((comment, SlurmJob(name, state, why, nodes, gpus, int(uid), wanted)))
    return jobs


def read_taken(text: str, jobs: Iterable[SlurmJob]) -> dict[NodeId, int]:
    """The answer to `USED`, less our own `jobs`: GPUs of each node that jobs of others hold.

    Where others have every CPU of a node its GPUs are theirs as well.
    """
    ours: Counter[str] = Counter()
    for job in jobs:
        if job.state in HOLDING:
            ours.update(dict.fromkeys(expand_hosts(job.nodes), job.gpus))
    by_others = {}
    for line in text.splitlines():
        name, used, cpus = _cut(line, USED_WIDTHS)
        gpus = sum(int(match["count"]) for match in GPU.finditer(used))
        idle = cpus.split("/")[1:2]
        by_others[NodeId(name)] = ALL if idle == ["0"] and name not in ours else gpus - ours[name]
    return {name: taken for name, taken in by_others.items() if taken > 0}


def expand_hosts(text: str) -> list[str]:
    """Names of a list such as `a[1-2,04],t1`."""
    hosts = []
    for before, inside in HOSTS.findall(text):
        for part in inside.split(",") if inside else ():
            first, dash, last = part.partition("-")
            numbers = range(int(first), int(last if dash else first) + 1)
            hosts += [f"{before}{number:0{len(first)}d}" for number in numbers]
        hosts += [] if inside else [before]
    return hosts


def _cut(line: str, widths: Iterable[int]) -> list[str]:
    parts, at = [], 0
    for width in widths:
        parts.append(line[at : at + width].strip())
        at += width
    return parts


def read_steps(text: str) -> list[tuple[str, str]]:
    """The answer to `STEPS`: names and steps."""
    rows = (line.split("|", 2) for line in text.splitlines())
    return [(words[2], words[0]) for words in rows if len(words) == 3]


def observe_attempt(parts: Iterable[SlurmJob]) -> AttemptObservation:
    """The state of an attempt, from all components of its job."""
    states = {job.state: job for job in parts}
    if alive := [job for state, job in states.items() if state in RUNNING]:
        return AttemptObservation(AttemptPhase.RUNNING, alive[0].reason)
    if waiting := [job for state, job in states.items() if state in PENDING]:
        first = waiting[0]
        return AttemptObservation(
            AttemptPhase.PENDING, PREPARED if first.state == PREPARES else first.reason
        )
    for state in TAKEN_AWAY:
        if state in states:
            return AttemptObservation(AttemptPhase.LOST, WORDS[state])
    bad = [state for state in states if state != "COMPLETED"]
    return AttemptObservation(
        AttemptPhase.ENDED, WORDS.get(bad[0], f"Slurm says {bad[0].lower()}") if bad else ""
    )


def read_config(text: str) -> dict[str, str]:
    """`scontrol show config`, by name."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def read_exit_code(text: str, number: str) -> int | None:
    """The wait status of a job in `squeue --json`, whatever release wrote it; None if unknown.

    Numbers became objects, and the status was split up, from one release to the next; some write
    all jobs, whichever were asked for.
    """
    try:
        jobs: list[Mapping[str, Any]] = json.loads(text).get("jobs", [])
        values = [job.get("exit_code") for job in jobs if str(job.get("job_id")) == number]
        value = values[0] if values else None
    except (ValueError, AttributeError, TypeError):
        return None
    return _status(value)


def _status(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return -(value & 0x7F) if value & 0x7F else value >> 8
    if not isinstance(value, Mapping):
        return None
    if "number" in value:
        return _status(value["number"]) if value.get("set", True) else None
    by_signal = value.get("signal", {})
    number = by_signal.get("id", by_signal.get("signal_id")) if by_signal else None
    if isinstance(number, Mapping):
        number = number.get("number") if number.get("set", True) else None
    if number:
        return -int(number)
    code = value.get("return_code")
    return int(code["number"]) if isinstance(code, Mapping) else code
