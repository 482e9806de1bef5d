"""An engine of several nodes: agents' folders on one side, a manager's word on the other.

Every attempt has a folder with one part a node (`weft.engines.fleet.port`). The engine writes what
the agents are told, has the manager start them, reads what they write, and tells one story of it.
Nothing it knows is lost when it dies: folders and the manager's tags are enough to go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from weft.core.engine_bases import NoLiveResize
from weft.core.errors import EngineError, WeftError
from weft.core.events.event import Event, StartFailed, Stopped
from weft.core.job_objects import JobObjects
from weft.core.knowledge.measured import Measured, Sees
from weft.core.model.cluster import CPU, Node
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import DeviceSharing, EngineHealth
from weft.engines.attempts.attempt_folders import AttemptFolders
from weft.engines.attempts.job_folders import find_attempts, mark_of
from weft.engines.attempts.request import check_launch
from weft.engines.fleet.asleep import SleepsOnNodes
from weft.engines.fleet.attempts import Run
from weft.engines.fleet.core_pools import CorePools
from weft.engines.fleet.fleet_loop import FleetLoop
from weft.engines.fleet.folders import (
    ask_to_stop,
    find_owner,
    logs_of,
    measured_of,
    open_gang,
    prepare,
    write_terms,
)
from weft.engines.fleet.gang import GangWatch
from weft.engines.fleet.port import Away, Channel, Gang, Key, Manager, SharedFolder
from weft.engines.fleet.requests import Site, make_gang, make_specs
from weft.engines.fleet.sessions import FleetSessions
from weft.engines.machine.containers import refuse_named_volumes
from weft.engines.machine.users import let_through, user_of
from weft.wire.attempt import folder_of
from weft.wire.errors import WireError
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

AGAIN_S = 1.0
PATIENCE_S = 60.0  # for a controller that is away when the service begins
SUBMITTING = 8  # requests at once


class FleetEngine(NoLiveResize, SleepsOnNodes, AttemptFolders):
    """What `weft.core.protocols.Engine` asks for, on whatever `manager` runs agents with.

    `what` is the controller in words for people. With `users` ranks run as their tenants' users,
    by agents that are root.
    """

    wants = Wants.STATE
    speed, real = 1.0, True  # by the wall clock, jobs are processes
    job_objects: JobObjects | None = None

    def __init__(
        self,
        manager: Manager,
        state: Path,
        what: str,
        channel: Channel | None = None,
        users: Mapping[str, Identity] | None = None,
    ) -> None:
        self._users = users or {}
        self._manager, self._what = manager, what
        self.state = Path(state).absolute()
        self._channel: Channel = channel or SharedFolder()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._cores = CorePools()
        self._slots = asyncio.Semaphore(SUBMITTING)
        self._opened = False
        self._rounds = FleetLoop(
            manager, self._channel, self.state, what, self._queue.put_nowait, self._cores.give
        )
        self._sessions = FleetSessions(self._rounds)
        self._asleep = set()

    # ---- what it is

    @property
    def supports(self) -> Controls:
        """What the manager's way of starting jobs lets agents apply."""
        return self._manager.abilities.controls

    @property
    def sharing(self) -> DeviceSharing:
        """How a device serves several jobs there."""
        return self._manager.abilities.sharing

    @property
    def health(self) -> EngineHealth:
        """Whether the controller answers and the folders can be read."""
        return self._rounds.health

    @property
    def invitation(self) -> str:
        """Machines join by the means of their cluster."""
        return ""

    async def nodes(self) -> Sequence[Node]:
        """The nodes that are up; others are told of when they come."""
        await self._open()
        return self._rounds.up()

    def check(self, job: Job) -> None:
        """Refuse a job without a command.

        What is more than any node has is the driver's to refuse.
        """
        check_launch(job, user_of(self._users, job))
        if not self._manager.abilities.images:
            refuse_named_volumes(job)
        self._manager.check(job)

    @property
    def sessions(self) -> FleetSessions:
        """Terminals, shells and ports of attempts on all nodes."""
        return self._sessions

    def pids(self, job: JobId, attempt: int) -> Mapping[int, int]:  # noqa: ARG002 - not of here
        """None: numbers of processes mean nothing on another machine."""
        return {}

    @property
    def sees(self) -> Sees:
        """All that agents see; GPUs where a node has them."""
        gpus = any(one.node.kind != CPU for one in self._rounds.machines.values())
        return Sees.STEPS | Sees.HOST | (Sees.DEVICE if gpus else Sees.NOTHING)

    def measured(self, job: JobId, attempt: int) -> Measured:
        """What its agents saw lately, as far as the files have come here."""
        return measured_of(folder_of(self.state, job, attempt))

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:
        """Each rank's file, by its number in the whole gang."""
        return logs_of(folder_of(self.state, job, attempt))

    # ---- life

    async def _open(self) -> None:
        """Reach the manager; it may be away for a while when we begin."""
        if self._opened:
            return
        for folder in ("jobs", "live"):
            (self.state / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._users:
            let_through(self.state)
        until = time.monotonic() + PATIENCE_S
        while not self._opened:
            try:
                await self._manager.open(find_owner(self.state))
                self._rounds.note_machines(await self._manager.nodes(), tell=False)
                self._opened = True
            except Away as error:
                if time.monotonic() > until:
                    raise EngineError(f"{self._what} does not answer: {error.what}") from error
                log.warning("%s does not answer, trying again: %s", self._what, error.what)
                await asyncio.sleep(AGAIN_S)

    def running(self) -> set[Key]:
        """Attempts with a mark that they may run."""
        gangs = (open_gang(folder) for folder in find_attempts(self.state))
        return {gang.key for gang in gangs if gang is not None}

    async def adopt(self, attempts: Collection[Key]) -> set[Key]:
        """Watch these again and end every other one, as they are found."""
        await self._open()
        known = await asyncio.to_thread(self._take_up, attempts)
        self._rounds.begin({"keep attempts asleep": self._renew_sleepers})
        return known

    def _take_up(self, attempts: Collection[Key]) -> set[Key]:
        known = set()
        for key in attempts:
            gang = open_gang(folder_of(self.state, *key))
            if gang is not None:
                known.add(key)
                self._watch(gang, again=True)
                self._take_up_sleeper(gang)
        for folder in find_attempts(self.state):
            gang = open_gang(folder)
            if gang is not None and gang.key not in known:
                log.warning("attempt=%s is nobody's; ending it", folder)
                run = self._watch(gang)
                run.asked = run.silent = True
                run.ask(0.0, time.monotonic())
                try:
                    ask_to_stop(gang, 0.0)
                except (OSError, WireError) as error:  # the manager ends it when its time is over
                    log.warning("attempt=%s cannot be asked to leave: %s", folder, error)
        return known

    def _watch(self, gang: Gang, *, again: bool = False) -> Run:
        """An attempt from before a restart, which the manager may or may not have been given."""
        run = self._rounds.runs[gang.key] = Run(GangWatch(gang, again=again), time.monotonic())
        try:
            self._cores.recall(gang, self._site())
        except (OSError, WireError) as error:
            log.warning("job=%s attempt=%d has lost its description: %s", *gang.key, error)
        return run

    async def close(self) -> None:
        """Stop listening; agents go on."""
        await self._rounds.close()
        if self._opened:
            await self._manager.close()

    async def events(self) -> AsyncIterator[Event]:
        """News of nodes and of all attempts."""
        while True:
            yield await self._queue.get()

    # ---- requests

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Write what its agents are told, and have the manager start them; once for an attempt."""
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        run = self._rounds.runs.get(key)
        if run is None:
            gang = await asyncio.to_thread(open_gang, folder)
            if gang is not None and not mark_of(self.state, folder).exists():
                return  # it ran, and its end was told
            gang = gang or await self._prepare(job, on, attempt)
            run = self._rounds.runs[key] = Run(GangWatch(gang))
        elif run.submitting or run.watch.started:
            return
        run.submitting, run.submitted = True, None
        self._rounds.spawn(self._submit(run))

    async def _prepare(self, job: Job, on: Allocation, attempt: int) -> Gang:
        site = self._site()
        gang = make_gang(job, on, attempt, site)
        cores = {} if site.abilities.limits_host else self._cores.take(gang, site)
        user = user_of(self._users, job)
        specs = [replace(spec, user=user) for spec in make_specs(job, on, gang, site, cores)]
        try:
            files = await asyncio.to_thread(prepare, self.state, gang, specs)
        except OSError as error:
            self._cores.give(gang.key)
            folder = folder_of(self.state, job.id, attempt)
            raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
        try:
            await self._channel.send(files)
        except EngineError:
            self._cores.give(gang.key)
            mark_of(self.state, folder_of(self.state, *gang.key)).unlink(missing_ok=True)
            raise
        return gang

    async def _submit(self, run: Run) -> None:
        """Until the manager has taken it, refused it, or nobody wants it any more."""
        gang = run.watch.gang
        while self._rounds.runs.get(gang.key) is run and not run.asked:
            try:
                async with self._slots:
                    await self._manager.submit(gang)
            except Away as error:
                log.warning("job=%s attempt=%d waits: %s", *gang.key, error.what)
                await asyncio.sleep(AGAIN_S)
            except WeftError as error:
                lost = isinstance(error, EngineError)  # not the job's doing
                self._rounds.end(run, [StartFailed(*gang.key, str(error), lost=lost)])
                return
            else:
                break
        run.submitting = False
        run.submitted = time.monotonic()
        if run.asked:  # while it was on its way
            await self._rounds.cancel(run)
        self._rounds.hurry()

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """Leave a request for its agents; an attempt that never was has stopped."""
        run = self._rounds.runs.get((job, attempt))
        if run is None:
            self._queue.put_nowait(Stopped(job, attempt))
            return
        run.asked = run.asked or not run.watch.broken
        run.ask(grace_s, time.monotonic())
        await self._rounds.ask(run, grace_s)

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Tell its agents their new batch and part of the host."""
        run = self._rounds.runs.get((job, attempt))
        if run is None:
            return
        site, gang = self._site(), run.watch.gang
        try:
            cores = {} if site.abilities.limits_host else self._cores.change(gang, to, site)
            files = await asyncio.to_thread(write_terms, gang, to, cores, site)
        except OSError as error:
            raise EngineError(f"cannot write for {job!r}: {error.strerror}") from error
        await self._channel.send(files)

    def _site(self) -> Site:
        return Site(self.state, self._rounds.machines, self._manager.abilities)
