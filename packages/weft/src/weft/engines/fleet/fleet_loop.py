"""The two rounds of a fleet's engine: through the folders of its attempts, and to its manager.

They are separate tasks: a controller that is away makes its questions hang for seconds, and what
agents write is read all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.base.errors import WireError
from weft.core.errors import EngineError
from weft.core.events.event import Event, NodeDown, NodeUp, Noticed
from weft.core.model.cluster import Node, OutOfUse
from weft.core.model.job import NodeId
from weft.core.protocols import EngineHealth
from weft.engines.attempts.job_folders import set_aside
from weft.engines.attempts.rounds import MACHINE_WIDE, AttemptLoop, Chore, pause
from weft.engines.fleet.attempts import PEERS_GRACE_S, RunningAttempt, next_step
from weft.engines.fleet.port import (
    AttemptObservation,
    AttemptPhase,
    Channel,
    Closing,
    ControllerUnreachable,
    Gang,
    Key,
    Machine,
    Manager,
    NodeHealth,
)
from weft.engines.fleet.requests import ask_to_stop

log = logging.getLogger(__name__)

READ_S = 0.2  # between two looks into the folders
SHORTEST_PAUSE_S = 0.005  # the same where agents wake us
LOOK_S = 1.0  # between two questions to the manager
HURRY_S = 0.25  # the same while only its word is missing


@dataclass
class FleetLoop(AttemptLoop[RunningAttempt]):
    """Watcher of attempts that `manager` runs; `what` is the controller in words for people.

    `bring_on` is called for every attempt that goes on, after its agents were heard.
    """

    manager: Manager
    channel: Channel
    what: str
    machines: dict[NodeId, Machine] = field(default_factory=dict)
    bring_on: Callable[[RunningAttempt, float], Awaitable[None]] | None = None
    _seen: Mapping[Key, AttemptObservation] = field(default_factory=dict)
    _asked: float = -1.0  # when the question began that `_seen` answers
    _away: tuple[float, str] | None = None
    _strangers: set[Key] = field(default_factory=set)  # attempts of no job that were seen to live
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def health(self) -> EngineHealth:
        """Contact with the controller and the folders."""
        troubles = [*self._rounds.troubles.values()]
        if self._away is not None:
            since, why = self._away
            troubles.append(
                f"no answer from {self.what} for {time.monotonic() - since:.0f} s: {why}"
            )
        out_of_use = [
            OutOfUse(machine.node, machine.health is NodeHealth.DRAINING, machine.reason)
            for machine in self.machines.values()
            if machine.health is not NodeHealth.UP
        ]
        devices = {name: self.board.devices(at.node) for name, at in self.machines.items()}
        what = (not troubles, "; ".join(troubles), tuple(out_of_use), self._taken())
        seen = {name: some for name, some in devices.items() if some}
        return EngineHealth(*what, seen, self._closings(), self._pools(), (*self.up(),))

    def _pools(self) -> dict[str, str]:
        """Nodes that are for one tenant alone, by tenant."""
        nodes: dict[str, list[NodeId]] = {}
        for name, machine in self.machines.items():
            if machine.tenant:
                nodes.setdefault(machine.tenant, []).append(name)
        return {tenant: f"{'+'.join(some)}={tenant}" for tenant, some in nodes.items()}

    def _closings(self) -> dict[str, str]:
        """Nodes that are kept for others from a time that was announced, by its name."""
        nodes: dict[Closing, list[NodeId]] = {}
        for name, machine in self.machines.items():
            for closing in machine.closings:
                nodes.setdefault(closing, []).append(name)
        return {
            closing.name: f"{'+'.join(some)}@{max(closing.start, 0):.0f}-{closing.end:.0f}"
            for closing, some in nodes.items()
        }

    def _taken(self) -> dict[NodeId, str]:
        """Devices that jobs of others hold: as many as there are, of those that ours do not."""
        taken = {}
        for name, machine in self.machines.items():
            if machine.taken and machine.health is NodeHealth.UP:
                parts = (part for run in self.watched.values() for part in run.watch.gang.parts)
                ours = {gpu for part in parts if part.node == name for gpu in part.gpus}
                free = [gpu for gpu in range(machine.node.gpus) if gpu not in ours]
                if devices := free[-machine.taken :]:
                    taken[name] = f"~{name}:{','.join(map(str, devices))}"
        return taken

    def up(self) -> list[Node]:
        """The nodes that jobs can be put on."""
        return [
            machine.node for machine in self.machines.values() if machine.health is NodeHealth.UP
        ]

    # ---- life

    def begin(self, more: Mapping[str, Chore]) -> None:
        """Go round from now on; `more` are further rounds, by what they do."""
        rounds = {"read what agents write": self._turn, f"ask {self.what}": self._ask_manager}
        for what, turn in {**rounds, **more}.items():
            self._rounds.begin(what, turn)

    def spawn(self, what: Coroutine[Any, Any, None]) -> None:
        """Run `what` as a task that ends with the engine."""
        self._rounds.spawn(what)

    # ---- through the folders

    async def _turn(self) -> None:
        await self._await_news(READ_S)
        runs = dict(self.watched)
        if not runs:
            return
        folders = {folder: run for run in runs.values() for folder in run.watch.folders}
        for folder, texts in (await self.channel.fetch([*folders])).items():
            if folder in folders:
                for text in texts:
                    self.told(Noticed(*folders[folder].key, "warning", text))
        if wrong := await self._read_all(runs):
            raise wrong[0]
        await asyncio.sleep(SHORTEST_PAUSE_S)

    async def _settle(self, attempt: RunningAttempt, error: Exception | None, now: float) -> None:
        if error is not None:
            raise error
        run, key = attempt, attempt.key
        heard = run.submitted is not None and self._asked > run.submitted and self._away is None
        more = {
            other: self._seen.get(other)
            for other, since in run.joined.items()
            if self._asked > since and self._away is None
        }
        step = next_step(run, self._seen.get(key), heard=heard, now=now, more=more)
        if step.ask:
            await self.request_stop(run, PEERS_GRACE_S)
        if step.cancel:
            await self.cancel(run)
        if step.hurry:
            self._hurry.set()
        if step.tell:
            if run.watch.on_this_machine and run.watch.given_up:
                folder = run.watch.parts[0].part.folder
                await self.run(lambda: set_aside(self.root, folder))
            self.drop_attempt(run, run.watch.end_events(asked=run.asked))
            return
        if self.bring_on is not None:
            await self.bring_on(run, now)
        if run.waiting and run.waiting != run.pending and not run.silent:
            run.pending = run.waiting
            self.told(Noticed(*key, "info", f"{self.what} has not started it yet: {run.waiting}"))

    async def request_stop(self, run: RunningAttempt, grace_s: float) -> None:
        """Leave a request to leave for its agents."""
        gang = run.watch.gang
        if await self.ask_parts(run, gang, grace_s):
            await self.cancel(run)
        self._poke.set()

    async def ask_parts(self, run: RunningAttempt, gang: Gang, grace_s: float) -> bool:
        """Ask some parts of an attempt to leave.

        True if none of these has an agent, or ever will.
        """
        try:
            asked = await asyncio.to_thread(ask_to_stop, gang, grace_s)
            await self.channel.send(asked.files)
        except (OSError, WireError) as error:
            machine_wide = isinstance(error, OSError) and error.errno in MACHINE_WIDE
            if not run.watch.on_this_machine or machine_wide:
                raise EngineError(f"{gang.job}@{gang.attempt} cannot be asked: {error}") from error
            run.watch.give_up(str(error))
            return False
        for folder in asked.unclaimed:  # no agent will come, so there is nothing to stop gracefully
            run.watch.revoke(folder)
        return len(asked.unclaimed) == len(gang.parts)

    async def cancel(self, run: RunningAttempt) -> None:
        """Have the manager end it; one that is away is asked again."""
        for gang in run.gangs:
            await self.cancel_gang(gang.key)

    async def cancel_gang(self, key: Key) -> None:
        """Have the manager end what was submitted together."""
        try:
            await self.manager.cancel(key)
        except ControllerUnreachable as error:
            log.warning("job=%s attempt=%d is not ended yet: %s", *key, error.what)
        self._hurry.set()

    def is_gone(self, key: Key, since: float | None) -> bool:
        """True if the manager has nothing of a gang, asked after `since`, when it took it."""
        if since is None or self._away is not None or self._asked <= since:
            return False
        seen = self._seen.get(key)
        return seen is None or seen.phase in (AttemptPhase.ENDED, AttemptPhase.LOST)

    def drop_attempt(self, run: RunningAttempt, events: Sequence[Event]) -> None:
        """Report nothing more of an attempt that is over."""
        key = run.key
        if self.watched.get(key) is not run:
            return
        del self.watched[key]
        for gang in run.gangs:
            self.left(gang.key)
        self.left(key)
        if not run.silent:
            for event in events:
                self.told(event)

    # ---- to the manager

    def poll_soon(self) -> None:
        """Ask the manager as soon as may be."""
        self._hurry.set()

    async def _ask_manager(self) -> None:
        await asyncio.sleep(HURRY_S)
        await pause(self._hurry, LOOK_S - HURRY_S)
        began = time.monotonic()
        try:
            seen = await self.manager.poll()
            machines = await self.manager.nodes()
        except ControllerUnreachable as error:
            if self._away is None:
                log.warning("%s does not answer: %s", self.what, error.what)
                self._away = (began, error.what)
            self._away = (self._away[0], error.what)
            return
        if self._away is not None:
            log.info("%s answers again", self.what)
        self._away = None
        self.note_machines(machines)
        self._seen, self._asked = seen, began
        self._poke.set()
        ours = {gang.key for run in self.watched.values() for gang in run.gangs} | {*self.watched}
        lives = (AttemptPhase.PENDING, AttemptPhase.RUNNING)
        known, self._strangers = (
            self._strangers,
            {key for key, word in seen.items() if key not in ours and word.phase in lives},
        )
        for key in self._strangers:
            if key not in known:
                log.warning("job=%s attempt=%d runs but belongs to no job; ending it", *key)
            with contextlib.suppress(ControllerUnreachable):
                await self.manager.cancel(key)

    def note_machines(self, machines: Sequence[Machine], *, tell: bool = True) -> None:
        """Nodes as they are now; listeners are notified of changes."""
        was, self.machines = self.machines, {machine.node.id: machine for machine in machines}
        for name, old in was.items():
            new = self.machines.get(name)
            if new is None or new.health is NodeHealth.DOWN:
                why = "it is not there any more" if new is None else new.reason
                for run in self.watched.values():
                    run.watch.mark_lost((name,), f"node {name} is down: {why}")
            if (
                tell
                and old.health is NodeHealth.UP
                and (new is None or new.health is not NodeHealth.UP)
            ):
                log.warning(
                    "node=%s is out of use: %s", name, "gone" if new is None else new.reason
                )
                self.told(NodeDown(name))
        for name, new in self.machines.items():
            old_node = was[name].node if name in was and was[name].health is NodeHealth.UP else None
            if tell and new.health is NodeHealth.UP and new.node != old_node:
                self.told(NodeUp(new.node))
