"""Ends of jobs: one record per job that left, for predictors that learn from the past."""

from __future__ import annotations

from enum import StrEnum

from weft.core.model.job import Job
from weft.frozen import frozen


class EndKind(StrEnum):
    """In which way a job ended; devices are freed by each of them."""

    UNKNOWN = ""  # records of older versions
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"  # it reached its time limit
    LOST = "lost"  # with its node or agent: not its own doing, it would have gone on
    REJECTED = "rejected"  # by the policy: it will never run

    def or_timeout(self, job: Job, ran: float) -> EndKind:
        """The end, or a timeout where a failure came when the job had run for its time limit."""
        limit_s = job.launch.time_limit_s if job.launch is not None else 0.0
        return EndKind.TIMEOUT if self is EndKind.FAILED and 0.0 < limit_s <= ran + 1.0 else self


@frozen
class Ended:
    """A job that left, with what it received.

    `ran` is executed seconds over all attempts, `service` GPU-seconds. `code` is the exit code of
    its last process, None if that is not known. `at` is when it ended.
    """

    job: Job
    ran: float
    service: float
    finished: bool
    how: EndKind = EndKind.UNKNOWN
    code: int | None = None
    at: float = 0.0

    @property
    def length(self) -> float:
        """Seconds it would have executed on the GPUs it asked for; equal to `ran` if rigid."""
        need = self.job.demand.gpus * self.job.demand.share
        return self.service / need if need > 0.0 and self.service > 0.0 else self.ran

    @property
    def censored(self) -> bool:
        """True if it would have gone on: its length is only known to be at least this."""
        return self.how in (EndKind.LOST, EndKind.REJECTED)

    @property
    def failed(self) -> bool:
        """True if it was its own failure."""
        return self.how is EndKind.FAILED
