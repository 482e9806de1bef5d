"""Devices that have been taken away but are not empty yet, and the starts that wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from weft.core.actions import Start
from weft.core.model import Allocation, JobId

# A device (node and number), or a job whose previous attempt must be gone first.
Key = tuple[str, int] | str


class Vacating:
    """Who is leaving, and which starts are held back until they have left."""

    __slots__ = ("_blockers", "_busy", "_held", "_leaving", "_waiting")

    def __init__(self) -> None:
        self._leaving: dict[tuple[JobId, int], Allocation] = {}
        self._busy: dict[Key, int] = {}
        self._held: dict[JobId, Start] = {}
        self._blockers: dict[JobId, set[Key]] = {}
        self._waiting: dict[Key, dict[JobId, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._leaving)

    def __contains__(self, attempt: tuple[JobId, int]) -> bool:
        return attempt in self._leaving

    def is_leaving(self, job: JobId) -> bool:
        """Whether any attempt of a job was asked to go and has not gone yet."""
        return job in self._busy

    def leaving(self) -> list[tuple[JobId, int]]:
        """Attempts that were asked to go and have not gone yet."""
        return [*self._leaving]

    def holders(self) -> dict[tuple[JobId, int], Allocation]:
        """The same with what they still hold."""
        return dict(self._leaving)

    def held(self) -> list[Start]:
        """Starts that are held back, in the order they were asked for."""
        return [*self._held.values()]

    def leave(self, job: JobId, attempt: int, on: Allocation) -> None:
        """An attempt has been asked to go."""
        self._leaving[job, attempt] = on
        for key in _keys(job, on):
            self._busy[key] = self._busy.get(key, 0) + 1

    def hold(self, start: Start) -> bool:
        """Hold a start back if anything it needs is still in use; it comes out of `left`.

        So is that of a job which is to run after one that is still leaving.
        """
        needs = (*_keys(start.job.id, start.on), *start.job.after.jobs)
        blockers = {key for key in needs if key in self._busy}
        if not blockers:
            return False
        job = start.job.id
        self._held[job], self._blockers[job] = start, blockers
        for key in blockers:
            self._waiting.setdefault(key, {})[job] = None
        return True

    def holds(self, job: JobId) -> bool:
        """Whether a start of this job is held back."""
        return job in self._held

    def replace(self, start: Start) -> None:
        """The same start with other settings: a larger share may have to wait for more."""
        self.drop(start.job.id)
        self.hold(start)

    def drop(self, job: JobId) -> bool:
        """Forget a start that is held back; whether there was one."""
        if self._held.pop(job, None) is None:
            return False
        for key in self._blockers.pop(job):
            self._waiting[key].pop(job, None)
        return True

    def left(self, job: JobId, attempt: int) -> list[Start]:
        """An attempt has gone: the starts that waited for nothing else, device by device."""
        on = self._leaving.pop((job, attempt))
        ready: list[JobId] = []
        for key in _keys(job, on):
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


def _keys(job: JobId, on: Allocation) -> Iterator[Key]:
    yield job
    for part in on.slices:
        for gpu in part.gpus:
            yield part.node, gpu
