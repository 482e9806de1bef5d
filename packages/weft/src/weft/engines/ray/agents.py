"""Ray as a manager of agents: the runner on each node starts them and says how they are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Job, JobId, NodeId
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.fleet.port import (
    Abilities,
    AttemptObservation,
    AttemptPhase,
    ControllerUnreachable,
    Gang,
    Key,
    Machine,
    NodeHealth,
)
from weft.engines.ray.client import BridgeClient
from weft.engines.ray.labels import name_nodes, read_machine
from weft.engines.ray.runner import MARK
from weft.engines.ray.starting import Head, NodeSetup, need_head, ray_environment
from weft.wire.attempt import JOINED, SPEC, AttemptSpec, part_folder

log = logging.getLogger(__name__)

ABILITIES = Abilities(AGENT_CONTROLS, exact_devices=True, sleeps=True, frees="device")
FIRST_S = 90.0  # for the first runner to come up: a worker of Ray takes seconds to start
PAUSE_S = 0.5
FRESH_S = 0.2


@dataclass
class RayManager:
    """Agents through Ray: the cluster at `address`, or one that begins with this machine.

    `setup` is what this machine has then. `token` is the file of a cluster's token where it is
    known. With `keep_nodes` idle nodes of a cluster of others are kept when the service ends.
    `uses` says which nodes may be used, `carried_gb` how much of a job's files is brought from one
    that does not share `state`. `head` is the one that was begun here, None if it is
    someone else's.
    """

    state: Path
    address: str
    setup: NodeSetup
    files: Literal["auto", "shared", "carried"] = "auto"
    token: Path | None = None
    pass_env: tuple[str, ...] = ()
    keep_nodes: bool = False
    uses: Literal["all", "labelled"] = "all"
    carried_gb: float = 200.0
    head: Head | None = None

    abilities = ABILITIES

    def __post_init__(self) -> None:
        self._bridge: BridgeClient | None = None
        self._carrier: BridgeClient | None = None
        self._known: dict[str, Node] = {}
        self._ids: dict[NodeId, str] = {}  # names to Ray's own, of nodes that are up
        self._reports: dict[str, dict[str, Any]] = {}
        self._gangs: dict[Key, tuple[NodeId, ...]] = {}
        self._machines: list[Machine] = []
        self._asked = -FRESH_S

    # ---- life

    async def open(self, owner: str) -> None:
        """Connect, to a head that is begun if there is none, and wait for nodes to answer."""
        if find_spec("ray") is None:
            raise InvalidConfig("the ray engine needs ray", hint="pip install 'weft[ray]'")
        if not self.address:
            self.head = await need_head(self.state, self.setup)
            self.token = self.head.token
        if self._bridge is None:
            self._bridge = self._connect(owner, "ray-bridge.log")
            self._carrier = self._connect(owner, "ray-files.log")
        until = time.monotonic() + FIRST_S
        while not await self._all_answer():
            if time.monotonic() > until:
                log.warning("not every node of Ray has a runner yet; going on with those that have")
                return
            await asyncio.sleep(PAUSE_S)

    def _connect(self, owner: str, log_name: str) -> BridgeClient:
        mark = self.state / MARK
        if not mark.exists():
            mark.write_text(uuid4().hex)
        settings = {
            "address": self.address or (self.head.address if self.head else ""),
            "owner": owner,
            "root": str(self.state),
            "mark": mark.read_text(),
            "files": self.files,
            "nodes": self.uses,
            "carried_gb": self.carried_gb,
        }
        env = {} if self.token is None else ray_environment(self.token)
        return BridgeClient(settings, self.state / log_name, env)

    async def close(self) -> None:
        """Give back idle nodes of a cluster that is not ours; what runs goes on."""
        if self.head is None and not self.keep_nodes:
            with suppress(ControllerUnreachable, OSError):
                await self.ask("release")
        for client in (self._bridge, self._carrier):
            if client is not None:
                await client.close()

    async def _all_answer(self) -> bool:
        machines = await self.nodes()
        return any(machine.health is NodeHealth.UP for machine in machines) and not any(
            machine.health is NodeHealth.DOWN and machine.node.id in self._ids
            for machine in machines
        )

    async def ask(self, call: str, **given: object) -> Any:
        """Ask Ray; Unreachable while it cannot be asked."""
        if self._bridge is None:
            raise ControllerUnreachable("not connected to Ray yet")
        return await self._bridge.ask(call, **given)

    # ---- files

    def unshared_nodes(self, folder: Path | None = None) -> list[str]:
        """Ray's ids of nodes that do not share the state folder; only that of a part's folder."""
        return [
            ray
            for name, ray in self._ids.items()
            if (
                folder is None
                or part_folder(folder.parent, name).name == folder.name.partition(JOINED)[0]
            )
            and not self._reports.get(ray, {}).get("shared", True)
        ]

    async def carry_files(self, call: str, **given: object) -> Any:
        """A question about files: they have a bridge of their own, for they may take long."""
        if self._carrier is None:
            raise ControllerUnreachable("not connected to Ray yet")
        return await self._carrier.ask(call, **given)

    async def ask_node(self, node: NodeId, call: str, **given: object) -> Any:
        """A question about files of one node; EngineError while it cannot answer."""
        if node not in self._ids:
            raise EngineError(f"node {node!r}, where the job ran, is not in the Ray cluster now")
        try:
            return await self.carry_files(call, node=self._ids[node], **given)
        except (LookupError, OSError, ControllerUnreachable) as error:
            raise EngineError(f"node {node!r} does not answer about files: {error}") from error

    # ---- what there is

    async def nodes(self) -> Sequence[Machine]:
        if time.monotonic() - self._asked > FRESH_S:  # not right after attempts were asked for
            await self._refresh()
        return self._machines

    def check(self, job: Job) -> None:
        """Check nothing beyond what every engine checks."""

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """The state of all attempts, as their runners say."""
        await self._refresh()
        return read_attempts(self._gangs, self._codes(), self._lost())

    async def _refresh(self) -> None:
        """Ask about everything, and keep what holds until someone says otherwise."""
        named = name_nodes((await self.ask("poll"))["nodes"])
        machines, ids, reports = [], {}, {}
        for name, row in named.items():
            # One that is late is not gone: what it said last holds.
            report = row["runner"] or (self._reports.get(row["id"]) if row["alive"] else None)
            machine = read_machine({**row, "runner": report}, name, self._known.get(name))
            if machine is None:
                continue
            machines.append(machine)
            self._known[name] = machine.node
            if row["alive"]:
                ids[machine.node.id] = row["id"]
                reports[row["id"]] = report or {"agents": []}
        self._machines, self._ids, self._asked = machines, ids, time.monotonic()
        self._reports = {node: report for node, report in reports.items() if "version" in report}
        for job, attempt, _, nodes in self._agents():
            self._gangs.setdefault((JobId(job), attempt), tuple(map(NodeId, nodes)))

    def _agents(self) -> list[list[Any]]:
        return [agent for report in self._reports.values() for agent in report["agents"]]

    def _codes(self) -> dict[Key, dict[NodeId, int | None]]:
        """Exit codes of agents by attempt and node; None while one runs."""
        names = {ray: name for name, ray in self._ids.items()}
        codes: dict[Key, dict[NodeId, int | None]] = {}
        for ray, report in self._reports.items():
            for job, attempt, code, _ in report["agents"]:
                codes.setdefault((JobId(job), attempt), {})[names[ray]] = code
        return codes

    def _lost(self) -> dict[NodeId, str]:
        return {
            machine.node.id: machine.reason
            for machine in self._machines
            if machine.health is NodeHealth.DOWN
        }

    # ---- requests

    async def submit(self, gang: Gang) -> None:
        """Have every node's runner start its agent, all or none."""
        missing = [part.node for part in gang.parts if part.node not in self._ids]
        if missing:
            raise EngineError(f"node {missing[0]!r} is not in the Ray cluster any more")
        nodes = tuple(part.node for part in gang.parts)
        parts = [(self._ids[part.node], part.node, str(part.folder)) for part in gang.parts]
        attempt = {"job": gang.job, "attempt": gang.attempt, "pass_env": self.pass_env}
        try:
            for part in gang.parts:
                for node in self.unshared_nodes(part.folder):
                    await self._push(node, checkpoints_of(part.folder))
            await self.ask("start", parts=parts, **attempt)
        except (LookupError, OSError) as error:
            raise EngineError(f"Ray cannot start it: {error}") from error
        self._gangs[gang.key] = nodes

    async def _push(self, node: str, folder: str) -> None:
        """Bring a folder to a node, in turns with what else is carried."""
        begins = True
        while not await self.carry_files("push", node=node, folder=folder, begins=begins):
            begins = False

    async def cancel(self, key: Key) -> None:
        left = await self.ask("end", job=key[0], attempt=key[1])
        if left:
            log.warning("job=%s attempt=%d has processes that do not end: %s", *key, left)


def checkpoints_of(folder: Path) -> str:
    """The folder of checkpoints of the part in `folder`."""
    return AttemptSpec.read(folder / SPEC).checkpoints


def read_attempts(
    gangs: dict[Key, tuple[NodeId, ...]],
    codes: Mapping[Key, Mapping[NodeId, int | None]],
    lost: Mapping[NodeId, str],
) -> dict[Key, AttemptObservation]:
    """Each attempt's state from its agents' codes and the nodes that are gone.

    Attempts of which nothing is left are taken out of `gangs`.
    """
    seen: dict[Key, AttemptObservation] = {}
    for key, nodes in [*gangs.items()]:
        by_node = codes.get(key, {})
        gone = tuple(node for node in nodes if node in lost)
        why = "; ".join(f"{node} went down: {lost[node]}" for node in gone)
        if any(code is None for code in by_node.values()):
            seen[key] = AttemptObservation(AttemptPhase.RUNNING, why, nodes=gone)
            continue
        ended = next((code for code in by_node.values() if code), 0 if by_node else None)
        seen[key] = AttemptObservation(
            AttemptPhase.LOST if gone else AttemptPhase.ENDED, why, ended, gone
        )
        if not by_node:
            del gangs[key]
    return seen
