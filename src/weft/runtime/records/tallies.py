"""What is counted over all jobs, beside each one's record: waiting times, and work that was lost.

Counted as the log is folded, so a service that begins again from a snapshot counts from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from weft.core.latency import Histogram
from weft.core.model.job import JobId

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WAITS_S = (1.0, 10.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 7 * DAY)


class Tallies:
    """`waits` are seconds from submission to the first start; `lost_gpu_s` by tenant.

    Lost is what a job did since its last checkpoint, or since it started, when it was stopped or
    failed and is to go on.
    """

    def __init__(self, waited: Iterable[float] = ()) -> None:
        self.waits = Histogram(WAITS_S)
        self.lost_gpu_s: defaultdict[str, float] = defaultdict(float)
        self._safe_at: dict[JobId, float] = {}
        for seconds in waited:
            self.waits.add(seconds)

    def started(self, job: JobId, at: float, waited: float | None) -> None:
        """An attempt runs; `waited` is set for a job's first attempt."""
        self._safe_at[job] = at
        if waited is not None:
            self.waits.add(waited)

    def saved(self, job: JobId, at: float) -> None:
        """There is a checkpoint to go on from."""
        if job in self._safe_at:
            self._safe_at[job] = at

    def left(self, job: JobId, tenant: str, at: float, gpus: float, *, goes_on: bool) -> None:
        """An attempt of that many GPUs is over; what was not safe is lost if the job goes on."""
        since = self._safe_at.pop(job, at)
        if goes_on:
            self.lost_gpu_s[tenant] += gpus * max(at - since, 0.0)
