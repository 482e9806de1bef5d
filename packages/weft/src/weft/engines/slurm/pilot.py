"""Whole nodes held by allocations of their own, and jobs inside as steps that may overlap.

`a1/a2` are held for all tenants, `vision:a1+a2/nlp:t1` gives each tenant a pool of its own.

One allocation a node: a node that is lost takes only itself, and is held again when it is back. A
step starts in a fraction of a second, has exactly the devices of the plan, and may share them.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.about import Controls
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.attempts.own_processes import reap, spawn_command
from weft.engines.fleet.port import (
    Abilities,
    AttemptObservation,
    AttemptPhase,
    Gang,
    Key,
    Machine,
    NodeHealth,
)
from weft.engines.slurm.accounts import Charges, lists_of
from weft.engines.slurm.answers import (
    JOBS,
    NODES,
    PENDING,
    RUNNING,
    STEPS,
    SlurmJob,
    SlurmNode,
    in_partition,
    read_jobs,
    read_nodes,
    read_steps,
    read_tag,
    write_tag,
)
from weft.engines.slurm.clients import Clients, Reservations
from weft.engines.slurm.script import LOG, pilot_script, step_command
from weft.frozen import frozen
from weft.wire.attempt import job_folder, read_json, write_whole
from weft.wire.processes import alive, start_time


@frozen
class Pools:
    """The tenant of each node that is to be held, empty for all; no nodes: all there are."""

    tenants: Mapping[NodeId, str] = field(default_factory=dict)

    def may_hold(self, node: NodeId) -> bool:
        """True if a node is among those to be held."""
        return not self.tenants or node in self.tenants

    def check(self, charges: Charges) -> None:
        """Raise InvalidConfig where a tenant's jobs could not be charged as its lists say."""
        if "partition" in charges.lists:
            raise InvalidConfig(
                "slurm: a pilot's nodes are in one partition for all tenants",
                hint="drop partitions=, or use mode=native",
            )
        pooled = {*self.tenants.values()}
        for name, lists in charges.lists.items():
            for tenant, allowed in lists.items():
                if tenant not in pooled:
                    raise InvalidConfig(
                        f"slurm: tenant {tenant!r} has {lists_of(name)} but no pilots of its own",
                        hint=f"name its nodes, nodes={tenant}:NODE+NODE, or use mode=native",
                    )
                if len(allowed) > 1:
                    raise InvalidConfig(
                        f"slurm: tenant {tenant!r} has several {lists_of(name)}, a pilot has one",
                        hint=f"write {lists_of(name)}={tenant}:{allowed[0]}, or use mode=native",
                    )


def read_pools(text: str) -> Pools:
    """Read the pools that the parameter `nodes` names."""
    tenants: dict[NodeId, str] = {}
    for part in filter(None, text.split("/")):
        tenant, colon, names = part.rpartition(":")
        nodes = [NodeId(name) for name in names.split("+")]
        again = [node for node in nodes if node in tenants]
        if (colon and not tenant) or not all(nodes) or again:
            raise InvalidConfig(
                f"slurm: nodes has {part!r}" + (f", and {again[0]!r} twice" if again else ""),
                hint="write nodes=NODE/NODE, or nodes=TENANT:NODE+NODE/TENANT:NODE",
            )
        tenants |= dict.fromkeys(nodes, tenant)
    return Pools(tenants)


log = logging.getLogger(__name__)

CONTROLS = AGENT_CONTROLS | Controls.SHARE | Controls.TIER | Controls.PHASE
PILOT = JobId("pilot of")  # no job is called so: names with spaces are quoted in tags all the same
AGAIN_S = 10.0  # until a node is asked for once more


