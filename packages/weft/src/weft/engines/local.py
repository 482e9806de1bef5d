"""Processes on this machine.

Every attempt has a folder below `state` and an agent (`weft.node.agent`) that outlives this
process; the engine only reads what agents write and leaves requests for them. Nothing it knows
is lost when it dies. It is the engine of a fleet of one node, whose manager starts processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from weft.base.errors import WireError
from weft.core.errors import EngineError
from weft.core.knowledge.measured import MeasuredAttempt, Sees
from weft.core.knowledge.programs import is_guarded
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, MemoryPlace
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import DeviceSharing, EngineHealth
from weft.core.stops import SLEEPS, Rung
from weft.engines.attempts.asleep import SUSPEND_S, find_suspender
from weft.engines.attempts.health_board import devices_seen
from weft.engines.attempts.job_folders import mark_of, never_began, read_attempt
from weft.engines.attempts.own_processes import Coordinators, MemoryBook, WarmServer
from weft.engines.attempts.request import (
    LocalSite,
    adjustment,
    attempt_spec,
    check_launch,
    group_limits,
    group_of,
    means_of,
)
from weft.engines.attempts.rounds import MACHINE_WIDE, Chore
from weft.engines.attempts.watch import wake_agent
from weft.engines.fleet.attempts import RunningAttempt
from weft.engines.fleet.engine import FleetEngine
from weft.engines.fleet.gang import GangWatch
from weft.engines.fleet.port import Abilities, AttemptPart, Gang, Key
from weft.engines.fleet.requests import gang_alone
from weft.engines.fleet.roster import Roster
from weft.engines.machine.containers import check_image
from weft.engines.machine.cores import CorePool, RankCores
from weft.engines.machine.devices import LocalMachine, find_machine
from weft.engines.machine.host_part import (
    INFO,
    NOTHING_ASKED,
    HostPart,
    HostRequest,
    check_host,
    host_part,
    read_asked,
)
from weft.engines.machine.job_environment import check_names, filter_environment
from weft.engines.machine.local_manager import LocalManager
from weft.engines.machine.measuring import add_host_memory, add_wait
from weft.engines.machine.mps import (
    PIPES,
    Mps,
    WhyApart,
    may_be_client,
    note_clients,
    nothing_against,
)
from weft.engines.machine.users import check_users, make_folder, may_walk_to, user_of
from weft.wire.attempt import ADJUST, SPEC, AttemptSpec, folder_of, short_path, write_whole
from weft.wire.cgroups import find_base, remove_group
from weft.wire.gpu_health import DeviceWatch
from weft.wire.identity import Identity
from weft.wire.memory_waits import VARIABLE, add_guard, find_library, write_order

log = logging.getLogger(__name__)

SHARES = Controls.SHARE | Controls.TIER | Controls.PHASE | Controls.SHIFT
SUPPORTS = ~Controls.NOTHING  # all that there is
CHORES_S = 1.0


@dataclass
class LocalEngine(FleetEngine):
    """Processes on this machine: its GPUs, or CPU slots where there are none.

    `slots` 0 means one for each core. `warm` keeps a process that has torch imported and forks
    workers. `pin` binds ranks to their devices' part of the cores. `cpu` ignores GPUs. `mps`
    runs jobs of one GPU as clients of NVIDIA's daemon where it is installed: all of them, or those
    that `why_apart` has no reason against (`auto`). Jobs use the stage tokens of
    the discipline they are promised with; `discipline` gives one to all. `preload` names what
    warm workers import, joined by `/`, instead of torch. `pass_env` names variables of the
    service's environment that jobs get beside those on the list of `job_environment`. `users`
    says whom jobs run as, by account or tenant; with none they all run as the service does.
    `groups` puts each attempt into a control group of its own where that may be done here. New
    ranks of a job that trains on may take `resize_limit_s`; 0 stops jobs to resize them. `watch`
    counts steps of Python programs that report nothing. With `memory_waits` an allocation of GPU
    memory that does not fit waits instead of failing, where the library for that was compiled and
    a job is in no container. `suspender` is the command that moves what
    processes hold on GPUs to host memory and back. Sleeping jobs are woken `wake_alone_s` after a
    service is gone; without `sleep` none sleep. `slot_gb` of memory count for each CPU slot.
    """

    state: Path = field(metadata={"settable": False})
    slots: int = 0
    warm: bool = True
    pin: bool = True
    cpu: bool = False
    name: str = ""
    mps: Literal["auto", "true", "false"] = "auto"
    discipline: str = ""
    preload: str = ""
    groups: bool = True
    resize_limit_s: float = 120.0
    slot_gb: float = 0.0
    wake_alone_s: float = 30.0
    sleep: bool = True
    watch: bool = True
    memory_waits: bool = True
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})
    users: Mapping[str, Identity] = field(default_factory=dict, metadata={"settable": False})
    suspender: tuple[str, ...] = field(default=(), metadata={"settable": False})
    why_apart: WhyApart = field(default=nothing_against, metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES | Wants.USERS | Wants.CLIENTS
    declares = (("", SUPPORTS),)
    job_objects, batch_works = None, None

    _wake_s = SUSPEND_S

    def __post_init__(self) -> None:
        check_names(self.pass_env)
        check_users(self.users, Path(self.state).absolute())
        name = self.name or socket.gethostname()
        self._machine: LocalMachine = find_machine(
            name, self.slots, cpu=self.cpu, slot_gb=self.slot_gb
        )
        self._mps = Mps(Path(self.state).absolute())
        self._has_mps = self.mps != "false" and self._mps.there and bool(self._machine.gpus)
        self._clients: dict[Key, tuple[tuple[int, ...], bool]] = {}  # devices, and whether it is
        self._here = LocalManager(
            Path(self.state).absolute(),
            self._machine.node,
            Abilities(SUPPORTS, True, sharing=self.sharing, sleeps=True, frees="device", near=True),
            lambda: filter_environment(self.pass_env),
            self._find_ranks,
        )
        super().__init__(self._here, self.state, "this machine", users=self.users)
        self._own_cores = CorePool(tuple(sorted({c for at in self._machine.cores for c in at})))
        self._changes.limit_s, self._changes.describe = self.resize_limit_s, self._describe
        self._asks: dict[Key, HostRequest] = {}
        self._one_at_a_time = threading.Lock()
        self._gpus = DeviceWatch([gpu.index for gpu in self._machine.gpus])
        self._group = f"weft-{hashlib.sha256(str(self.state).encode()).hexdigest()[:12]}"
        self._place = LocalSite(self.state)
        self._tokens = Coordinators(self.state)
        self._book = MemoryBook(Path(self.state).absolute())
        guarded = self.memory_waits and bool(self._machine.gpus)
        self._guard = find_library() if guarded else None
        all_clients = self._has_mps and self.mps == "true"
        self._suspender = self.suspender or (() if all_clients else find_suspender(self._machine))
        if self.mps == "true" and not self._mps.there:
            log.warning("mps is asked for but not installed; GPUs are shared by time slicing")

    @property
    def stops(self) -> frozenset[Rung]:
        """Freezing, and suspending where the device's driver can."""
        if not self.sleep:
            return frozenset()
        return frozenset(SLEEPS if self._suspender else (Rung.FREEZE,))

    @property
    def sharing(self) -> DeviceSharing:
        """The sharing of a GPU here: mps where jobs are its clients, else slices."""
        return "mps" if self._has_mps else "timeslicing"

    @property
    def sees(self) -> Sees:
        """Steps if jobs are watched, the host always, and GPUs where there are any."""
        steps = Sees.STEPS if self.watch else Sees.NOTHING
        if self._guard is not None:
            steps |= Sees.WAITS
        devices = self._machine.gpus or self.slot_gb
        return steps | Sees.HOST | (Sees.DEVICE if devices else Sees.NOTHING)

    def measured(self, job: JobId, attempt: int) -> MeasuredAttempt:
        """Measurements of its agent; the memory of a slot is the host's."""
        measured = super().measured(job, attempt)
        if self._guard is not None:
            return add_wait(measured, self.state, job, attempt)
        if self._machine.gpus or not self.slot_gb:
            return measured
        return add_host_memory(measured, self.pids(job, attempt).values())

    @property
    def health(self) -> EngineHealth:
        """Contact with its jobs, the power to end them, and the health of its GPUs."""
        node, seen = self._machine.node, devices_seen(self._gpus.seen)
        seen = [note_clients(device, self._clients.values()) for device in seen]
        health = replace(self._loop.health, devices={node.id: self._loop.board.devices(node, seen)})
        if not self._here.troubles:
            return health
        reasons = "; ".join(filter(None, (health.reason, *self._here.troubles.values())))
        return replace(health, ok=False, reason=reasons)

    async def nodes(self) -> Sequence[Node]:
        return [self._machine.node]

    def check(self, job: Job) -> None:
        """Refuse a job without a command, with a workdir that is not here, or too large."""
        check_launch(job, user_of(self.users, job))
        check_host(job, self._machine.node)
        check_image(job)

    @property
    def is_warm(self) -> bool:
        """True if workers are forked."""
        return self._here.warm is not None and self._here.warm.ready

    # ---- life

    async def adopt(self, attempts: Collection[Key]) -> set[Key]:
        """Watch these attempts again, end all others, and begin to listen."""
        await self._open()
        groups = await self._loop.run(lambda: find_base(self._group)) if self.groups else None
        self._place = LocalSite(self.state, self._here.open_bell(self._loop.read_soon), groups)
        preloaded = {} if self._guard is None else {VARIABLE: str(self._guard)}
        if self._guard is not None:
            await self._loop.run(self._book.ensure)
        if self.warm:
            self._here.warm = WarmServer(
                short_path(self.state / "warm.sock"),
                self.state / "warm.log",
                [name for name in self.preload.split("/") if name],
                {**filter_environment(self.pass_env), **preloaded},
            )
        return await super().adopt(attempts)

    async def _open(self) -> None:
        self._make_folders(users=bool(self.users))
        self._loop.note_machines(await self._here.nodes(), tell=False)
        self._opened = True

    async def close(self) -> None:
        await super().close()
        if not self._loop.watched:
            self._tokens.end()
            self._book.end()
            self._mps.end()
            if self._place.groups is not None:
                remove_group(self._place.groups.path)

    def _chores(self) -> Mapping[str, Chore]:
        return {"look after its helpers": self._do_chores}

    async def _do_chores(self) -> None:
        await asyncio.sleep(CHORES_S)
        await self._loop.run(self._look_after_helpers)

    def _look_after_helpers(self) -> None:
        with self._one_at_a_time:
            self._tokens.restart_dead()
            if self._guard is not None:
                self._book.ensure()
            if self._here.warm is not None:
                self._here.warm.restart_if_dead()
        self._gpus.poll()

    # ---- attempts from before a restart

    def _resume(self, key: Key) -> bool:
        folder = folder_of(self.state, *key)
        if not (folder / SPEC).exists():
            return False
        try:
            gang = gang_alone(folder)
        except (OSError, WireError) as error:
            self._watch(self._gang_of(key, folder), again=True).watch.give_up(str(error))
            return True
        self._watch(gang, again=True)
        self._take_up_sleeper(gang)
        return True

    def _end_stranger(self, folder: Path) -> bool:
        """End an attempt that is marked as running that no job owns; False if it never began."""
        groups = self._place.groups
        group = groups.path / f"{folder.parent.name}@{folder.name}" if groups else None
        if never_began(folder, group):
            return False
        key = (JobId(f"{folder.parent.name}?"), int(folder.name))
        run = self._watch(self._gang_of(key, folder))
        self._here.agent_of(run.watch.gang).group = group
        self._end_run(run)
        return True

    def _gang_of(self, key: Key, folder: Path) -> Gang:
        """Return a bare description for an attempt whose own is spoilt, or does not matter."""
        part = AttemptPart(self._machine.node.id, (), 0.0, 0.0, folder)
        return Gang(*key, str(key[0]), "", (part,))

    def _make_watch(
        self, gang: Gang, *, again: bool = False, roster: Roster | None = None
    ) -> GangWatch:
        agent = self._here.agent_of(gang)
        return GangWatch(gang, again=again, roster=roster, agent=agent)

    def _recall(self, run: RunningAttempt) -> None:
        """Take down what an attempt has of this machine, from its files."""
        agent = self._here.agent_of(run.watch.gang)
        try:
            recalled = read_attempt(agent.folder, self._group)
            self._need_coordinator(recalled.discipline)
        except (OSError, WireError) as error:
            run.watch.give_up(str(error))
            return
        self._asks[run.key] = HostRequest(recalled.spec.asked_cpus, recalled.spec.mem_gb)
        self._own_cores.set_cores(run.key, recalled.cores, recalled.spec.cpus)
        self._clients[run.key] = recalled.spec.devices, PIPES in recalled.spec.env
        agent.group = recalled.group

    def _leave(self, key: Key) -> None:
        self._own_cores.give(key)
        self._asks.pop(key, None)
        self._clients.pop(key, None)
        self._here.see_off_agent(key)

    def _find_ranks(self, key: Key) -> list[tuple[int, int]]:
        run = self._loop.watched.get(key)
        return [] if run is None else [*run.watch.parts[0].ranks.values()]

    # ---- requests

    async def _prepare(self, job: Job, on: Allocation, attempt: int) -> Gang:
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        cores = self._cores_for(key, on, host_part(read_asked(job), on, self._machine.node))
        self._asks[key] = read_asked(job)
        try:
            await self._loop.run(lambda: self._write(folder, job, on, attempt, cores))
        except OSError as error:
            self._leave(key)
            what = error.strerror or error
            raise EngineError(f"an agent for {folder} cannot be started: {what}") from error
        gang = await self._loop.run(lambda: gang_alone(folder))
        self._here.agent_of(gang).group = group_of(self._place, job.id, attempt)
        return gang

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Tell the ranks their new batch (0 gives the choice back), turns and part of the host."""
        key, folder = (job, attempt), folder_of(self.state, job, attempt)
        if key not in self._loop.watched:
            return
        part = host_part(self._asks.get(key, NOTHING_ASKED), to, self._machine.node)
        cores = self._cores_for(key, to, part)
        discipline = self.discipline or str(to.sharing.discipline)
        limits = group_limits(self._place, part)

        def write() -> None:
            coordinator = self._need_coordinator(discipline)
            write_whole(folder / ADJUST, adjustment(to, discipline, coordinator, cores, limits))
            wake_agent(folder)

        try:
            await self._loop.run(write)
        except OSError as error:
            if error.errno in MACHINE_WIDE:
                raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
            log.warning("attempt=%s did not get its new settings: %s", folder, error)

    async def order_memory(self, order: Mapping[JobId, MemoryPlace]) -> None:
        """Leave it for the book of this machine's devices."""
        if self._guard is None:
            return
        named = {str(job): at for job, at in order.items()}
        try:
            await self._loop.run(lambda: write_order(self.state, named))
        except OSError as error:
            raise EngineError(f"cannot write in {self.state}: {error.strerror}") from error

    def _describe(self, job: Job, to: Allocation, attempt: int) -> AttemptSpec:
        """The description of an attempt for its agent on other devices, its new terms among it."""
        key, folder = (job.id, attempt), folder_of(self.state, job.id, attempt)
        cores = self._cores_for(key, to, host_part(read_asked(job), to, self._machine.node))
        (folder / ADJUST).unlink(missing_ok=True)
        return self._spec_of(job, to, attempt, cores)

    # ---- parts

    def _cores_for(self, key: Key, on: Allocation, part: HostPart) -> RankCores:
        return self._own_cores.take_for(key, on, part, self._machine.cores) if self.pin else ()

    def _write(
        self, folder: Path, job: Job, on: Allocation, attempt: int, cores: RankCores
    ) -> None:
        """The folder of an attempt, with what its agent needs to begin."""
        if (folder / SPEC).exists():
            return
        spec = self._spec_of(job, on, attempt, cores)
        if spec.user is None:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(folder, self.state, JobId(spec.job), Path(spec.checkpoints), spec.user)
        mark_of(self.state, folder).touch()
        spec.write(folder)

    def _spec_of(self, job: Job, on: Allocation, attempt: int, cores: RankCores) -> AttemptSpec:
        discipline = self.discipline or str(on.sharing.discipline)
        user = user_of(self.users, job)
        client, why_apart = self._join_mps(job, on, user)
        guard = self._guard if is_guarded(job) and self._may_load(user) else None
        spec = attempt_spec(
            job,
            on,
            attempt,
            self._machine,
            self._place,
            discipline=discipline,
            coordinator=self._need_coordinator(discipline),
            env=client,
            user=user,
            cores=cores,
            means=means_of(
                self._place, self._machine, pin=self.pin, mps=bool(client), waits=guard is not None
            ),
            resize_limit_s=self.resize_limit_s,
            suspender=() if client else self._suspender,
        )
        self._clients[job.id, attempt] = spec.devices, bool(client)
        if why_apart:
            notice = f"it shares its GPU by time slices, not by MPS: {why_apart}"
            spec = replace(spec, notices=(*spec.notices, (INFO, notice)))
        if guard is not None:
            env = add_guard(guard, self._book.path, job.priority, spec.env)
            spec = replace(spec, env=env)
        return replace(spec, run=replace(spec.run, watch=spec.run.watch and self.watch))

    def _join_mps(
        self, job: Job, on: Allocation, user: Identity | None
    ) -> tuple[dict[str, str], str]:
        """Variables that make an attempt a client of MPS; else none, and why, if it can tell."""
        if not self._has_mps or not may_be_client(job, on, user):
            return {}, ""
        by_choice = self.mps == "auto"
        if by_choice and (not job.shareable or (why := self.why_apart(job, self._machine.node))):
            return {}, why if job.shareable else ""
        try:
            return self._mps.env_of(self._machine, on), ""
        except EngineError as error:
            if not by_choice:
                raise
            self._has_mps = False
            log.warning("GPUs are shared by time slicing: %s", error)
            return {}, ""

    def _may_load(self, user: Identity | None) -> bool:
        """True if a job's user can read the library that its memory waits by."""
        return self._guard is not None and may_walk_to(self._guard, user)

    def _need_coordinator(self, discipline: str) -> str:
        if discipline in ("", "none"):
            return ""
        with self._one_at_a_time:
            return self._tokens.socket(discipline)
