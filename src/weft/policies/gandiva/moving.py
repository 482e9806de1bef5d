"""Migration: jobs in turns to vacated GPUs, whole nodes emptied; growing into idle GPUs."""

from __future__ import annotations

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.policies.gandiva.occupancy import Occupancy
from weft.policies.gandiva.place import with_room


def relieve(book: Occupancy) -> None:
    """Move suspended jobs of oversubscribed nodes to where there is room for them."""
    if not any(book.free(node) > 0 for node in book.nodes):
        return
    for node in book.nodes:
        for job in reversed(book.units(node)):
            if book.free(node) >= 0:
                break
            if job in book.held or not _single(book, job):
                continue
            job_nodes = [n for n in book.nodes_for(book.jobs[job]) if n.id != node]
            target = with_room(book, job_nodes, book.size(job, node))
            if target is not None:
                book.move(job, target.id)


def defragment(book: Occupancy, threshold: float) -> None:
    """Empty nodes that are mostly free, into the gaps of others; all of a node or nothing."""
    while (node := _emptiest(book, threshold)) is not None:
        moves = _evacuation(book, node)
        if moves is None:
            return
        for job, to in moves.items():
            book.move(job, to)


def grow(book: Occupancy) -> None:
    """Double elastic jobs into GPUs of their node that nobody needs."""
    for node in book.nodes:
        for job in book.units(node):
            if not _single(book, job) or not book.jobs[job].preemptible:
                continue
            size, most = book.size(job, node), book.jobs[job].demand.max
            if size <= book.free(node) and 2 * size <= most:
                book.resize(job, node, 2 * size)


def _single(book: Occupancy, job: JobId) -> bool:
    return job not in book.mate and len(book.home[job]) == 1


def _emptiest(book: Occupancy, threshold: float) -> NodeId | None:
    """The node in use with the most free GPUs, if it is mostly free and none is empty."""
    best: Node | None = None
    for node in book.nodes.values():
        if not book.residents(node.id):
            return None  # there is a whole node already
        mostly = book.free(node.id) >= threshold * node.gpus
        if mostly and (best is None or book.free(node.id) > book.free(best.id)):
            best = node
    return None if best is None else best.id


def _evacuation(book: Occupancy, node: NodeId) -> dict[JobId, NodeId] | None:
    """Where each job of a node would go, largest first, without oversubscribing anybody."""
    units = book.units(node)
    if any(not _single(book, job) or book.pinned(job) for job in units):
        return None
    room = {other: book.free(other) for other in book.nodes if other != node}
    moves: dict[JobId, NodeId] = {}
    for job in sorted(units, key=lambda unit: -book.size(unit, node)):
        size = book.size(job, node)
        there = [n.id for n in book.nodes_for(book.jobs[job]) if room.get(n.id, 0) >= size]
        if not there:
            return None
        moves[job] = min(there, key=lambda n: room[n])
        room[moves[job]] -= size
    return moves
