"""The cost of changing a job's devices, in seconds without progress."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from weft.core.model.job import Allocation, Job
from weft.core.state.releasing import devices_of
from weft.frozen import frozen

RESTART_S = 30.0  # what a restart is taken to cost where there is no estimate


class AttemptSource(NamedTuple):
    """The source of a report: the attempt, its devices, since when; and when the report came.

    `ran` are the seconds that the job has executed in all its attempts.
    """

    number: int
    on: Allocation
    began: float
    at: float
    ran: float


@frozen
class Costs:
    """The costs of one job on one GPU kind.

    A first start takes `first_start_s`, a stop and a start from its checkpoint `restart_s`. A job
    with `live` changes its devices as it trains: new processes get ready for `prepare_s`, in which
    it trains on where it is and also holds its new devices; then it pauses for `pause_s`, and for
    `pause_gb_s` for each of `state_gb` where there are new processes to be sent its state.
    """

    first_start_s: float
    restart_s: float
    live: bool = False
    prepare_s: float = 0.0
    pause_s: float = 0.0
    pause_gb_s: float = 0.0
    state_gb: float = 0.0

    def change_s(self, was: Allocation | None, to: Allocation) -> float:
        """Seconds without progress when a job that held `was` is given `to`.

        None held nothing; whether that is a first start is for the caller to say.
        """
        if was is None or not self.live:
            return self.restart_s
        return self.pause_s + (self.pause_gb_s * self.state_gb if adds_devices(was, to) else 0.0)


def adds_devices(was: Allocation, to: Allocation) -> bool:
    """True if a change needs new processes; a job that only gives devices up needs none."""
    had = {*devices_of(was)}
    return any(device not in had for device in devices_of(to))


class ChangeCosts(Protocol):
    """The costs of changing jobs' devices, stated or learnt."""

    def costs(self, job: Job, kind: str) -> Costs:
        """Return the costs of a job on a GPU kind."""
        ...

    def observe_report(self, job: Job, kind: str, attempt: AttemptSource) -> None:
        """A job on GPUs of `kind` reported; for the first time in an attempt its start is over."""
        ...

    def observe_able(self, job: Job, state_gb: float) -> None:
        """A job can change its devices as it trains; a new process is sent `state_gb`."""
        ...

    def observe_unable(self, job: Job) -> None:
        """A job was asked to change its devices as it trains, and could not."""
        ...

    def observe_pause(
        self, job: Job, kind: str, pause_s: float, state_gb: float, prepare_s: float = 0.0
    ) -> None:
        """A job on GPUs of `kind` paused for so long when it was sent `state_gb`.

        Its new processes had been made ready for `prepare_s`.
        """
        ...

    def forget(self, job: Job) -> None: ...

    def save(self) -> Any:
        """Everything learnt, as values that JSON has."""
        ...

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        ...
