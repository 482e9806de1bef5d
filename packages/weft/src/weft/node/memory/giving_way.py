"""Suspends a job so that others can go on, and has it resumed, by the agent of its attempt."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.base.errors import WireError
from weft.node.memory.book import Job
from weft.wire.attempt import SPEC, AttemptSpec, folder_of
from weft.wire.sleep import AWAKE, SUSPENDED, SleepRequest, read_request, read_state, write_request

log = logging.getLogger(__name__)

BY = "memory"  # on whose behalf agents are asked
LIMIT_S = 600.0


@dataclass(slots=True)
class GivingWay:
    """Jobs below `state` that were asked to give way, by the number of the request."""

    state: Path
    _asked: dict[Job, tuple[int, float]] = field(default_factory=dict)
    _cannot: set[Job] = field(default_factory=set)

    def can_suspend(self, job: Job) -> bool:
        """True for a job of one device that the machine's driver can suspend."""
        if job in self._cannot:
            return False
        try:
            spec = AttemptSpec.read(folder_of(self.state, *job) / SPEC)
        except WireError:
            return False
        return bool(spec.suspender) and len(spec.devices) == 1

    def suspend(self, job: Job) -> None:
        """Ask for it; `find_failed` tells if it could not be had."""
        if number := self._leave(job, SUSPENDED):
            self._asked[job] = number, time.monotonic()
        else:
            self._cannot.add(job)

    def wake(self, job: Job) -> None:
        self._asked.pop(job, None)
        self._leave(job, AWAKE)

    def find_failed(self) -> list[Job]:
        """Jobs that were asked and do not give way; they are not asked again."""
        failed = [job for job, asked in self._asked.items() if self._has_failed(job, *asked)]
        for job in failed:
            self.wake(job)
            self._cannot.add(job)
        return failed + [job for job in self._cannot if job not in failed]

    def _has_failed(self, job: Job, number: int, since: float) -> bool:
        try:
            state = read_state(folder_of(self.state, *job))
        except (OSError, WireError):
            return True
        if state is None or state.number < number:
            return time.monotonic() - since > LIMIT_S
        return state.state != SUSPENDED

    def _leave(self, job: Job, wish: str) -> int:
        """Leave a wish beside those of others; 0 where there is no such attempt."""
        folder = folder_of(self.state, *job)
        try:
            before = read_request(folder) or SleepRequest(0)
            wanted = {who: state for who, state in before.wanted.items() if who != BY}
            if wish != AWAKE:
                wanted[BY] = wish
            number = time.time_ns()
            write_request(folder, replace(before, number=number, wanted=wanted))
        except (OSError, WireError) as error:
            log.warning("job=%s cannot be asked to give way: %s", job[0], error)
            return 0
        return number
