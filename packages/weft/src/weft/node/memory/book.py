"""The book of each device's memory: what processes hold and wait for, and which tries next.

Pure: it is given the time, and answers with lines for members and jobs that have to give way. The
driver has the last word on whether an allocation fits, so that memory that the book does not know
about does no harm: the book only decides who tries next, one at a time on each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from weft.frozen import frozen

TRY_EVERY_S = 0.03  # after a change: a process that ends gives its memory back a moment later
LATER_S = 0.15  # and from then on, for memory that the book does not see
LATELY_S = 2.0
STUCK_S = 1.0  # in which a member answers that it tried
PATIENCE_S = 10.0  # of the first that waits: later ones pass it only until then
LATE_S = 30.0  # of waiting: then it goes before whatever order there is
LONELY_S = 30.0  # of one beside which nothing is known to hold memory
RESERVE = 64  # a part of a device that is left to contexts and code, which do not wait
TRIES = 10  # of one that seems to fit: then the driver knows better
ALIVE_S = 10.0  # between two lines to a member that waits

Key = int
Job = tuple[str, int]  # with its attempt


@frozen
class MemoryLine:
    """A line for a member."""

    to: Key
    text: str


@frozen
class GiveWay:
    """Every job on a device waits: this one gives its memory to the others for a while."""

    job: Job


@frozen
class GoOn:
    """A job that gave way has enough memory now."""

    job: Job


Out = list[MemoryLine | GiveWay | GoOn]
Rank = tuple[bool, bool, tuple[float, ...], float, Key]


@dataclass(slots=True)
class HoldingProcess:
    """A process that holds memory, in bytes by device."""

    job: Job
    pid: int
    since: float
    held: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Wait:
    """A request that waits; `tried_at` is set while the member tries.

    One that `begins` is of a process that has no context yet; one that is `late` has waited so
    long that it goes before the others.
    """

    key: Key
    job: Job
    pid: int
    device: str
    size: int
    priority: float
    since: float
    tried_at: float | None = None
    said_at: float = 0.0
    tries: int = 0
    begins: bool = False
    late: bool = False


@dataclass(slots=True)
class DeviceMemory:
    """The free memory of a device, as last seen by a member, less what was taken since.

    `fresh` says that the driver refused someone since anything changed. `away` are jobs that gave
    way, and since when.
    """

    free: int = 0
    total: int = 0
    fresh: bool = False
    changed_at: float = 0.0
    next_at: float = 0.0
    away: dict[Job, float] = field(default_factory=dict)


class Book:
    """All devices of a machine; `may_suspend` says whether a job can give way and go on later.

    `order` is the policy's, by job: the lowest numbers get first what becomes free.
    """

    def __init__(self, may_suspend: Callable[[Job], bool] = lambda job: False) -> None:  # noqa: ARG005
        self._may_suspend = may_suspend
        self.processes: dict[Key, HoldingProcess] = {}
        self.waits: dict[Key, Wait] = {}
        self.devices: dict[str, DeviceMemory] = {}
        self.order: Mapping[str, tuple[float, ...]] = {}

    # ---- words of members

    def add_process(self, now: float, key: Key, job: Job, pid: int) -> Out:
        """A process that uses a device."""
        self.processes[key] = HoldingProcess(job, pid, now)
        return [MemoryLine(key, f"ask {device}") for device in sorted(self._waited_for())]

    def hold(self, now: float, key: Key, device: str, size: int) -> Out:
        own, book = self.processes[key], self._device(device)
        book.free = max(book.free - size + own.held.get(device, 0), 0)
        own.held[device] = size
        return self._changed(now, device)

    def request_memory(self, now: float, key: Key, wait: Wait, free: int, total: int) -> Out:
        """A process waits for memory that its device has not."""
        first = wait.device not in self._waited_for()
        book = self._device(wait.device)
        book.free, book.total = free, total
        self.waits[key] = wait
        asks = self._say_all(f"ask {wait.device}") if first else []
        return asks + self._changed(now, wait.device)

    def record_try(self, now: float, key: Key, *, got: bool, free: int) -> Out:
        """A process tried."""
        wait = self.waits[key]
        wait.tried_at, book = None, self._device(wait.device)
        book.free = free
        if not got:
            before, book.fresh = book.fresh, True
            lately = now - book.changed_at < LATELY_S
            book.next_at = now + (TRY_EVERY_S if lately else LATER_S)
            return [] if before else self._break_up(now, wait.device)
        del self.waits[key]
        return self._let_go(wait.device) + self._changed(now, wait.device)

    def drop_member(self, now: float, key: Key) -> Out:
        """A member is gone, and what it held with it."""
        wait, own = self.waits.pop(key, None), self.processes.pop(key, None)
        out = [] if wait is None else self._let_go(wait.device) + self._changed(now, wait.device)
        for device, size in own.held.items() if own is not None else ():
            self._device(device).free += size
            out += self._changed(now, device)
        return out

    def forget_leaving(self, job: Job) -> None:
        """A job that was to give way could not, or is there again."""
        for book in self.devices.values():
            book.away.pop(job, None)

    def tick(self, now: float) -> Out:
        """Serve every device whose memory a job waits for."""
        out: Out = []
        for wait in self.waits.values():
            wait.late = now - wait.since >= LATE_S
        for device in sorted(self._waited_for() | self._left()):
            if now >= self._device(device).next_at:
                out += self._serve(now, device)
        for wait in self.waits.values():
            if now - wait.said_at >= ALIVE_S:
                wait.said_at = now
                out.append(MemoryLine(wait.key, "wait"))
        return out

    @property
    def wake_s(self) -> float | None:
        """Seconds until the next tick; None for any time."""
        return TRY_EVERY_S if self.waits or self._left() else None

    # ---- for people

    def held_bytes(self, device: str) -> dict[Job, int]:
        """Return the bytes of a device by job, without jobs that gave theirs away for a while."""
        by_job: dict[Job, int] = {}
        for own in self.processes.values():
            if size := own.held.get(device, 0):
                by_job[own.job] = by_job.get(own.job, 0) + size
        return {job: size for job, size in by_job.items() if job not in self._device(device).away}

    def missing_bytes(self, wait: Wait) -> int:
        """Return the bytes that must become free before a request can be served, in its turn."""
        book, waiting = self._device(wait.device), self._waiting(wait.device)
        before = (other for other in waiting if self._rank(other) < self._rank(wait))
        wanted = wait.size + sum(other.size for other in before)
        if wait.job in book.away:
            wanted += sum(each.held.get(wait.device, 0) for each in self._of(wait.job))
        return max(wanted + (0 if wait.begins else book.total // RESERVE) - book.free, 0)

    # ---- the next to try

    def _serve(self, now: float, device: str) -> Out:
        """Let the next one try, or have one give way."""
        book = self._device(device)
        if (back := self._find_back(now, device)) is not None:
            del book.away[back]
            return [GoOn(back)]
        waiting = self._waiting(device)
        if not waiting or any(_tries(wait, now) for wait in waiting):
            return []
        book.next_at = now + TRY_EVERY_S
        if out := self._break_up(now, device):
            return out
        chosen = self._choose(now, device, waiting)
        if chosen is None and book.total:
            return _try(now, waiting[0], "look")
        return _try(now, chosen or waiting[0])  # where nothing tells what is free, it tries

    def _choose(self, now: float, device: str, waiting: list[Wait]) -> Wait | None:
        """The first that fits; once the first of all waited for long, only small ones pass it."""
        first, book, held = waiting[0], self._device(device), self.held_bytes(device)
        patient = now - first.since < PATIENCE_S or self._all_wait(device)
        for wait in waiting:
            others = any(job != wait.job for job in held)
            kept = book.total // RESERVE if others and not wait.begins else 0
            fits = wait.size <= book.free - kept
            if fits and (wait is first or patient or wait.size <= held.get(wait.job, 0)):
                return wait
        return None

    def _all_wait(self, device: str) -> bool:
        return self.held_bytes(device).keys() <= {wait.job for wait in self._waiting(device)}

    def _break_up(self, now: float, device: str) -> Out:
        """Have one give way where nothing will become free: all that hold memory wait for more."""
        book, waiting, held = self._device(device), self._waiting(device), self.held_bytes(device)
        if not waiting or not self._all_wait(device):
            return []
        # Nobody goes on without what is reserved, and a network asks for hundreds of small parts.
        least = min(waiting, key=lambda wait: wait.size)
        if least.size <= book.free and least.tries < TRIES:
            return _try(now, least)
        # What a process held that has just ended comes back a moment later.
        if not book.fresh or now - book.changed_at < LATELY_S:
            return []
        if not held.keys() - {waiting[0].job}:  # what is missing is held by none of us
            late = now - waiting[0].since >= LONELY_S and not book.away
            return _refuse(now, waiting[:1]) if late else []
        book.fresh = False
        suspended = [job for job in held if self._may_suspend(job)]
        job = min(suspended or held, key=lambda job: self._loss(device, job, bool(suspended)))
        if not suspended:
            return _refuse(now, [wait for wait in waiting if wait.job == job])
        book.away[job] = book.changed_at = now
        return [GiveWay(job)]

    def _loss(self, device: str, job: Job, suspended: bool) -> tuple[bool, float, Job]:
        """Return the loss if a job gives way: seconds for its memory, or all that it has done."""
        size = self.held_bytes(device)[job]
        others = [wait.size for wait in self._waiting(device) if wait.job != job]
        enough = min(others, default=0) <= self._device(device).free + size
        began = min(own.since for own in self.processes.values() if own.job == job)
        return not enough, size if suspended else -began, job

    def _find_back(self, now: float, device: str) -> Job | None:
        """A job that gave way, where it fits again with what it waits for, or is alone."""
        book, waiting = self._device(device), self._waiting(device)
        for job, since in sorted(book.away.items()):
            own = sum(each.held.get(device, 0) for each in self._of(job))
            if not any(True for _ in self._of(job)):
                del book.away[job]  # it has ended
                return self._find_back(now, device)
            wants = max((w.size for w in self.waits.values() if w.job == job), default=0)
            first = all(wait.since > since + PATIENCE_S for wait in waiting)
            if first and (book.free >= own + wants or not self.held_bytes(device)):
                return job
        return None

    # ---- parts

    def _device(self, device: str) -> DeviceMemory:
        return self.devices.setdefault(device, DeviceMemory())

    def _waiting(self, device: str) -> list[Wait]:
        """In the order in which they are served."""
        away = self._device(device).away
        here = (w for w in self.waits.values() if w.device == device and w.job not in away)
        return sorted(here, key=self._rank)

    def _rank(self, wait: Wait) -> Rank:
        """Late ones by their wait, others in the policy's order, then by priority and their wait.

        Last of all those that do not answer.
        """
        known = self.order.get(wait.job[0], (inf, -wait.priority))
        place = () if wait.late else known
        return wait.tried_at is not None, not wait.late, place, wait.since, wait.key

    def _of(self, job: Job) -> Iterable[HoldingProcess]:
        return (own for own in self.processes.values() if own.job == job)

    def _waited_for(self) -> set[str]:
        return {wait.device for wait in self.waits.values()}

    def _left(self) -> set[str]:
        return {name for name, book in self.devices.items() if book.away}

    def _changed(self, now: float, device: str) -> Out:
        book = self._device(device)
        book.fresh, book.changed_at = False, now
        for wait in self._waiting(device):
            wait.tries = 0
        return self._serve(now, device)

    def _let_go(self, device: str) -> Out:
        return [] if device in self._waited_for() else self._say_all(f"go {device}")

    def _say_all(self, text: str) -> Out:
        return [MemoryLine(key, text) for key in self.processes]


def _tries(wait: Wait, now: float) -> bool:
    """True while a member is trying; one that stands still is not waited for."""
    return wait.tried_at is not None and now - wait.tried_at < STUCK_S


def _try(now: float, wait: Wait, text: str = "try") -> Out:
    """Have a member try, or only look how much is free."""
    wait.tried_at = wait.said_at = now
    wait.tries += text == "try"
    return [MemoryLine(wait.key, text)]


def _refuse(now: float, waits: Iterable[Wait]) -> Out:
    out: Out = []
    for wait in waits:
        wait.tried_at = now
        out.append(MemoryLine(wait.key, "refuse"))
    return out
