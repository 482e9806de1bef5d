"""Slurm's own programs, asked by command line: they are there on every site and release.

Slurm starts no job there that might still run when one begins, and none without a time limit at
all. So jobs get a time limit that ends before, and Weft keeps its plans off these nodes in time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from weft.core.errors import EngineError
from weft.core.model.job import NodeId
from weft.engines.fleet.port import Closing, ControllerUnreachable
from weft.engines.machine.job_environment import filter_environment
from weft.engines.slurm.answers import SlurmNode, expand_hosts
from weft.wire.ending import end_process
from weft.wire.identity import Identity

TIMEOUT_S = 60.0  # clients give up by themselves after MessageTimeout, 10 s unless a site says else
# Formats of one's own would change what is read.
UNWANTED = ("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SINFO_FORMAT", "SQUEUE_SORT", "SQUEUE_STATES")
UNREACHABLE = (
    "unable to contact slurm controller",
    "slurm_load",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted",
    "transport endpoint",
    "backup controller",
    "in standby mode",
    "communications",
    "munge",
)
# What sbatch says, and what to change.
HINTS = {
    "invalid partition": "name one that `sinfo -s` shows: --engine slurm:partition=NAME",
    "account": "set --engine slurm:account=NAME (and partition=, qos=) to what "
    "`sacctmgr show assoc user=$USER` lists",
    "qos": "set --engine slurm:qos=NAME to one that `sacctmgr show qos` lists and you may use",
    "accounting/qos policy": "a limit of your association is reached: `sacctmgr show assoc` says "
    "which; ask for less, or have it raised",
    "requested node configuration": "`scontrol show node NODE` shows what it has; jobs ask for "
    "more, or the partition does not hold that node: --engine slurm:partition=NAME",
    "generic resource": "the site counts GPUs otherwise: `sinfo -o %G` shows how",
    "time limit": "the partition allows less time: lower time_limit of the job, or "
    "--engine slurm:time_min=MINUTES",
    "reservation": "`scontrol show reservation` shows those there are: "
    "--engine slurm:reservation=NAME",
    "more processors requested": "the nodes have fewer CPUs: lower cpus of the job",
    "memory specification": "the nodes have less memory: lower mem_gb of the job",
    "job submit limit": "you have as many jobs in Slurm as you may: use mode=pilot",
}


class Clients:
    """Runs them with the environment of the service, less what would change their answers."""

    def __init__(self, pass_env: tuple[str, ...] = ()) -> None:
        asked = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        self._env = {**asked, "SLURM_TIME_FORMAT": "%s"}  # seconds since the epoch
        self.job_env = job_environment(pass_env)

    def check(self) -> None:
        """Raise EngineError where Slurm is not installed."""
        gone = [
            program
            for program in ("sbatch", "squeue", "sinfo", "scancel")
            if not shutil.which(program)
        ]
        if gone:
            raise EngineError(
                f"{gone[0]} is not here, so Slurm cannot be asked",
                hint="run the service where people submit jobs to Slurm: a login node, or any "
                "machine with slurm-client and the cluster's slurm.conf",
            )

    async def ask(self, *command: str) -> str:
        """The answer of a client that only looks; Unreachable if it has none."""
        code, out, err = await self._run(command, self._env, "")
        if code != 0:
            raise ControllerUnreachable(first_line(err) or f"{command[0]} ended with {code}")
        return out

    async def submit(self, script: str, *options: str, user: Identity | None = None) -> str:
        """sbatch, with the environment that jobs are to have; the job's number.

        EngineError if it is refused. With `user` that user submits it, to whom it belongs then;
        only root can do that.
        """
        env = {**self.job_env, **user.variables("/")} if user is not None else self.job_env
        command = ("sbatch", "--parsable", *options)
        code, out, err = await self._run(command, env, script, user)
        if code != 0:
            raise client_error(command[0], err)
        return out.strip().split(";")[0]

    async def try_order(self, *command: str) -> None:
        """Have a client change something, unless there is nothing to be changed any more."""
        code, _, err = await self._run(command, self._env, "")
        if code != 0 and isinstance(
            refused := client_error(command[0], err), ControllerUnreachable
        ):
            raise refused

    async def _run(
        self,
        command: tuple[str, ...],
        env: Mapping[str, str],
        script: str,
        user: Identity | None = None,
    ) -> tuple[int, str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, **_as_user(user)
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                out, err = await process.communicate(script.encode())
        except TimeoutError as error:
            await end_process(process)
            raise ControllerUnreachable(
                f"{command[0]} gave no answer within {TIMEOUT_S:g} s"
            ) from error
        except asyncio.CancelledError:
            await end_process(process)
            raise
        code = process.returncode
        assert code is not None
        return code, out.decode(errors="replace"), err.decode(errors="replace")


def _as_user(user: Identity | None) -> dict[str, Any]:
    """Become that user before anything else, where its folders cannot matter."""
    if user is None:
        return {}
    who = {"user": user.uid, "group": user.gid, "extra_groups": list(user.groups)}
    return {**who, "umask": user.umask, "cwd": "/"}


def job_environment(extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The part of our environment that jobs get, and what Slurm's own programs need."""
    slurm = {k: v for k, v in os.environ.items() if k == "SLURM_CONF"}
    return {**filter_environment(extra), **slurm}


