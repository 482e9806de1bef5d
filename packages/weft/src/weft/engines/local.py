"""Processes on this machine.

Every attempt has a folder below `state` and an agent (`weft.node.agent`) that outlives this
process; the engine only reads what agents write and leaves requests for them. Nothing it knows
is lost when it dies.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from weft.core.errors import EngineError
from weft.core.events.event import Event, Stopped
from weft.core.knowledge.measured import Measured, Sees
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import DeviceSharing, EngineHealth
from weft.core.stops import SLEEPS, Rung
from weft.engines.attempts.agent_engine import AgentEngine
from weft.engines.attempts.asleep import end_probes, find_suspender
from weft.engines.attempts.coordinators import Coordinators
from weft.engines.attempts.health_board import devices_seen
from weft.engines.attempts.job_folders import mark_of, recall, take_up
from weft.engines.attempts.listener import Listener
from weft.engines.attempts.request import (
    LocalSite,
    adjustment,
    attempt_spec,
    check_launch,
    group_limits,
    group_of,
    means_of,
)
from weft.engines.attempts.rounds import MACHINE_WIDE, Key
from weft.engines.attempts.sessions import LocalSessions
from weft.engines.attempts.spawn import spawn
from weft.engines.attempts.warm_server import WarmServer
from weft.engines.attempts.watch import Watched, nudge
from weft.engines.machine.containers import check_image
from weft.engines.machine.cores import CorePool, RankCores
from weft.engines.machine.devices import Machine, find_machine
from weft.engines.machine.host_part import Asked, HostPart, check_host, host_part, read_asked
from weft.engines.machine.job_environment import check_names, filter_environment
from weft.engines.machine.measuring import add_host_memory
from weft.engines.machine.mps import Mps
from weft.engines.machine.users import check_users, make_folder, user_of
from weft.wire.attempt import (
    ADJUST,
    AGENT_LOG,
    CLAIM,
    RESIZE,
    SPEC,
    AttemptSpec,
    folder_of,
    short_path,
    write_whole,
)
from weft.wire.cgroups import find_base, remove_group
from weft.wire.errors import WireError
from weft.wire.gpus.health import DeviceWatch
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

SHARES = Controls.SHARE | Controls.TIER | Controls.PHASE | Controls.SHIFT
SUPPORTS = ~Controls.NOTHING  # all that there is


@dataclass
class LocalEngine(AgentEngine):
    """Processes on this machine: its GPUs, or CPU slots where there are none.

    `slots` 0 means one for each core. `warm` keeps a process that has torch imported and forks
    workers. `pin` binds ranks to their devices' part of the cores. `cpu` ignores GPUs. `mps`
    runs jobs as clients of NVIDIA's daemon where it is installed. Jobs use the stage tokens of
    the discipline they are promised with; `discipline` gives one to all. `preload` names what
    warm workers import, joined by `/`, instead of torch. `pass_env` names variables of the
    service's environment that jobs get beside those on the list of `job_environment`. `users`
    says whom jobs run as, by account or tenant; with none they all run as the service does.
    `groups` puts each attempt into a control group of its own where that may be done here. New
    ranks of a job that trains on may take `resize_limit_s`; 0 stops jobs to resize them. `watch`
    counts steps of Python programs that report nothing. `suspender` is the command that moves what
    processes hold on GPUs to host memory and back. Sleeping jobs are woken `wake_alone_s` after a
    service is gone; without `sleep` none sleep. `slot_gb` of memory count for each CPU slot.
    """

    state: Path = field(metadata={"settable": False})
    slots: int = 0
    warm: bool = True
    pin: bool = True
    cpu: bool = False
    name: str = ""
    mps: bool = False
    discipline: str = ""
    preload: str = ""
    groups: bool = True
    resize_limit_s: float = 120.0
    slot_gb: float = 0.0
    wake_alone_s: float = 30.0
    sleep: bool = True
    watch: bool = True
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})
    users: Mapping[str, Identity] = field(default_factory=dict, metadata={"settable": False})
    suspender: tuple[str, ...] = field(default=(), metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES | Wants.USERS
    declares = (("", SUPPORTS),)
    job_objects, batch_works = None, None

    def __post_init__(self) -> None:
        self.state = Path(self.state).absolute()
        check_names(self.pass_env)
        check_users(self.users, self.state)
        name = self.name or socket.gethostname()
        self._machine: Machine = find_machine(name, self.slots, cpu=self.cpu, slot_gb=self.slot_gb)
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._cores = CorePool(tuple(sorted({c for part in self._machine.cores for c in part})))
        self._loop: Listener = Listener(
            self.state, self._queue.put_nowait, self._cores.give, self._do_chores
        )
        self._one_at_a_time = threading.Lock()
        self._gpus = DeviceWatch([gpu.index for gpu in self._machine.gpus])
        self._group = f"weft-{hashlib.sha256(str(self.state).encode()).hexdigest()[:12]}"
        self._site = LocalSite(self.state)
        self._warm: WarmServer | None = None
        self._tokens, self._mps = Coordinators(self.state), Mps(self.state)
        self._suspender = self.suspender or find_suspender(self._machine, self.sharing)
        if self.mps and not self._mps.there:
            log.warning("mps is asked for but not installed; GPUs are shared by time slicing")

    @property
    def supports(self) -> Controls:
        """Shares, tiers and phases by stage tokens and MPS, the host by groups or cores."""
        return SUPPORTS

    @property
    def stops(self) -> frozenset[Rung]:
        """Freezing, and suspending where the device's driver can."""
        if not self.sleep:
            return frozenset()
        return frozenset(SLEEPS if self._suspender else (Rung.FREEZE,))

    @property
    def sharing(self) -> DeviceSharing:
        """How a GPU serves several jobs here: mps where it is asked for and there, else slices."""
        by_mps = self.mps and self._mps.there and bool(self._machine.gpus)
        return "mps" if by_mps else "timeslicing"

    @property
    def sees(self) -> Sees:
        """Steps if jobs are watched, the host always, and GPUs where there are any."""
        steps = Sees.STEPS if self.watch else Sees.NOTHING
        devices = self._machine.gpus or self.slot_gb
        return steps | Sees.HOST | (Sees.DEVICE if devices else Sees.NOTHING)

    def measured(self, job: JobId, attempt: int) -> Measured:
        """What its agent saw lately; the memory of a slot is the host's."""
        measured = super().measured(job, attempt)
        if self._machine.gpus or not self.slot_gb:
            return measured
        return add_host_memory(measured, self.pids(job, attempt).values())

    @property
    def health(self) -> EngineHealth:
        """Whether it still hears of its jobs, and can end them; how its GPUs are."""
        node, seen = self._machine.node, devices_seen(self._gpus.seen)
        return replace(self._loop.health, devices={node.id: self._loop.board.devices(node, seen)})

    async def nodes(self) -> Sequence[Node]:
        """The one machine there is."""
        return [self._machine.node]

    def check(self, job: Job) -> None:
        """Refuse a job without a command, with a workdir that is not here, or too large."""
        check_launch(job, user_of(self.users, job))
        check_host(job, self._machine.node)
        check_image(job)

    @property
    def is_warm(self) -> bool:
        """Whether workers are forked."""
        return self._warm is not None and self._warm.ready

    # ---- life

    async def adopt(self, attempts: Collection[Key]) -> set[Key]:
        """Watch these attempts again, end all others, and begin to listen."""
        self._make_folders(users=bool(self.users))
        groups = await self._loop.run(lambda: find_base(self._group)) if self.groups else None
        self._site = LocalSite(self.state, self._loop.open_bell(), groups)
        if self.warm:
            self._warm = WarmServer(
                short_path(self.state / "warm.sock"),
                self.state / "warm.log",
                [name for name in self.preload.split("/") if name],
                filter_environment(self.pass_env),
            )
        known = await self._loop.run(
            lambda: take_up(self.state, attempts, self._resume, self._end_stranger)
        )
        self._loop.begin()
        return known

    async def close(self) -> None:
        """Stop listening; agents go on."""
        await self._loop.close()
        if self._warm is not None:
            self._warm.close()
        if not self._loop.watched:
            self._tokens.end()
            self._mps.end()
            if self._site.groups is not None:
                remove_group(self._site.groups.path)

    # ---- requests

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Make the attempt's folder if it is not there, and an agent if none has claimed it."""
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        cores = self._cores_for(key, on, host_part(read_asked(job), on, self._machine.node))
        watched = self._loop.watched.get(key) or Watched(job.id, attempt, folder)
        watched.group = group_of(self._site, job.id, attempt)
        try:
            await self._loop.run(lambda: self._begin(watched, job, on, cores))
            self._loop.watched.setdefault(key, watched)
        except OSError as error:
            self._loop.forget(watched)
            what = error.strerror or error
            raise EngineError(f"an agent for {folder} cannot be started: {what}") from error

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """Leave a request for the agent; an attempt that never was has stopped."""
        folder = folder_of(self.state, job, attempt)
        watched = self._loop.watched.get((job, attempt))
        if watched is None and not (folder / SPEC).exists():
            self._queue.put_nowait(Stopped(job, attempt))
            return
        watched = watched or self._loop.watch(job, attempt, folder)
        try:
            over = await self._loop.run(lambda: watched.ask_to_stop(grace_s))
        except (OSError, WireError) as error:
            if isinstance(error, OSError) and error.errno in MACHINE_WIDE:
                raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
            if watched.ending is None:
                self._loop.quarantine(watched, str(error))
            return
        if over and watched.ending is None and not watched.over:
            self._queue.put_nowait(Stopped(job, attempt))
            self._loop.forget(watched)

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Tell the ranks their new batch (0 gives the choice back), turns and part of the host."""
        watched = self._loop.watched.get((job, attempt))
        if watched is None:
            return
        part = host_part(watched.asked, to, self._machine.node)
        cores = self._cores_for((job, attempt), to, part)
        discipline = self.discipline or str(to.sharing.discipline)
        limits = group_limits(self._site, part)

        def write() -> None:
            coordinator = self._need_coordinator(discipline)
            asked = adjustment(to, discipline, coordinator, cores, limits)
            write_whole(watched.folder / ADJUST, asked)
            nudge(watched.folder)

        try:
            await self._loop.run(write)
        except OSError as error:
            if error.errno in MACHINE_WIDE:
                raise EngineError(f"cannot write in {watched.folder}: {error.strerror}") from error
            log.warning("attempt=%s did not get its new settings: %s", watched.folder, error)

    async def resize(self, job: Job, to: Allocation, attempt: int, epoch: int) -> None:
        """Send the agent everything that it would get for an attempt on the new devices."""
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        cores = self._cores_for(key, to, host_part(read_asked(job), to, self._machine.node))

        def write() -> None:
            asked = {"epoch": epoch, "spec": asdict(self._spec_of(job, to, attempt, cores))}
            (folder / ADJUST).unlink(missing_ok=True)  # the new terms are among them
            write_whole(folder / RESIZE, asked)
            nudge(folder)

        try:
            await self._loop.run(write)
        except OSError as error:
            raise EngineError(f"cannot write in {folder}: {error.strerror}") from error

    def pids(self, job: JobId, attempt: int) -> Mapping[int, int]:
        """Each rank's process, once its start was reported."""
        watched = self._loop.watched.get((job, attempt))
        return watched.pids if watched else {}

    @property
    def sessions(self) -> LocalSessions:
        """Terminals and ports of attempts here."""
        return LocalSessions(self.state, self.pids)

    # ---- parts

    def _resume(self, key: Key) -> bool:
        """Watch an attempt from before a restart; False if it never was prepared."""
        folder = folder_of(self.state, *key)
        if not (folder / SPEC).exists():
            return False
        watched = self._loop.watch(*key, folder)
        watched.log.again = True
        try:
            end_probes(folder)
            self._recall(watched)
        except (OSError, WireError) as error:
            watched.trouble = str(error)  # it is put in quarantine when it is looked at
        return True

    def _end_stranger(self, folder: Path) -> bool:
        groups = self._site.groups
        return self._loop.end_stranger(folder, None if groups is None else groups.path)

    def _recall(self, watched: Watched) -> None:
        """What an attempt has of this machine, from its files."""
        recalled = recall(watched.folder, self._group)
        self._need_coordinator(recalled.discipline)
        watched.asked = Asked(recalled.spec.asked_cpus, recalled.spec.mem_gb)
        self._cores.note((watched.job, watched.attempt), recalled.cores, recalled.spec.cpus)
        watched.group = recalled.group

    def _cores_for(self, key: Key, on: Allocation, part: HostPart) -> RankCores:
        return self._cores.take_for(key, on, part, self._machine.cores) if self.pin else ()

    def _begin(self, watched: Watched, job: Job, on: Allocation, cores: RankCores) -> None:
        """Folder and agent of an attempt; a second time changes nothing."""
        folder = watched.folder
        watched.asked = read_asked(job)
        if not (folder / SPEC).exists():
            self._prepare(folder, self._spec_of(job, on, watched.attempt, cores))
        if (folder / CLAIM).exists():
            return
        watched.spawned = time.monotonic()
        if self._warm is not None and self._warm.fork(folder):
            return
        command = ["weft.node.agent", str(folder)]
        try:
            watched.pid = spawn(command, folder / AGENT_LOG, filter_environment(self.pass_env))
        except OSError:
            if watched.revoke():
                raise
            # The warm server forked one after all.

    def _spec_of(self, job: Job, on: Allocation, attempt: int, cores: RankCores) -> AttemptSpec:
        discipline = self.discipline or str(on.sharing.discipline)
        by_mps = self.sharing == "mps"
        spec = attempt_spec(
            job,
            on,
            attempt,
            self._machine,
            self._site,
            discipline=discipline,
            coordinator=self._need_coordinator(discipline),
            env=self._mps.env_of(self._machine, on) if by_mps else {},
            user=user_of(self.users, job),
            cores=cores,
            means=means_of(self._site, self._machine, pin=self.pin, mps=by_mps),
            resize_limit_s=self.resize_limit_s,
            suspender=self._suspender,
        )
        return replace(spec, watch=spec.watch and self.watch)

    def _prepare(self, folder: Path, spec: AttemptSpec) -> None:
        if spec.user is None:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(folder, self.state, JobId(spec.job), Path(spec.checkpoints), spec.user)
        mark_of(self.state, folder).touch()
        spec.write(folder)

    def _need_coordinator(self, discipline: str) -> str:
        if discipline in ("", "none"):
            return ""
        with self._one_at_a_time:
            return self._tokens.socket(discipline)

    def _do_chores(self) -> None:
        with self._one_at_a_time:
            self._tokens.look()
            if self._warm is not None:
                self._warm.look()
        self._gpus.look()
