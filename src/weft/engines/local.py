"""Processes on this machine.

Every attempt has a folder below `state` and an agent (`weft.node.agent`) that outlives this
process; the engine only reads what agents write and leaves requests for them. Nothing it knows
is lost when it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.about import Controls, Wants
from weft.core.cluster import Node
from weft.core.errors import EngineError
from weft.core.events import Event, Stopped
from weft.core.model import Allocation, Job, JobId
from weft.core.ports import DeviceSharing, EngineHealth
from weft.engines.coordinators import Coordinators
from weft.engines.devices import Machine, find_gpus, this_machine
from weft.engines.job_environment import allowed_environment, check_names
from weft.engines.mps import Mps
from weft.engines.request import Site, adjustment, attempt_spec, check_launch
from weft.engines.spawn import reaped, spawn
from weft.engines.users import check_users, let_through, make_folder, user_of
from weft.engines.warm_server import WarmServer
from weft.engines.watch import Watched
from weft.wire.attempt import (
    ADJUST,
    AGENT_LOG,
    CLAIM,
    SPEC,
    AttemptSpec,
    folder_of,
    read_json,
    short_path,
    write_whole,
)
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

POLL_S = 0.5  # agents poke; this is for those whose poke was lost
SHORTEST_PAUSE_S = 0.005
LOOK_S = 1.0  # between two looks after coordinators
SUPPORTS = (
    Controls.SHARE
    | Controls.TIER
    | Controls.PHASE
    | Controls.BATCH
    | Controls.HOST
    | Controls.COUNT
)


@dataclass
class LocalEngine:
    """Processes on this machine: its GPUs, or CPU slots where there are none.

    `slots` 0 means one for each core. `warm` keeps a process that has torch imported and forks
    workers. `pin` binds ranks to their devices' part of the cores. `cpu` ignores GPUs. `mps`
    runs jobs as clients of NVIDIA's daemon where it is installed. Jobs use the stage tokens of
    the discipline they are promised with; `discipline` gives one to all. `preload` names what
    warm workers import, joined by `/`, instead of torch. `pass_env` names variables of the
    service's environment that jobs get beside those on the list of `job_environment`. `users`
    says whom jobs run as, by account or tenant; with none they all run as the service does.
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
    pass_env: tuple[str, ...] = field(default=(), metadata={"settable": False})
    users: Mapping[str, Identity] = field(default_factory=dict, metadata={"settable": False})

    wants = Wants.STATE | Wants.SLOTS | Wants.VARIABLES | Wants.USERS

    def __post_init__(self) -> None:
        self.state = Path(self.state).absolute()
        check_names(self.pass_env)
        check_users(self.users, self.state)
        gpus = () if self.cpu else find_gpus()
        self._machine: Machine = this_machine(self.name or socket.gethostname(), self.slots, gpus)
        self._watched: dict[tuple[JobId, int], Watched] = {}
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._poke = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: list[int] = []
        self._bell: socket.socket | None = None
        self._site = Site(self.state, pin=self.pin)
        self._warm: WarmServer | None = None
        self._tokens = Coordinators(self.state)
        self._mps = Mps()
        self._looked = 0.0
        if self.mps and not self._mps.there:
            log.warning("mps is asked for but not installed; GPUs are shared by time slicing")

    # ---- what it is

    @property
    def supports(self) -> Controls:
        """Shares, tiers and phases by stage tokens and MPS, the host by groups or cores."""
        return SUPPORTS

    @property
    def speed(self) -> float:
        """Real time."""
        return 1.0

    @property
    def real(self) -> bool:
        """Jobs are processes."""
        return True

    @property
    def sharing(self) -> DeviceSharing:
        """How a GPU serves several jobs here: mps where it is asked for and there, else slices."""
        by_mps = self.mps and self._mps.there and bool(self._machine.gpus)
        return "mps" if by_mps else "timeslicing"

    @property
    def health(self) -> EngineHealth:
        """Whether it still hears of its jobs."""
        return EngineHealth()

    async def nodes(self) -> Sequence[Node]:
        """The one machine there is."""
        return [self._machine.node]

    def check(self, job: Job) -> None:
        """Refuse a job without a command or with a workdir that is not here."""
        check_launch(job, user_of(self.users, job))

    @property
    def is_warm(self) -> bool:
        """Whether workers are forked rather than started."""
        return self._warm is not None and self._warm.ready

    # ---- life

    async def adopt(self, attempts: Collection[tuple[JobId, int]]) -> set[tuple[JobId, int]]:
        """Watch these attempts again, end all others, and begin to listen."""
        (self.state / "jobs").mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.state / "live").mkdir(mode=0o700, exist_ok=True)
        if self.users:
            let_through(self.state)
        self._site = Site(self.state, self._open_bell(), self.pin)
        if self.warm:
            self._warm = WarmServer(
                short_path(self.state / "warm.sock"),
                self.state / "warm.log",
                [name for name in self.preload.split("/") if name],
                allowed_environment(self.pass_env),
            )
        known = set()
        for job, attempt in attempts:
            folder = folder_of(self.state, job, attempt)
            if (folder / SPEC).exists():
                known.add((job, attempt))
                since = read_json(folder / ADJUST) or {}
                started = AttemptSpec.read(folder / SPEC).discipline
                self._need_coordinator(since.get("discipline", started))
                self._watch(job, attempt, folder).again = True
        for folder in self._live():
            if folder not in {one.folder for one in self._watched.values()}:
                log.warning("attempt=%s is nobody's; ending it", folder)
                Watched(JobId("?"), 0, folder).ask_to_stop(0.0)
                self._mark(folder).unlink(missing_ok=True)
        self._tasks = [asyncio.create_task(self._pump())]
        return known

    async def close(self) -> None:
        """Stop listening; agents go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._warm is not None:
            self._warm.close()
        if not self._watched:
            self._tokens.end()
            self._mps.end()
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            self._bell.close()

    # ---- requests

    async def start(self, job: Job, on: Allocation, attempt: int) -> None:
        """Make the attempt's folder if it is not there, and an agent if none has claimed it."""
        folder = folder_of(self.state, job.id, attempt)
        if not (folder / SPEC).exists():
            try:
                await asyncio.to_thread(self._prepare, folder, job, on, attempt)
            except OSError as error:
                raise EngineError(f"cannot write {folder}: {error.strerror}") from error
        watched = self._watch(job.id, attempt, folder)
        if not (folder / CLAIM).exists():
            self._spawn(watched)

    async def stop(self, job: JobId, attempt: int, grace_s: float) -> None:
        """Leave a request for the agent; an attempt that never was has stopped."""
        folder = folder_of(self.state, job, attempt)
        if not (folder / SPEC).exists():
            self._queue.put_nowait(Stopped(job, attempt))
            return
        watched = self._watch(job, attempt, folder)
        try:
            over = watched.ask_to_stop(grace_s)
        except OSError as error:
            raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
        if over:
            self._queue.put_nowait(Stopped(job, attempt))
            self._forget(watched)
        else:
            nudge(folder)

    async def adjust(self, job: JobId, attempt: int, to: Allocation) -> None:
        """Tell the ranks their new batch (0 gives the choice back) and whom to take turns with."""
        folder = folder_of(self.state, job, attempt)
        if (folder / SPEC).exists():
            discipline = self.discipline or str(to.sharing.discipline)
            try:
                asked = adjustment(to, discipline, self._need_coordinator(discipline))
                write_whole(folder / ADJUST, asked)
            except OSError as error:
                raise EngineError(f"cannot write in {folder}: {error.strerror}") from error
            nudge(folder)

    def hold(self, job: JobId, attempt: int, *, still: bool) -> None:
        """Make a started attempt stand still where it is, or go on; what it holds it keeps."""
        watched = self._watched.get((job, attempt))
        if watched is not None:
            watched.hold(still=still)

    async def events(self) -> AsyncIterator[Event]:
        """News of all attempts, as agents write it."""
        while True:
            yield await self._queue.get()

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:
        """Each rank's file; what was too much for one is in the same name with `.1`."""
        folder = folder_of(self.state, job, attempt)
        found = {int(path.stem.removeprefix("rank-")): path for path in folder.glob("rank-*.log")}
        return dict(sorted(found.items()))

    # ---- parts

    def _prepare(self, folder: Path, job: Job, on: Allocation, attempt: int) -> None:
        discipline = self.discipline or str(on.sharing.discipline)
        spec = attempt_spec(
            job,
            on,
            attempt,
            self._machine,
            self._site,
            discipline=discipline,
            coordinator=self._need_coordinator(discipline),
            env=self._mps.env() if self.mps and self._machine.gpus else {},
            user=user_of(self.users, job),
        )
        if spec.user is None:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(folder, self.state, job.id, Path(spec.checkpoints), spec.user)
        self._mark(folder).touch()
        spec.write(folder)

    def _need_coordinator(self, discipline: str) -> str:
        return "" if discipline in ("", "none") else self._tokens.socket(discipline)

    def _spawn(self, watched: Watched) -> None:
        watched.spawned = time.monotonic()
        if self._warm is not None and self._warm.fork(watched.folder):
            return
        command = ["weft.node.agent", str(watched.folder)]
        env = allowed_environment(self.pass_env)
        watched.pid = spawn(command, watched.folder / AGENT_LOG, env)

    def _watch(self, job: JobId, attempt: int, folder: Path) -> Watched:
        key = (job, attempt)
        if key not in self._watched:
            self._watched[key] = Watched(job, attempt, folder, spawned=time.monotonic())
        return self._watched[key]

    def _forget(self, watched: Watched) -> None:
        if watched.pid is not None:
            self._leaving.append(watched.pid)
        self._watched.pop((watched.job, watched.attempt), None)
        self._mark(watched.folder).unlink(missing_ok=True)

    def _mark(self, folder: Path) -> Path:
        """A file that is there while an attempt may run, so that a start need not look at all."""
        return self.state / "live" / f"{folder.parent.name}@{folder.name}"

    def _live(self) -> list[Path]:
        names = [path.name.rpartition("@") for path in (self.state / "live").iterdir()]
        return [self.state / "jobs" / job / attempt for job, _, attempt in names]

    # ---- listening

    def _open_bell(self) -> str:
        path = short_path(self.state / "engine.sock")
        Path(path).unlink(missing_ok=True)
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._bell.setblocking(False)
        self._bell.bind(path)
        asyncio.get_running_loop().add_reader(self._bell, self._poked, self._bell)
        return path

    def _poked(self, bell: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while bell.recv(64):
                pass
        self._poke.set()

    async def _pump(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):  # wait_for may swallow a cancellation
                    await self._poke.wait()
            self._poke.clear()
            for watched in [*self._watched.values()]:
                with told_if_full():
                    for event in watched.news():
                        self._queue.put_nowait(event)
                if watched.over:
                    self._forget(watched)
            if time.monotonic() - self._looked > LOOK_S:
                self._looked = time.monotonic()
                with told_if_full():
                    self._tokens.look()
                    if self._warm is not None:
                        self._warm.look()
            self._leaving = [pid for pid in self._leaving if not reaped(pid)]
            await asyncio.sleep(SHORTEST_PAUSE_S)


@contextlib.contextmanager
def told_if_full() -> Iterator[None]:
    """A full disk must not make the engine deaf: what could not be done is tried again."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("cannot write in the state folder, trying again: %s", error)


def nudge(folder: Path) -> None:
    """Make an agent look for requests at once; it would within half a second anyway."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(0.2)
        line.connect(short_path(folder / "agent.sock"))
