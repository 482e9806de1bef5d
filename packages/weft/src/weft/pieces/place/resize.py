"""More or fewer devices beside those that a job has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import fewest_nodes

ANY: Mapping[int, str] = {}


def resize(on: Allocation, count: int, free: Capacity) -> Allocation | None:
    """An allocation of `count` devices that keeps as many of `on` as it can, with host parts.

    What is held must have been given back to the ledger; nothing is taken. Fewer devices leave
    the smallest parts first; more come from the same nodes, then from where they fit best. None
    if the kind has too few.
    """
    cluster = free.cluster
    parts = {cluster.index[part.node]: list(part.gpus) for part in on.slices}
    kind = cluster.kind_of(on)
    more = count - on.gpus
    while more < 0:
        node = min(parts, key=lambda n: (len(parts[n]), n))
        drop = min(-more, len(parts[node]))
        parts[node] = parts[node][: len(parts[node]) - drop]
        more += drop
        if not parts[node]:
            del parts[node]
    if more > free.idle(kind) - on.gpus:
        return None
    for node in sorted(parts, key=lambda n: -free.on(n)):
        more -= _extend(parts, node, more, free)
    while more > 0:
        opened = [node for node in free.opening(kind, more) if node not in parts]
        opened = opened or _others(parts, kind, free)
        for node in opened:
            more -= _extend(parts, node, more, free)
    return Allocation(tuple(_slice(node, gpus, free) for node, gpus in sorted(parts.items())))


def resize_all(view: View, counts: Mapping[int, int], kinds: Mapping[int, str] = ANY) -> Plan:
    """The changes that lead to these sizes: jobs that shrink or stop first, then those that grow.

    `kinds` are those that rows should be on; a row that is not named there may stay or take any.
    """
    changes: dict[JobId, Allocation | None] = {}
    held = {row: on for row, on in enumerate(view.table.allocations) if on is not None}
    for row, on in list(held.items()):
        wanted = counts.get(row, 0)
        moves = kinds.get(row, kind := view.cluster.kind_of(on)) != kind
        if wanted >= on.gpus and not moves:
            continue
        view.free.give(on)
        smaller = resize(on, wanted, view.free) if wanted and not moves else None
        if smaller is not None:
            view.free.take(smaller)
        changes[view.job(row).id] = smaller
        if moves:
            del held[row]
    for row, wanted in sorted(counts.items()):
        job = view.job(row)
        if row in kinds:
            job = replace(job, demand=replace(job.demand, kinds=(kinds[row],)))
        if (place := _grow(job, held.get(row), wanted, view.free)) is not None:
            changes[job.id] = place
    return Plan(changes)


def _grow(job: Job, held: Allocation | None, wanted: int, free: Capacity) -> Allocation | None:
    """More devices for a job that has some, or its first; taken already. None: as before."""
    if held is not None and wanted <= held.gpus:
        return None
    if held is None:
        place = _start(job, wanted, free)
        if place is None and wanted > job.demand.min:
            place = _start(job, job.demand.min, free)
    else:
        free.give(held)
        place = resize(held, wanted, free)
        if place is None:
            free.take(held)
    if place is not None:
        free.take(place)
    return place


def _start(job: Job, gpus: int, free: Capacity) -> Allocation | None:
    return fewest_nodes(replace(job, demand=replace(job.demand, gpus=gpus)), free)


def _extend(parts: dict[int, list[int]], node: int, more: int, free: Capacity) -> int:
    """Take up to `more` other free devices of a node; how many."""
    held = parts.get(node, [])
    idle = [gpu for gpu in free.slice(node, free.on(node)).gpus if gpu not in held]
    if more > 0 and idle:
        parts[node] = held + idle[:more]
    return min(max(more, 0), len(idle))


def _others(parts: dict[int, list[int]], kind: str, free: Capacity) -> list[int]:
    """Nodes not used yet, the emptiest first."""
    nodes = [i for i, node in enumerate(free.cluster.nodes) if node.kind == kind]
    return sorted((n for n in nodes if n not in parts), key=lambda n: (-free.on(n), n))


def _slice(node: int, gpus: list[int], free: Capacity) -> Slice:
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return free.slice_of(node, mask)
