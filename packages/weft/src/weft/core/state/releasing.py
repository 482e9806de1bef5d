"""Devices that have been taken away but are not empty yet, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from weft.core.events.actions import Resize, Resume, Start
from weft.core.model.job import Allocation, Job, JobId, NodeId

# A device (node and number), or a job whose previous attempt must be gone first.
Key = tuple[str, int] | str
Waits = Start | Resize | Resume


class Releasing:
    """Jobs that are leaving, and the starts and resizes held back until they have left.

    An attempt leaves all that it holds, or sheds some of it while it trains on.
    """

    __slots__ = ("_blockers", "_busy", "_held", "_leaving", "_shed", "_waiting")

    def __init__(self) -> None:
        self._leaving: dict[tuple[JobId, int], Allocation] = {}
        self._shed: dict[JobId, tuple[Key, ...]] = {}
        self._busy: dict[Key, int] = {}
        self._held: dict[JobId, Waits] = {}
        self._blockers: dict[JobId, set[Key]] = {}
        self._waiting: dict[Key, dict[JobId, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._busy)

    def __contains__(self, attempt: tuple[JobId, int]) -> bool:
        return attempt in self._leaving

    def is_leaving(self, job: JobId) -> bool:
        """True if any attempt of a job was asked to go and has not gone yet."""
        return job in self._busy

    def leaving(self) -> list[tuple[JobId, int]]:
        """Attempts that were asked to go and have not gone yet."""
        return [*self._leaving]

    def holders(self) -> dict[tuple[JobId, int], Allocation]:
        """Attempts that were asked to go, with what they still hold."""
        return dict(self._leaving)

    def find(self, job: JobId, attempt: int) -> Allocation | None:
        """The devices that one attempt still holds; None if it was not asked to go."""
        return self._leaving.get((job, attempt))

    def held_starts(self) -> list[Start | Resume]:
        """Starts that are held back, in order of request, and wake-ups of jobs that slept."""
        return [start for start in self._held.values() if not isinstance(start, Resize)]

    def leave(self, job: JobId, attempt: int, on: Allocation) -> None:
        """An attempt has been asked to go."""
        self._leaving[job, attempt] = on
        self._use(_keys(job, on))

    def start_shedding(self, job: JobId, holds: Allocation, to: Allocation) -> list[Waits]:
        """A job goes from `holds` to `to` as it runs, whatever it was to shed before.

        What waited for nothing but devices that it keeps after all.
        """
        kept, before = {*devices_of(to)}, self._shed.pop(job, ())
        self._shed[job] = keys = tuple(key for key in devices_of(holds) if key not in kept)
        self._use(keys)
        return self._empty(before)

    def hold_back(self, start: Start | Resume) -> bool:
        """Hold a start back if anything it needs is still in use; it comes out of `left`.

        So is that of a job which is to run after one that is still leaving.
        """
        return self._hold(start, (*_keys(start.job.id, start.on), *start.job.after.jobs))

    def hold_resize(self, resize: Resize, holds: Allocation) -> bool:
        """Hold a resize back for a job that goes on from `holds`; True if it has to wait."""
        kept = {*devices_of(holds)}
        return self._hold(resize, [key for key in devices_of(resize.to) if key not in kept])

    def _hold(self, what: Waits, needs: Iterable[Key]) -> bool:
        blockers = {key for key in needs if key in self._busy}
        if not blockers:
            return False
        job = what.job.id
        self._held[job], self._blockers[job] = what, blockers
        for key in blockers:
            self._waiting.setdefault(key, {})[job] = None
        return True

    def holds(self, job: JobId) -> bool:
        """True if a start or a resize of this job is held back."""
        return job in self._held

    def replace_start(self, job: JobId, to: Allocation) -> None:
        """Replace a held start by one with other settings: a larger share may wait for more."""
        start = self._held[job]
        self.drop(job)
        if not isinstance(start, Resize):
            self.hold_back(replace(start, on=to))

    def rename(self, job: Job) -> None:
        """Put a job as it is now into what is held back of it."""
        if (what := self._held.get(job.id)) is not None:
            self._held[job.id] = replace(what, job=job)

    def drop(self, job: JobId) -> bool:
        """Forget what is held back of a job; whether there was anything."""
        if self._held.pop(job, None) is None:
            return False
        for key in self._blockers.pop(job):
            self._waiting[key].pop(job, None)
        return True

    def on_attempt_gone(self, job: JobId, attempt: int) -> list[Waits]:
        """An attempt has gone: what waited for nothing else, device by device."""
        return self._empty(_keys(job, self._leaving.pop((job, attempt))))

    def on_shed(self, job: JobId) -> list[Waits]:
        """The starts that may go ahead once a job has left what it shed.

        None if it shed nothing.
        """
        return self._empty(self._shed.pop(job, ()))

    def _use(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._busy[key] = self._busy.get(key, 0) + 1

    def _empty(self, keys: Iterable[Key]) -> list[Waits]:
        ready: list[JobId] = []
        for key in keys:
            self._busy[key] -= 1
            if self._busy[key]:
                continue
            del self._busy[key]
            for waiter in self._waiting.pop(key, ()):
                self._blockers[waiter].discard(key)
                if not self._blockers[waiter]:
                    ready.append(waiter)
        for waiter in ready:
            del self._blockers[waiter]
        return [self._held.pop(waiter) for waiter in ready]


def devices_of(on: Allocation) -> Iterator[tuple[NodeId, int]]:
    """Every device of an allocation, by node and number."""
    for part in on.slices:
        for gpu in part.gpus:
            yield part.node, gpu


def _keys(job: JobId, on: Allocation) -> Iterator[Key]:
    yield job
    yield from devices_of(on)
