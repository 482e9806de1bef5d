"""The authors' list of running jobs, which is walked while jobs are taken off it.

Who follows a job that ended, or whose lease did, is passed over until the next time: its lease goes
on, and if it has ended itself it keeps its GPUs, and counts for its tenant, until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.model.job import Allocation, JobId
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen


@frozen
class Runner:
    """A job of the list, whom it counts for, and what it holds."""

    job: JobId
    tenant: str
    on: Allocation

    @property
    def gpus(self) -> float:
        """GPUs that it counts for."""
        return self.on.gpus * self.on.sharing.share


@frozen
class Walked:
    """The list after a walk: who stays, and who of these has ended already."""

    line: tuple[Runner, ...] = ()
    ghosts: tuple[Runner, ...] = ()

    def passed_over(self, view: View, expired: Bools) -> Bools:
        """Rows whose lease is over, but which were not looked at."""
        mask = np.zeros(len(expired), dtype=bool)
        mask[[view.table.row(runner.job) for runner in self.line if runner.job in view.table]] = (
            True
        )
        return mask & expired


def walk(line: Sequence[Runner], view: View, expired: Bools) -> Walked:
    """Take off those who ended or whose lease did; what ghosts hold is taken from the ledger."""
    table = view.table
    left, at = [runner for runner in line if runner.job not in table or view.holds(runner.job)], 0
    while at < len(left):
        job = left[at].job
        if job not in table or expired[table.row(job)]:
            del left[at]  # the next one takes its place and is passed over
        at += 1
    ghosts = []
    for runner in [runner for runner in left if runner.job not in table]:
        if view.free.fits(runner.on):
            view.free.take(runner.on)
            ghosts.append(runner)
    stay = [runner for runner in left if runner.job in table or runner in ghosts]
    return Walked(tuple(stay), tuple(ghosts))
