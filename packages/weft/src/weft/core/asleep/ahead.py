"""Jobs started before their turn: the next in line, beside a job whose devices it may get.

What takes long is done while another job still has the devices: imports, a context, the first
batch. The job sleeps from its first step on. It must be a program that was seen before, so that its
memory is known, and that fits beside what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

import numpy as np

from weft.core.asleep.choose import MARGIN, StopChoice
from weft.core.asleep.rules import StopRules
from weft.core.asleep.sleeping import Sleeping
from weft.core.events.event import StartedAhead
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.programs import Programs
from weft.core.model.job import Allocation, Job, NodeId, Sharing, Stage
from weft.core.state.cells import TableColumns
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.core.stops import Rung

Device = tuple[NodeId, int]
# Whether rules let a job have a device in the place of the job that runs there.
Allows = Callable[[Job, Device, Job], bool]


def find_next(
    state: State,
    knowledge: Knowledge,
    rules: StopRules,
    now: float,
    allows: Allows = lambda *_: True,
) -> StartedAhead | None:
    """The first in line that may be started now, with the devices; None if there is none.

    The line is by priority and time of submission: which of them a policy takes next is its own
    to say. A job that no device is allowed to is skipped. One job at a time is started ahead,
    and at most one sleeps ahead on a device.
    """
    programs = knowledge.programs
    if Rung.FREEZE not in rules.rungs or programs is None:
        return None
    if any(not sleeper.there for sleeper in state.asleep.sleepers.values()):
        return None
    offers = (
        (row, job, [place for place in _devices(state, job) if allows(job, *place)])
        for row, job in _line(state)
    )
    first = next((offer for offer in offers if offer[2]), None)
    if first is None:
        return None
    row, job, devices = first
    choice = StopChoice(rules, state, {}, knowledge, now)
    attempt = int(state.table.get(row, TableColumns.ATTEMPT)) + 1
    for device, resident in devices:
        node = state.cluster.nodes[state.cluster.index[device[0]]]
        need_gb, beside_gb = (_need_gb(programs, sharer, node.kind) for sharer in (job, resident))
        if need_gb is None or beside_gb is None:
            continue
        if need_gb + beside_gb > MARGIN * node.device_gb:
            continue
        on = _place(state, device, need_gb)
        if choice.has_room(Sleeping(job.id, attempt, Rung.FREEZE, on, now)):
            return StartedAhead(job.id, attempt, on)
    return None


def _need_gb(programs: Programs, job: Job, kind: str) -> float | None:
    """None where unknown, or where it must not have company."""
    alone = programs.must_be_alone(job, kind) or not job.shareable
    return None if alone else programs.need_gb(job, kind)


def is_ahead(state: State, sleeper: Sleeping) -> bool:
    """True if an attempt was started ahead and has never run in its turn."""
    row = state.table.find(sleeper.job)
    return row is not None and state.table.get(row, TableColumns.STARTED) == inf


def _line(state: State) -> Iterator[tuple[int, Job]]:
    """Jobs that wait for one GPU and nothing else, and were never tried."""
    table = state.table
    waits = (table.column(TableColumns.STAGE) == Stage.PENDING) & (
        table.column(TableColumns.HELD) == 0.0
    )
    new = (table.column(TableColumns.STARTED) == inf) & (table.column(TableColumns.RETRIES) == 0.0)
    rows = np.flatnonzero(waits & new & (table.gpus == 1.0))
    for row in rows[np.argsort(-table.column(TableColumns.PRIORITY)[rows], kind="stable")].tolist():
        job = table.jobs[row]
        free = job.id not in table.suspended and not job.after and not job.max_parallel
        plain = job.demand.share == 1.0 and not job.demand.nodes and job.launch is not None
        if free and plain and job.id not in state.asleep.sleepers:
            yield row, job


def _devices(state: State, job: Job) -> Iterator[tuple[Device, Job]]:
    """Devices of its kinds, with the jobs that run there; not where one sleeps ahead.

    None at all while one is idle.
    """
    kinds = job.demand.kinds or state.cluster.kinds
    index, nodes = state.cluster.index, state.cluster.nodes
    if any(state.free.on(at) for at, node in enumerate(nodes) if node.kind in kinds):
        return
    ahead = [sleeper for sleeper in state.asleep.sleepers.values() if is_ahead(state, sleeper)]
    taken = {device for sleeper in ahead for device in devices_of(sleeper.on)}
    for row, on in enumerate(state.table.allocations):
        if on is None or state.table.get(row, TableColumns.STAGE) != Stage.RUNNING:
            continue
        for node, gpu in devices_of(on):
            if nodes[index[NodeId(node)]].kind in kinds and (node, gpu) not in taken:
                yield (NodeId(node), gpu), state.table.jobs[row]


def _place(state: State, device: Device, need_gb: float) -> Allocation:
    at = state.cluster.index[device[0]]
    part = state.free.slice_of(at, 1 << device[1])
    return Allocation((part,), replace(Sharing(), gpu_mem_gb=need_gb))