def client_error(program: str, output: str) -> EngineError | ControllerUnreachable:
    """The error of a client, with what to change."""
    what, lower = first_line(output), output.lower()
    if any(word in lower for word in UNREACHABLE):
        return ControllerUnreachable(what)
    hint = next((hint for word, hint in HINTS.items() if word in lower), "")
    return EngineError(f"Slurm refuses it: {what or program + ' failed'}", hint=hint)


def first_line(output: str) -> str:
    """The line that says most, without the program's name."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    if not telling:
        return ""
    words = telling[0].removeprefix("sbatch: ").removeprefix("srun: ").removeprefix("squeue: ")
    return words.removeprefix("error: ")[:500]


QUESTION = ("scontrol", "-o", "show", "reservation")  # times are in seconds, see `Clients`
ASK_S = 15.0
LEAD_S = 180.0  # jobs have left so long before Slurm's own time: what they have to save in


@dataclass
class Reservations:
    """Slurm's reservations, less the one that is `ours`."""

    ours: str = ""
    closings: dict[NodeId, tuple[Closing, ...]] = field(default_factory=dict)
    own: frozenset[NodeId] | None = None  # the nodes of `ours`
    _asked: float = -inf

    async def refresh(self, clients: Clients) -> None:
        """Ask for them, unless that was done lately."""
        now = time.monotonic()
        if now - self._asked < ASK_S:
            return
        text = await clients.ask(*QUESTION)
        self._asked = now
        closings: dict[NodeId, list[Closing]] = {}
        self.own = None
        for closing, nodes in read_reservations(text):
            if closing.name == self.ours:
                self.own = frozenset(nodes)
                continue
            early = Closing(closing.name, closing.start - LEAD_S, closing.end)
            for node in nodes:
                closings.setdefault(node, []).append(early)
        self.closings = {node: tuple(some) for node, some in closings.items()}

    def minutes_left(self, nodes: Iterable[NodeId], now: float) -> int:
        """Minutes that a job may run there before a reservation begins; 0 if none is announced."""
        starts = [c.start for node in nodes for c in self.closings.get(node, ()) if c.end > now]
        return max(int((min(starts) + LEAD_S - now) // 60), 1) if starts else 0

    def keep_own(self, nodes: Mapping[NodeId, SlurmNode]) -> dict[NodeId, SlurmNode]:
        """Keep the nodes that may be used: of our reservation alone, where we have one."""
        if self.ours and self.own is None:
            raise EngineError(
                f"Slurm has no reservation {self.ours!r} with nodes",
                hint="`scontrol show reservation` lists them: --engine slurm:reservation=NAME",
            )
        return {name: node for name, node in nodes.items() if self.own is None or name in self.own}

    def are_closed(self, node: NodeId, now: float) -> bool:
        """True if a node is kept for others, or will be at once."""
        return any(closing.start <= now < closing.end for closing in self.closings.get(node, ()))


def read_reservations(text: str) -> Sequence[tuple[Closing, list[NodeId]]]:
    """The reservations in the answer to `QUESTION`."""
    reservations = []
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        nodes = [NodeId(name) for name in expand_hosts(fields.get("Nodes", ""))]
        times = fields.get("StartTime", ""), fields.get("EndTime", "")
        if fields.get("Nodes", "(null)") != "(null)" and all(at.isdigit() for at in times):
            start, end = map(float, times)
            reservations.append((Closing(fields["ReservationName"], start, end), nodes))
    return reservations
