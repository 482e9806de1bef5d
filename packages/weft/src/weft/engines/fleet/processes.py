"""Several nodes that are processes of this machine: an engine for tests and for trying things out.

Everything is as on a real fleet, but for the machines. A file `NODE.down` in the folder `fleet`
below the state folder takes a node away, with its agents running on out of reach, as after a
broken cable; `AWAY` there makes the controller not answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import CPU, Node
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.about import Wants
from weft.engines.attempts.agent_engine import AGENT_CONTROLS
from weft.engines.attempts.own_processes import reap, spawn
from weft.engines.fleet.engine import FleetEngine
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
from weft.engines.machine.job_environment import check_names, filter_environment
from weft.wire.attempt import AGENT_LOG, TAG, job_folder, read_json, write_whole
from weft.wire.processes import alive, descendants, find_tagged, kill_all, start_time

AWAY = "AWAY"
Agent = tuple[int, int | None, str]  # pid, start time, folder of its part


class ProcessManager:
    """`nodes` nodes of `slots` CPU slots each; what was started is written down in `folder`."""

    abilities = Abilities(AGENT_CONTROLS, sleeps=True, frees="device")

    def __init__(self, folder: Path, nodes: int, slots: int, pass_env: tuple[str, ...]) -> None:
        self._folder, self._pass_env = folder, pass_env
        self._nodes = [Node(NodeId(f"n{i + 1}"), CPU, slots, slots, 4.0) for i in range(nodes)]
        self._children: set[int] = set()

    async def open(self, owner: str) -> None:  # noqa: ARG002 - the folder is nobody else's
        self._folder.mkdir(parents=True, exist_ok=True)
        self._check_there()

    async def close(self) -> None:
        """Agents go on."""

    async def nodes(self) -> Sequence[Machine]:
        self._check_there()
        return [
            Machine(node, NodeHealth.DOWN, "taken away")
            if self._is_down(node.id)
            else Machine(node)
            for node in self._nodes
        ]

    def check(self, job: Job) -> None:
        """Anything will do."""

    async def submit(self, gang: Gang) -> None:
        """An agent for each part, in a session of its own."""
        self._check_there()
        record = self._record(gang.key)
        if record.exists():
            return
        started = {}
        for part in gang.parts:
            command = ["weft.node.agent", str(part.folder)]
            pid = spawn(command, part.folder / AGENT_LOG, filter_environment(self._pass_env))
            self._children.add(pid)
            started[part.node] = [pid, start_time(pid), str(part.folder)]
        write_whole(record, {"job": gang.job, "attempt": gang.attempt, "agents": started})

    async def cancel(self, key: Key) -> None:
        """Kill its agents, and all below them, on nodes that can be reached."""
        self._check_there()
        record = read_json(self._record(key))
        for node, (pid, began, folder) in (record or {"agents": {}})["agents"].items():
            if not self._is_down(NodeId(node)):
                await asyncio.to_thread(_kill, int(pid), began, folder)

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        self._check_there()
        self._children = {pid for pid in self._children if not reap(pid)}
        seen = {}
        for file in self._folder.glob("*@*.json"):
            body = json.loads(file.read_text())
            seen[JobId(body["job"]), int(body["attempt"])] = self._see(body["agents"])
        return seen

    def _see(self, agents: Mapping[str, Agent]) -> AttemptObservation:
        down = tuple(NodeId(node) for node in agents if self._is_down(NodeId(node)))
        there = [agent for node, agent in agents.items() if node not in down]
        lives = any(began is not None and alive(pid, began) for pid, began, _ in there)
        why = f"node {', '.join(down)} was taken away" if down else ""
        if lives:
            return AttemptObservation(AttemptPhase.RUNNING, why, nodes=down)
        return AttemptObservation(
            AttemptPhase.LOST if down else AttemptPhase.ENDED, why, nodes=down
        )

    def _record(self, key: Key) -> Path:
        return self._folder / f"{job_folder(self._folder, key[0]).name}@{key[1]}.json"

    def _is_down(self, node: NodeId) -> bool:
        return (self._folder / f"{node}.down").exists()

    def _check_there(self) -> None:
        if (self._folder / AWAY).exists():
            raise ControllerUnreachable(f"{self._folder / AWAY} is there")


def _kill(pid: int, began: int | None, folder: str) -> None:
    mine = {pid, *descendants(pid)} if began is not None and alive(pid, began) else set()
    kill_all({*mine, *find_tagged(TAG, folder)})


@dataclass
class ProcessEngine(FleetEngine):
    """`nodes` nodes of `slots` CPU slots each, all of them processes of this machine."""

    state: Path = field(metadata={"settable": False})
    count: int = field(default=2, metadata={"name": "nodes"})
    slots: int = 2
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES
    declares = (("", AGENT_CONTROLS),)

    def __post_init__(self) -> None:
        check_names(self.pass_env)
        for name, value in (("nodes", self.count), ("slots", self.slots)):
            if value < 1:
                raise InvalidConfig(f"{name} is {value}", hint=f"{name} is 1 or more")
        folder = Path(self.state).absolute() / "fleet"
        manager = ProcessManager(folder, self.count, self.slots, self.pass_env)
        super().__init__(manager, self.state, "the processes of this machine")
