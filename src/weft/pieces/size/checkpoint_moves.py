"""Changes that others wait for: whether to stop a job rather than let it change as it trains.

A job that moves live keeps what it holds until its new processes are ready. Where jobs with more to
gain wait for just these devices, a restart through a checkpoint frees them at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.model.job import Allocation, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.releasing import devices_of
from weft.core.state.table import Rows
from weft.frozen import frozen


@frozen
class Worth:
    """What sizes are worth to rows, their speeds, the weight of rows, and seconds of changes."""

    value: Floats
    speed: Floats
    weight: Floats
    change_s: Floats
    start_s: Floats
    ready_s: Floats


def find_hurried(
    view: View,
    changes: Mapping[int, Allocation | None],
    held: Floats,
    pick: Rows,
    worth: Worth,
) -> frozenset[JobId]:
    """Jobs that lose less by a restart than others would by waiting for their devices."""
    takers: dict[tuple[str, int], int] = {}
    for row, to in changes.items():
        for device in () if to is None else devices_of(to):
            takers[device] = row
    job_ids = []
    for row, to in changes.items():
        was, size = view.allocation(row), int(pick[row])
        if was is None or to is None or size < 0 or held[row] < 0:
            continue
        ready = float(worth.ready_s[row, size])
        if ready <= 0.0:
            continue
        waiting = {takers[d] for d in devices_of(was) if d in takers} - {row}
        theirs = ready * sum(
            float(worth.weight[other] * worth.speed[other, pick[other]]) for other in waiting
        )
        now = float(worth.weight[row] * worth.speed[row, int(held[row])])
        if now * float(worth.start_s[row, size]) < theirs:
            job_ids.append(view.job(row).id)
    return frozenset(job_ids)
