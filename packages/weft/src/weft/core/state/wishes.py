"""Requests not answered yet: what a driver repeats after a restart."""

from __future__ import annotations

import numpy as np

from weft.core.events.actions import Resize, Resume, Sleep, Start, Stop
from weft.core.model.job import JobId, Stage
from weft.core.state.cells import Column
from weft.core.state.state import State

Wish = Start | Stop | Resize | Sleep | Resume


def wishes_of(state: State) -> list[Wish]:
    """Every stop, start and resize that was asked for and not answered yet, stops first.

    What a driver repeats when it cannot know which actions were carried out. So is every job that
    is to sleep, since it may have been woken meanwhile.
    """
    sleepers, table, releasing = state.asleep.sleepers, state.table, state.releasing
    wishes: list[Wish] = [
        Stop(*leaving) for leaving in releasing.leaving() if state.asleep.find(*leaving) is None
    ]
    wishes += state.live.wishes(table)
    for sleeping in sleepers.values():
        if not (sleeping.there and _is_asked_to_run(state, sleeping.job)):
            wishes.append(Sleep(sleeping.job, sleeping.attempt, sleeping.rung))
    for row in np.flatnonzero(table.column(Column.STAGE) == Stage.STARTING).tolist():
        job, on = table.jobs[row], table.allocations[row]
        if on is not None and not releasing.holds(job.id):
            kind = Resume if job.id in sleepers else Start
            wishes.append(kind(job, on, int(table.get(row, Column.ATTEMPT))))
    return wishes


def _is_asked_to_run(state: State, job: JobId) -> bool:
    """True if a job was given its devices, and no other job is on them any more."""
    on = state.table.allocations[state.table.row(job)]
    return on is not None and not state.releasing.holds(job)
