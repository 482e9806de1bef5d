"""The manager of a fleet that is this machine: agents are its processes.

What an agent's folder and the kernel say is better evidence than any controller's word: an attempt
that was given up has ended when none of its processes is left, however they hid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import EngineError
from weft.core.model.cluster import Node
from weft.core.model.job import Job
from weft.engines.attempts.job_folders import mark_of
from weft.engines.attempts.own_processes import WarmServer, reap, spawn
from weft.engines.attempts.watch import AgentProcess, Footprint, Process, end_all, revoke
from weft.engines.fleet.port import Abilities, AttemptObservation, AttemptPhase, Gang, Key, Machine
from weft.wire.attempt import AGENT_LOG, CLAIM, short_path
from weft.wire.processes import alive, kill_all

log = logging.getLogger(__name__)

LINGER_S = 10.0  # what an agent may take to be gone after its last word
SWEEP_S = 0.5  # for all processes of an attempt to be gone after SIGKILL, before the next try
END_S = 10.0  # the same, before a person is notified


@dataclass
class LocalManager:
    """Of `node`; `ranks` tells the processes of an attempt's ranks, `env` is what agents have.

    `warm` forks agents where it is ready. `troubles` are shown to people in the engine's health.
    """

    state: Path
    node: Node
    abilities: Abilities
    env: Callable[[], Mapping[str, str]]
    ranks: Callable[[Key], Sequence[Process]]
    warm: WarmServer | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    _bell: socket.socket | None = None
    _agents: dict[Key, AgentProcess] = field(default_factory=dict)
    _lingering: list[tuple[AgentProcess, float]] = field(default_factory=list)

    async def open(self, owner: str) -> None:
        """There is nothing to find: the folders of attempts say all."""

    def open_bell(self, poke: Callable[[], None]) -> str:
        """The socket that agents write to when there is news; begins to listen to it."""
        path = short_path(self.state / "engine.sock")
        Path(path).unlink(missing_ok=True)
        self._bell = bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.setblocking(False)
        bell.bind(path)

        def on_bell() -> None:
            with contextlib.suppress(BlockingIOError):
                while bell.recv(64):
                    pass
            poke()

        asyncio.get_running_loop().add_reader(bell, on_bell)
        return path

    async def close(self) -> None:
        """End the warm server and listen no more; agents go on."""
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            self._bell.close()
        if self.warm is not None:
            await asyncio.to_thread(self.warm.close)

    async def nodes(self) -> Sequence[Machine]:
        return [Machine(self.node)]

    def check(self, job: Job) -> None:
        """The engine has checked it."""

    def agent_of(self, gang: Gang) -> AgentProcess:
        """The agent of an attempt, known from now on if it was not."""
        if gang.key not in self._agents:
            folder = gang.parts[0].folder
            self._agents[gang.key] = AgentProcess(folder, spawned=time.monotonic())
        return self._agents[gang.key]

    async def submit(self, gang: Gang) -> None:
        """An agent in a session of its own, if none has claimed the attempt."""
        await asyncio.to_thread(self._start, self.agent_of(gang))

    def _start(self, agent: AgentProcess) -> None:
        folder = agent.folder
        if (folder / CLAIM).exists():
            return
        agent.spawned = time.monotonic()
        if self.warm is not None and self.warm.fork(folder):
            return
        try:
            agent.pid = spawn(["weft.node.agent", str(folder)], folder / AGENT_LOG, self.env())
        except OSError as error:
            if revoke(folder):
                what = error.strerror or error
                raise EngineError(f"an agent for {folder} cannot be started: {what}") from error
            # The warm server forked one after all.

    async def cancel(self, key: Key) -> None:
        """Kill its agent and everything that it started."""
        agent = self._agents.get(key)
        if agent is not None:
            agent.doomed = min(agent.doomed, time.monotonic())
            await asyncio.to_thread(self._end, key, agent)

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """All attempts that are watched; of those that are ended, what is left is killed again."""
        return await asyncio.to_thread(self._poll)

    def _poll(self) -> dict[Key, AttemptObservation]:
        seen = {}
        for key, agent in [*self._agents.items()]:
            gone = agent.doomed <= time.monotonic() and self._end(key, agent)
            seen[key] = AttemptObservation(AttemptPhase.ENDED if gone else AttemptPhase.RUNNING)
        self._see_off_agents()
        return seen

    def _end(self, key: Key, agent: AgentProcess) -> bool:
        """Kill what there is of an attempt; whether nothing is left."""
        name = f"{key[0]}@{key[1]}"
        own = agent.folder.parent
        others = any(two is not agent and two.folder.parent == own for two in self._all())
        lock = None if others else own / "running.lock"
        ranks = tuple(self.ranks(key))
        try:
            left = end_all(Footprint(agent.folder, agent.claim, ranks, lock, agent.group), SWEEP_S)
        except Exception as error:  # one attempt's trouble is not that of the others
            self.troubles[name] = f"{name} cannot be ended: {error}"
            log.warning("attempt=%s cannot be ended, trying again: %s", name, error)
            return False
        if left and time.monotonic() > agent.doomed + END_S:
            shown = ", ".join(map(str, left[:5]))
            self.troubles[name] = f"processes {shown} of {name} cannot be killed"
            log.error("attempt=%s pids=%s cannot be killed; its devices stay held", name, shown)
        if not left:
            self.troubles.pop(name, None)
        return not left

    def _all(self) -> list[AgentProcess]:
        return [*self._agents.values()]

    # ---- after the last word

    def see_off_agent(self, key: Key) -> None:
        """Its end is about to be reported; its agent has nothing more to do."""
        agent = self._agents.pop(key, None)
        self.troubles.pop(f"{key[0]}@{key[1]}", None)
        if agent is not None:
            self._lingering.append((agent, time.monotonic() + LINGER_S))
            self._see_off_agents()

    def _see_off_agents(self) -> None:
        """The mark of an attempt stays until its agent is gone."""
        self._lingering = [
            (agent, until) for agent, until in self._lingering if self._stays(agent, until)
        ]

    def _stays(self, agent: AgentProcess, until: float) -> bool:
        waits = agent.pid is not None and not reap(agent.pid)
        try:
            there = agent.claim is not None and alive(*agent.claim)
        except OSError:
            return True  # it cannot be looked at now
        if agent.claim is not None and there:
            if time.monotonic() > until:
                log.warning("attempt=%s is over; its agent is ended", agent.folder)
                kill_all([agent.claim[0]])
            return True
        with contextlib.suppress(FileNotFoundError):
            mark_of(self.state, agent.folder).unlink()
        return waits