class PilotSlurm:
    """A `Manager` by allocations and `srun --overlap`; what was started is noted in `folder`."""

    def __init__(
        self, charges: Charges, folder: Path, pools: Pools, slots: int, pass_env: tuple[str, ...]
    ) -> None:
        pools.check(charges)
        self._charges, self._folder, self._slots = charges, folder, slots
        self._pools = pools
        self._clients = Clients(pass_env)
        self._nodes: Mapping[NodeId, SlurmNode] = {}
        self._pilots: dict[NodeId, SlurmJob] = {}
        self._reservations = Reservations(charges.others.reservation)
        self._asked: dict[NodeId, float] = {}
        self._steps: dict[Key, list[str]] = {}
        self._children: set[int] = set()
        self.abilities = Abilities(
            CONTROLS, exact_devices=True, tokens=True, sleeps=True, frees="device"
        )

    async def open(self, owner: str) -> None:
        """Find the pilots of before, and ask for those that are missing."""
        self._clients.check()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._charges = replace(self._charges, others=replace(self._charges.others, owner=owner))
        await self.poll()
        machines = await self.nodes()
        until = time.monotonic() + AGAIN_S
        while time.monotonic() < until and any(
            machine.health is NodeHealth.DOWN for machine in machines
        ):
            await asyncio.sleep(0.2)  # idle nodes are held in a second or two
            machines = await self.nodes()

    async def close(self) -> None:
        """Allocations and steps stay."""

    # ---- nodes

    async def nodes(self) -> Sequence[Machine]:
        """Nodes are up while they are held; those that could be and are not are asked for."""
        only = in_partition(self._charges.others.partition)
        nodes = read_nodes(await self._clients.ask(*NODES, *only), self._slots)
        if unknown := self._pools.tenants.keys() - nodes.keys():
            raise InvalidConfig(
                f"slurm: there is no node {min(unknown)!r}", hint="`sinfo -N` lists them"
            )
        await self._reservations.refresh(self._clients)
        nodes = self._reservations.keep_own(nodes)
        self._nodes = {name: node for name, node in nodes.items() if self._pools.may_hold(name)}
        await self._find_pilots()
        for name, node in self._nodes.items():
            if self._reservations.are_closed(name, time.time()):
                await self._let_go(name)
            elif name not in self._pilots and node.machine.health is NodeHealth.UP:
                await self._hold(node)
        return [self._machine(node) for node in self._nodes.values()]

    def _machine(self, node: SlurmNode) -> Machine:
        name = node.machine.node.id
        pilot = self._pilots.get(name)
        tenant, closings = self._tenant(name), self._reservations.closings.get(name, ())
        machine = replace(node.machine, tenant=tenant, closings=closings)
        if machine.health is not NodeHealth.UP or (pilot and pilot.state in RUNNING):
            return machine
        why = pilot.reason if pilot else "no pilot holds it"
        return replace(machine, health=NodeHealth.DOWN, reason=f"its allocation waits: {why}")

    def _tenant(self, node: NodeId) -> str:
        return self._pools.tenants.get(node, "")

    async def _let_go(self, name: NodeId) -> None:
        """Give a node back that others have reserved, once the last job has left it."""
        pilot = self._pilots.get(name)
        steps = [step for some in self._steps.values() for step in some]
        if pilot is not None and not any(step.startswith(f"{pilot.id}.") for step in steps):
            await self._clients.try_order("scancel", pilot.id)

    async def _find_pilots(self) -> None:
        text = await self._clients.ask(*JOBS, "-u", getpass.getuser())
        self._pilots = {}
        tags = {
            write_tag(self._charges.others.owner, _pilot_key(name)): name for name in self._nodes
        }
        for comment, job in read_jobs(text):
            if comment in tags and job.state in RUNNING | PENDING and job.state != "COMPLETING":
                self._pilots[tags[comment]] = job

    async def _hold(self, node: SlurmNode) -> None:
        name, now = node.machine.node.id, time.monotonic()
        if now - self._asked.get(name, -AGAIN_S) < AGAIN_S:
            return
        self._asked[name] = now
        tag = write_tag(self._charges.others.owner, _pilot_key(name))
        log_file = str(self._folder / f"{name}.log")
        left = self._reservations.minutes_left([name], time.time())
        wishes = replace(self._charges.options(self._tenant(name), {}), most_min=left)
        script = pilot_script(node, tag, log_file, self._folder.parent, wishes)
        log.info("node=%s is asked for by job %s", name, await self._clients.submit(script))

    def check(self, job: Job) -> None:
        """Refuse accounts of others."""
        self._charges.options(job.tenant, {} if job.launch is None else job.launch.env)

    # ---- attempts

    async def submit(self, gang: Gang) -> None:
        """A step for every part, unless they were started before."""
        record = self._record(gang.key)
        if record.exists():
            return
        await self._find_pilots()  # a step that finds no controller ends at once
        started: dict[str, tuple[int, int | None]] = {}
        for part in gang.parts:
            pilot = self._pilots.get(part.node)
            if pilot is None or pilot.state not in RUNNING:
                _kill_all(started.values())
                raise EngineError(f"node {part.node!r} is not held any more")
            if self._tenant(part.node) not in ("", gang.tenant):
                _kill_all(started.values())
                raise EngineError(f"node {part.node!r} is held for another tenant")
            command = step_command(
                gang, part, self._nodes[part.node], pilot.id, self._charges.others
            )
            pid = spawn_command(command, part.folder / LOG, self._clients.job_env)
            self._children.add(pid)
            started[part.node] = (pid, start_time(pid))
        body = {"job": gang.job, "attempt": gang.attempt, "clients": started}
        write_whole(record, body)

    async def cancel(self, key: Key) -> None:
        """End its steps at once."""
        if steps := self._steps.get(key):
            await self._clients.try_order("scancel", "--signal=KILL", *steps)
        body = read_json(self._record(key)) or {"clients": {}}
        _kill_all(body["clients"].values())

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """One squeue for all steps; a client that lives may still be about to make one."""
        text = await self._clients.ask(*STEPS, "-u", getpass.getuser())
        self._steps = {}
        for name, step in read_steps(text):
            if (key := read_tag(self._charges.others.owner, name)) is not None:
                self._steps.setdefault(key, []).append(step)
        self._children = {pid for pid in self._children if not reap(pid)}
        seen = {key: AttemptObservation(AttemptPhase.RUNNING) for key in self._steps}
        for file in self._folder.glob("*@*.json"):
            body = read_json(file)
            if body is None:
                continue
            key = JobId(body["job"]), int(body["attempt"])
            lives = any(b is not None and alive(p, b) for p, b in body["clients"].values())
            if lives and key not in seen:
                seen[key] = AttemptObservation(AttemptPhase.PENDING, "its steps are being made")
            elif not lives and key not in seen:
                seen[key] = AttemptObservation(AttemptPhase.ENDED)
        return seen

    def _record(self, key: Key) -> Path:
        return self._folder / f"{job_folder(self._folder, key[0]).name}@{key[1]}.json"


def _pilot_key(node: NodeId) -> Key:
    return JobId(f"{PILOT} {node}"), 0


def _kill_all(clients: Iterable[Sequence[int | None]]) -> None:
    """The clients of steps, each a session of its own; those of a step that runs end it."""
    for pid, began in clients:
        if pid is not None and began is not None and alive(pid, began):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
