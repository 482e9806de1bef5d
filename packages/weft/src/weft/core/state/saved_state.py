"""The state of a scheduler as plain values: taken in one moment, written later in parts.

What can be long are tables of dataclasses that never change (`weft.core.codec.columns` writes
them), so that taking them is a copy of lists. Active jobs are written by name; code that keeps
their records gives them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from weft.core.asleep.sleeping import Sleeping
from weft.core.codec.columns import pack_floats, unpack_floats
from weft.core.errors import InvalidConfig
from weft.core.events.actions import Resume, Start
from weft.core.events.event import Reported
from weft.core.events.job_end import Ended
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Job, JobId
from weft.core.state.live_changes import PendingResize, ResizableAttempt
from weft.core.state.state import State
from weft.core.state.table import COLUMNS, JobTable
from weft.frozen import frozen

T = TypeVar("T")


@frozen
class SavedPromise:
    """A job and what it is promised, or leaves, or waits to start on."""

    job: JobId
    on: Allocation | None
    attempt: int = 0


@frozen
class SavedState:
    """One moment: `numbers` as they are, and `tables` of `TABLES` that may be written later."""

    numbers: Mapping[str, Any]
    tables: Mapping[str, Sequence[Any]]


@frozen
class SavedScheduler:
    """A scheduler's state, what it knows of jobs, and the service that finished jobs had."""

    state: SavedState
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Any] = field(default_factory=dict)


TABLES: dict[str, type] = {
    "nodes": Node,
    "whole": Node,
    "active": SavedPromise,
    "leaving": SavedPromise,
    "held_back": SavedPromise,
    "ended": Ended,
    "reports": Reported,
    "resizable": ResizableAttempt,
    "resizing": PendingResize,
    "asleep": Sleeping,
}


def save_state(state: State) -> SavedState:
    """Save the state at the present moment."""
    table, releasing = state.table, state.releasing
    numbers = {
        "columns": list(COLUMNS),
        "cells": pack_floats(table.cells()),
        "hosts": state.free.hosts(),
        "name": state.cluster.name,
        "submissions": state.submissions,
        "decisions": state.decisions,
        "wake_at": state.wake_at,
        "recalled": state.recalled,
        "memory_order": dict(state.memory_order),
        "suspended": sorted(table.suspended),
        "promised": sorted(table.promised),
        "stops": state.asleep.save(),
        "not_resized": [job for job in state.live.under_way if releasing.holds(job)],
    }
    active = zip(table.jobs, table.allocations, strict=True)
    tables = {
        "nodes": state.cluster.nodes,
        "whole": state.whole.nodes,
        "active": [SavedPromise(job.id, on) for job, on in active],
        "leaving": [
            SavedPromise(job, on, attempt) for (job, attempt), on in releasing.holders().items()
        ],
        "held_back": [
            SavedPromise(start.job.id, start.on, start.attempt) for start in releasing.held_starts()
        ],
        "ended": [*state.ended],
        "reports": [*state.reports.values()],
        "resizable": [*state.live.able.values()],
        "resizing": [*state.live.under_way.values()],
        "asleep": [*state.asleep.sleepers.values()],
    }
    return SavedState(numbers, tables)


def load_state(saved: SavedState, jobs: Mapping[JobId, Job]) -> State:
    """The state of that moment; `jobs` are those that were active, by name."""
    numbers, tables = saved.numbers, saved.tables
    if numbers["columns"] != list(COLUMNS):
        raise InvalidConfig("the saved table has other columns than this version's")
    state = State(Cluster(tuple(tables["nodes"]), numbers["name"]))
    state.whole = Cluster(tuple(tables["whole"]), numbers["name"])
    active: Sequence[SavedPromise] = tables["active"]
    state.table = JobTable.of(
        unpack_floats(numbers["cells"]), [jobs[held.job] for held in active], [o.on for o in active]
    )
    state.free.commit()
    state.free.set_hosts(numbers["hosts"])
    for held in tables["leaving"]:
        state.releasing.leave(held.job, held.attempt, held.on)
    state.live.load(tables.get("resizing", ()), state.table, numbers.get("not_resized", ()))
    state.asleep.load(numbers.get("stops", {}), tables.get("asleep", ()))
    for held in tables["held_back"]:
        kind = Resume if state.asleep.find(held.job, held.attempt) is not None else Start
        state.releasing.hold_back(kind(jobs[held.job], held.on, held.attempt))
    state.live.able = {able.job: able for able in tables.get("resizable", ())}
    state.ended = [*tables["ended"]]
    state.reports = {table.job: table for table in tables["reports"]}
    state.submissions, state.decisions = numbers["submissions"], numbers["decisions"]
    state.wake_at = numbers["wake_at"]
    state.recalled = numbers.get("recalled", 0)
    state.memory_order = {
        JobId(job): tuple(at) for job, at in numbers.get("memory_order", {}).items()
    }
    state.table.suspended = set(map(JobId, numbers.get("suspended", ())))
    state.table.promised = set(map(JobId, numbers.get("promised", ())))
    for job in state.table.jobs:
        if job.conditional:
            state.dependencies.add(job, state.table, {})
    return state
