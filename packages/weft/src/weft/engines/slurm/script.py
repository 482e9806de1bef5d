"""The batch script of an attempt, and the command of a step: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from shlex import quote

from weft.core.errors import EngineError
from weft.core.model.job import Discipline, NodeId
from weft.engines.fleet.port import AttemptPart, Gang
from weft.engines.fleet.requests import TOKENS, agent_command
from weft.engines.slurm.answers import SlurmNode, write_tag
from weft.frozen import frozen
from weft.wire.attempt import AGENT_LOG, CLAIM, JOINED, token_socket

EPS = 1e-6
# A controller that was just restarted refuses steps for seconds: they are asked for until an agent
# has the part, or a minute is over.
UNTIL_CLAIMED = 'for i in {1..30}; do "$@" && exit; [ -e "$0" ] && exit 1; sleep 2; done; exit 1'
LOG = "slurm.log"  # in a part's folder: what Slurm itself has to say


@frozen
class SbatchOptions:
    """Options of every request; empty or 0 leaves them to the site.

    `python` is the interpreter with Weft on the nodes. `counts_memory` says that the site divides
    memory among jobs, so that each must ask for its part. `most_min` bounds the time limit of all.
    """

    python: str
    owner: str
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    time_min: int = 0
    counts_memory: bool = False
    most_min: int = 0

    def options(self) -> list[str]:
        named = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "reservation": self.reservation,
        }
        return [f"--{name}={value}" for name, value in named.items() if value]

    def limit(self, minutes: int) -> list[str]:
        """The time limit of a job that asks for that many minutes; 0 leaves it to the site."""
        most = self.most_min
        chosen = min(minutes or most, most) if most else minutes
        return [f"--time={chosen}"] if chosen else []


def batch_script(gang: Gang, nodes: Mapping[NodeId, SlurmNode], wishes: SbatchOptions) -> str:
    """One job for all parts of a gang: alike ones together, others as heterogeneous components."""
    groups = group_parts(gang.parts, nodes)
    headers = [_header(gang, group, nodes, wishes) for group in groups]
    lines = ["#!/bin/bash"]
    for at, header in enumerate(headers):
        lines += ["#SBATCH hetjob"] if at else []
        lines += [f"#SBATCH {option}" for option in header]
    return "\n".join([*lines, *_body(gang, groups, wishes), ""])


def group_parts(
    parts: Sequence[AttemptPart], nodes: Mapping[NodeId, SlurmNode]
) -> list[tuple[AttemptPart, ...]]:
    """Parts grouped by equal requests, in the order in which they come."""
    groups: dict[tuple[object, ...], list[AttemptPart]] = {}
    for part in parts:
        shape = (len(part.gpus), nodes[part.node].gres, _cpus(part), round(part.mem_gb, 3))
        groups.setdefault(shape, []).append(part)
    return [tuple(group) for group in groups.values()]


def _header(
    gang: Gang,
    group: tuple[AttemptPart, ...],
    nodes: Mapping[NodeId, SlurmNode],
    wishes: SbatchOptions,
) -> list[str]:
    first = group[0]
    options = [
        f"--job-name={quote(job_name(gang))}",
        f"--comment={write_tag(wishes.owner, gang.key)}",
        "--no-requeue",
        f"--output={write_pattern(first.folder / LOG)}",
        "--open-mode=append",
        f"--nodes={len(group)}",
        f"--nodelist={','.join(part.node for part in group)}",
        f"--ntasks={len(group)}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={_cpus(first)}",
        *wishes.options(),
    ]
    gres = nodes[first.node].gres
    if gres and first.gpus:
        options.append(f"--gres={gres}:{len(first.gpus)}")
    if memory := _memory_mb(first, nodes[first.node], counted=wishes.counts_memory):
        options.append(f"--mem={memory}M")
    return [*options, *wishes.limit(ceil(gang.time_limit_s / 60.0) or wishes.time_min)]


def _body(
    gang: Gang, groups: Sequence[tuple[AttemptPart, ...]], wishes: SbatchOptions
) -> list[str]:
    """The agent of the only node in place of the script; else one on each by a step."""
    if len(gang.parts) == 1:
        folder = gang.parts[0].folder
        agent = _words(agent_command(wishes.python, str(folder)))
        return [f"exec {agent} >> {quote(str(folder / AGENT_LOG))} 2>&1"]
    root = quote(str(gang.parts[0].folder.parent))
    joined = "".join(gang.parts[0].folder.name.partition(JOINED)[1:])
    own = f"$0/$SLURMD_NODENAME{joined}"
    agent = _words(agent_command(wishes.python, "FOLDER")).replace("FOLDER", f'"{own}"')
    inside = quote(f'exec {agent} >> "{own}/{AGENT_LOG}" 2>&1')
    steps = [
        f"--het-group={at} --ntasks={len(group)} --nodes={len(group)} "
        f"--cpus-per-task={_cpus(group[0])} bash -c {inside} {root}"
        for at, group in enumerate(groups)
    ]
    if len(groups) == 1:
        steps[0] = steps[0].replace("--het-group=0 ", "")
    return [f"exec srun --kill-on-bad-exit=0 --wait=0 --mpi=none {' : '.join(steps)}"]


def step_command(
    gang: Gang, part: AttemptPart, node: SlurmNode, allocation: str, wishes: SbatchOptions
) -> list[str]:
    """One part as a step in an allocation that is held: it shares the node with other steps.

    The step has all GPUs of its node, so that the agent can take exactly those of the plan.
    """
    machine = node.machine.node
    gres = [f"--gres={node.gres}:{machine.gpus}"] if node.gres else []
    step = [
        "srun",
        f"--jobid={allocation}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={part.node}",
        f"--cpus-per-task={int(machine.cpus)}",
        "--cpu-bind=none",
        "--mpi=none",
        *gres,
        f"--job-name={write_tag(wishes.owner, gang.key)}",
        *agent_command(wishes.python, str(part.folder)),
    ]
    return ["bash", "-c", UNTIL_CLAIMED, str(part.folder / CLAIM), *step]


def pilot_script(node: SlurmNode, tag: str, log: str, root: Path, wishes: SbatchOptions) -> str:
    """An allocation of a whole node; all it does is to run the coordinators that are wanted."""
    machine = node.machine.node
    options = [
        "--job-name=weft-pilot",
        f"--comment={tag}",
        "--no-requeue",
        f"--output={write_pattern(Path(log))}",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={machine.id}",
        f"--cpus-per-task={int(machine.cpus)}",
        *wishes.options(),
        *([f"--gres={node.gres}:{machine.gpus}"] if node.gres else []),
        *(["--mem=0"] if wishes.counts_memory else []),
        *wishes.limit(wishes.time_min),
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options)]
    return "\n".join([*lines, *_coordinators(root, machine.id, wishes.python), ""])


def _coordinators(root: Path, node: NodeId, python: str) -> list[str]:
    """Look for disciplines that are wanted, and start those again that have ended."""
    wanted = quote(str(root / TOKENS / node))
    sockets = " ".join(
        f"[{discipline.value}]={quote(token_socket(root, node, discipline.value))}"
        for discipline in Discipline
        if discipline is not Discipline.NONE
    )
    start = _words([python, "-P", "-m", "weft.node.tokens"])
    return [
        f"declare -A socket=({sockets}) pid",
        "mkdir -p -m 711 /tmp/weft-$(id -u)",
        "while :; do",
        f"  for one in $(ls {wanted} 2>/dev/null); do",
        "    at=${socket[$one]}",
        '    [ -n "$at" ] || continue',
        '    [ -n "${pid[$one]}" ] && kill -0 ${pid[$one]} 2>/dev/null && continue',
        f'    {start} "$at" --discipline "$one" --state {quote(str(root))} --record "$at.json" &',
        "    pid[$one]=$!",
        "  done",
        "  sleep 1",
        "done",
    ]


def write_pattern(path: Path) -> str:
    """A path as an option of sbatch that means just this file.

    `%` begins a pattern there, so that names like `a%2E1` would be other ones, and a backslash
    anywhere would end all patterns and be lost itself.
    """
    if set(str(path)) & set("\\\n\r"):
        raise EngineError(
            f"Slurm cannot write to {str(path)!r}: it has a backslash or a line break",
            hint="choose another state folder: weft serve --state FOLDER",
        )
    return quote(str(path).replace("%", "%%"))


def job_name(gang: Gang) -> str:
    """The name that people see in squeue."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in gang.name)
    return f"weft-{plain[:60]}-{gang.attempt}"


def _cpus(part: AttemptPart) -> int:
    return max(ceil(part.cpus - EPS), 1)


def _memory_mb(part: AttemptPart, node: SlurmNode, *, counted: bool) -> int:
    if part.mem_gb:
        return ceil(part.mem_gb * 1000)
    machine = node.machine.node
    return int(machine.mem_gb * 1000 * len(part.gpus) / machine.gpus) if counted else 0


def _words(command: Sequence[str]) -> str:
    return " ".join(map(quote, command))
