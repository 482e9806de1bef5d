"""An engine of several nodes: agents' folders on one side, a manager's word on the other.

Every attempt has a folder with one part a node (`weft.engines.fleet.port`). The engine writes what
the agents need, has the manager start them, reads what they write, and reports it as events.
Nothing it knows is lost when it dies: folders and the manager's tags are enough to go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from weft.base.errors import WireError
from weft.core.artifacts import ArtifactFiles
from weft.core.batch_work import BatchWorks
from weft.core.engine_bases import NoMemoryWaits
from weft.core.errors import EngineError, WeftError
from weft.core.events.event import Event, StartFailed, Stopped
from weft.core.job_objects import JobObjects
from weft.core.knowledge.measured import Sees
from weft.core.model.cluster import CPU, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.node_checks import NodeChecks
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import DeviceSharing, EngineHealth
from weft.engines.attempts.job_folders import adopt_attempts, mark_of
from weft.engines.attempts.request import check_launch
from weft.engines.attempts.rounds import Chore
from weft.engines.attempts.watch import rank_logs
from weft.engines.fleet.asleep import SleepsOnNodes
from weft.engines.fleet.attempts import RunningAttempt
from weft.engines.fleet.fleet_loop import READ_S, FleetLoop
from weft.engines.fleet.gang import GangWatch
from weft.engines.fleet.port import Channel, ControllerUnreachable, Gang, Key, Manager, SharedFolder
from weft.engines.fleet.requests import (
    AttemptSite,
    ask_to_stop,
    make_gang,
    make_specs,
    open_gang,
    prepare,
    service_id,
    write_terms,
)
from weft.engines.fleet.resizing import GangChanges
from weft.engines.fleet.roster import Roster, load_roster
from weft.engines.fleet.sessions import FleetSessions
from weft.engines.machine.artifacts import ArtifactFolder, FilesHere
from weft.engines.machine.containers import refuse_named_volumes
from weft.engines.machine.cores import CorePools
from weft.engines.machine.users import user_of
from weft.run_terms import Processes
from weft.wire.attempt import SPEC, folder_of
from weft.wire.ending import end_if_asked
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

AGAIN_S = 1.0
PATIENCE_S = 60.0  # for a controller that is away when the service begins
SUBMITTING = 8  # requests at once
CHECK_S = 90.0  # for a node to open its GPUs, once the manager has started an agent there


class FleetEngine(SleepsOnNodes, NoMemoryWaits):
    """An engine (`weft.core.protocols.Engine`) on whatever `manager` runs agents with.

    `what` is the controller in words for people. With `users` ranks run as their tenants' users,
    by agents that are root.
    """

    wants = Wants.STATE
    job_objects: JobObjects | None = None
    batch_works: BatchWorks | None = None

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
        self._loop = FleetLoop(
            self.state, self._queue.put_nowait, self._leave, manager, self._channel, what
        )
        self._sessions = FleetSessions(self._loop)
        self.artifacts: ArtifactFiles = FilesHere(self.artifact_folder)
        self._changes = GangChanges(
            self._loop, self._cores, self._site, lambda job: user_of(self._users, job)
        )
        self._loop.bring_on = self._changes.bring_on
        self._asleep = set()

    # ---- what it is

    @property
    def supports(self) -> Controls:
        """The controls that the manager's way of starting jobs lets agents apply."""
        return self._manager.abilities.controls

    @property
    def sharing(self) -> DeviceSharing:
        return self._manager.abilities.sharing

    @property
    def health(self) -> EngineHealth:
        return self._loop.health

    async def nodes(self) -> Sequence[Node]:
        """The nodes that are up; others are reported when they come."""
        await self._open()
        return self._loop.up()

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

    def artifact_folder(self, job: Job) -> ArtifactFolder:
        """The folder of the files that a job leaves; InvalidConfig where it is not seen here."""
        launch, user = job.launch or Launch(()), user_of(self._users, job)
        workdir = Path(launch.workdir).absolute()
        return ArtifactFolder(workdir, launch.artifacts, user.uid if user else os.geteuid())

    def pids(self, job: JobId, attempt: int) -> Mapping[int, int]:
        """Each rank's process, once its start was reported; none of those on other machines."""
        run = self._loop.watched.get((job, attempt))
        return run.watch.parts[0].pids if run is not None and run.watch.on_this_machine else {}

    @property
    def sees(self) -> Sees:
        """All that agents see; GPUs where a node has them."""
        gpus = any(machine.node.kind != CPU for machine in self._loop.machines.values())
        return Sees.STEPS | Sees.HOST | (Sees.DEVICE if gpus else Sees.NOTHING)

    # ---- life

    async def _open(self) -> None:
        """Reach the manager; it may be away for a while when we begin."""
        if self._opened:
            return
        self._make_folders(users=bool(self._users))
        until = time.monotonic() + PATIENCE_S
        while not self._opened:
            end_if_asked()
            try:
                await self._manager.open(service_id(self.state))
                self._loop.note_machines(await self._manager.nodes(), tell=False)
                self._opened = True
            except ControllerUnreachable as error:
                if time.monotonic() > until:
                    raise EngineError(f"{self._what} does not answer: {error.what}") from error
                log.warning("%s does not answer, trying again: %s", self._what, error.what)
                await asyncio.sleep(AGAIN_S)

    def _part_folders(self, key: Key) -> Sequence[Path]:
        run = self._loop.watched.get(key)
        if run is not None and run.watch.folders:
            return run.watch.folders
        gang = open_gang(folder_of(self.state, *key)) if run is None else run.watch.gang
        return [part.folder for part in gang.parts] if gang is not None else []

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:
        """Each rank's file, also of those that have left; `.1` beside it is what was before.

        Ranks number GPUs; where one process has all those of a node, processes are numbered.
        """
        whole = folder_of(self.state, job, attempt)
        folders = [whole, *(spec.parent for spec in sorted(whole.glob(f"*/{SPEC}")))]
        parts = [rank_logs(folder) for folder in folders]
        of_ranks = dict(sorted(line for part in parts for line in part.items()))
        if 0 in of_ranks and all(len(part) <= 1 for part in parts):
            return dict(enumerate(of_ranks.values()))
        return of_ranks

    def _read_key(self, folder: Path) -> Key | None:
        gang = open_gang(folder)
        return None if gang is None else gang.key

    async def adopt(self, attempts: Collection[Key]) -> set[Key]:
        """Watch these again and end every other one, as they are found."""
        await self._open()
        known = await self._loop.run(
            lambda: adopt_attempts(self.state, attempts, self._resume, self._end_stranger)
        )
        for run in self._loop.watched.values():
            self._changes.resume(run)
        self._loop.begin({"keep attempts asleep": self._renew_sleepers, **self._chores()})
        return known

    def _chores(self) -> Mapping[str, Chore]:
        """The other tasks done again and again, by what they do."""
        return {}

    def _resume(self, key: Key) -> bool:
        """Watch an attempt from before a restart; False if it never was prepared."""
        gang = open_gang(folder_of(self.state, *key))
        if gang is not None:
            self._watch(gang, again=True)
            self._take_up_sleeper(gang)
        return gang is not None

    def _end_stranger(self, folder: Path) -> bool:
        """End an attempt that no job owns; False if it never was prepared."""
        gang = open_gang(folder)
        if gang is not None:
            self._end_run(self._watch(gang))
        return gang is not None

    def _end_run(self, run: RunningAttempt) -> None:
        run.asked = run.silent = True
        run.note_stop_request(0.0, time.monotonic())
        try:
            ask_to_stop(run.watch.gang, 0.0)
        except (OSError, WireError) as error:  # the manager ends it when its time is over
            log.warning("job=%s attempt=%d cannot be asked to leave: %s", *run.key, error)

    def _watch(self, gang: Gang, *, again: bool = False) -> RunningAttempt:
        """An attempt from before a restart, which the manager may or may not have been given."""
        now, folder = time.monotonic(), folder_of(self.state, *gang.key)
        try:
            watch = self._make_watch(gang, again=again, roster=load_roster(folder, gang))
        except WireError as error:
            log.warning("job=%s attempt=%d has lost track of its ranks: %s", *gang.key, error)
            watch = self._make_watch(gang, again=again)
        watch.watch_extension(again=again)
        run = self._loop.watched[gang.key] = RunningAttempt(watch, now)
        run.joined = {other.key: now for other in run.gangs if other.key != gang.key}
        self._recall(run)
        return run

    def _make_watch(
        self, gang: Gang, *, again: bool = False, roster: Roster | None = None
    ) -> GangWatch:
        return GangWatch(gang, again=again, roster=roster)

    def _recall(self, run: RunningAttempt) -> None:
        """Take down what an attempt from before a restart has of its nodes."""
        try:
            for gang in run.gangs:
                self._cores.note_recovered(gang, self._site())
        except (OSError, WireError) as error:
            log.warning("job=%s attempt=%d has lost its description: %s", *run.key, error)

    def _leave(self, key: Key) -> None:
        """Its end is about to be reported."""
        self._cores.give(key)
        mark_of(self.state, folder_of(self.state, *key)).unlink(missing_ok=True)

    async def close(self) -> None:
        """Stop listening; agents go on."""
        await self._loop.close()
        if self._opened:
            await self._manager.close()

    # ---- requests

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Write the requests for its agents, and have the manager start them; once per attempt."""
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        run = self._loop.watched.get(key)
        if run is None:
            gang = await asyncio.to_thread(open_gang, folder)
            if gang is not None and not mark_of(self.state, folder).exists():
                return  # it ran, and its end was reported
            gang = gang or await self._prepare(job, on, attempt)
            run = self._loop.watched[key] = RunningAttempt(self._make_watch(gang))
        elif run.submitting or run.watch.started:
            return
        run.submitting, run.submitted = True, None
        if run.watch.on_this_machine:
            await self._submit(run)
        else:
            self._loop.spawn(self._submit(run))

    async def _prepare(self, job: Job, on: Allocation, attempt: int) -> Gang:
        site = self._site()
        gang = make_gang(job, on, attempt, site)
        cores = {} if site.abilities.limits_host else self._cores.take(gang, site)
        user = user_of(self._users, job)
        specs = [replace(spec, user=user) for spec in make_specs(job, on, gang, site, cores)]
        try:
            as_users = site.abilities.as_users
            await self._channel.send(
                await asyncio.to_thread(prepare, self.state, gang, specs, as_users=as_users)
            )
        except (OSError, EngineError) as error:
            folder = folder_of(self.state, *gang.key)
            self._cores.give(gang.key)
            mark_of(self.state, folder).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
            raise
        return gang

    async def _submit(self, run: RunningAttempt) -> None:
        """Until the manager has taken it, refused it, or it is no longer wanted."""
        gang = run.watch.gang
        while self._loop.watched.get(gang.key) is run and not run.asked:
            end_if_asked()
            try:
                async with self._slots:
                    await self._manager.submit(gang)
            except ControllerUnreachable as error:
                log.warning("job=%s attempt=%d waits: %s", *gang.key, error.what)
                await asyncio.sleep(AGAIN_S)
            except WeftError as error:
                if run.watch.on_this_machine:
                    self._loop.drop_attempt(run, ())
                    raise
                lost = isinstance(error, EngineError)  # not the job's doing
                self._loop.drop_attempt(run, [StartFailed(*gang.key, str(error), lost=lost)])
                return
            else:
                break
        run.submitting = False
        run.submitted = time.monotonic()
        if run.asked:  # while it was on its way
            await self._loop.cancel(run)
        self._loop.poll_soon()

    @property
    def node_checks(self) -> NodeChecks:
        """The engine itself: agents open the GPUs of any node."""
        return self

    async def check_node(self, node: NodeId, gpus: Sequence[int]) -> Mapping[int, str]:
        """Start an attempt of no job that fails at once: then its agent opens the GPUs it had."""
        launch = Launch(("false",), "/", processes=Processes.ONE, watch=False)
        tenant = next(iter(self._users), "default")
        name = JobId(f"check-{secrets.token_hex(8)}")
        job = Job(name, tenant=tenant, demand=Demand(len(gpus)), launch=launch)
        gang = await self._prepare(job, Allocation((Slice(node, (*gpus,)),)), 1)
        run = RunningAttempt(self._make_watch(gang), submitting=True, silent=True)
        self._loop.watched[gang.key] = run
        self._loop.board.forget_checks(node, gpus)
        self._loop.spawn(self._submit(run))
        try:
            async with asyncio.timeout(CHECK_S):
                while self._loop.watched.get(gang.key) is run:
                    await asyncio.sleep(READ_S)
        except TimeoutError as error:
            why = run.waiting or "no agent has answered"
            raise EngineError(f"{node} was not checked within {CHECK_S:g} s: {why}") from error
        finally:
            if self._loop.watched.get(gang.key) is run:
                self._end_run(run)
        await self.forget([name])
        return self._loop.board.checked(node, gpus)

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """Leave a request for its agents; an attempt that never was has stopped."""
        run = self._loop.watched.get((job, attempt))
        if run is None:
            self._queue.put_nowait(Stopped(job, attempt))
            return
        run.asked = run.asked or not run.watch.broken
        run.note_stop_request(grace_s, time.monotonic())
        await self._loop.request_stop(run, grace_s)

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        run = self._loop.watched.get((job, attempt))
        if run is None:
            return
        site, gang = self._site(), run.watch.gang
        try:
            ours = site.abilities.limits_host or run.watch.roster.answer  # these keep their cores
            cores = {} if ours else self._cores.change(gang, to, site)
            files = await asyncio.to_thread(write_terms, gang, to, cores, site)
        except OSError as error:
            raise EngineError(f"cannot write for {job!r}: {error.strerror}") from error
        await self._channel.send(files)

    async def resize(self, job: Job, to: Allocation, attempt: int, epoch: int) -> None:
        """Have ranks on the new devices started as a gang of their own, which joins the others."""
        run = self._loop.watched.get((job.id, attempt))
        if run is None:
            raise EngineError(f"attempt {attempt} of job {job.id!r} does not run")
        await self._changes.begin_or_replace(run, job, to, epoch)
        self._loop.read_soon()

    def _site(self) -> AttemptSite:
        return AttemptSite(self.state, self._loop.machines, self._manager.abilities)
