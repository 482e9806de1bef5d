"""Nodes for an arriving job: those of its own size first, oversubscribed ones last."""

from __future__ import annotations

from weft.core.model.cluster import Node
from weft.core.model.job import Job
from weft_papers.gandiva.occupancy import HomeOccupancy, Parts


def place(book: HomeOccupancy, job: Job, limit: float) -> Parts | None:
    """A home for a job, or None if it must wait.

    In order: a node of its affinity with room, an empty one, any with room, room that grown jobs
    give back, and at last a node of its affinity whose load stays within `limit` times its
    GPUs, where it will take turns.
    """
    nodes, gpus = book.nodes_for(job), job.demand.gpus
    large = [node for node in nodes if node.gpus >= gpus]
    if not large:
        return _whole_nodes(book, nodes, gpus)
    chosen = with_room(book, large, gpus) or _shrink(book, large, gpus)
    if chosen is None:
        alike = [n for n in large if book.affinity.get(n.id) == gpus and _may_share(book, n)]
        fits = [n for n in alike if book.load(n.id) + gpus <= limit * n.gpus]
        chosen = min(fits, key=lambda n: book.load(n.id) / n.gpus, default=None)
    return None if chosen is None else {chosen.id: gpus}


def with_room(book: HomeOccupancy, nodes: list[Node], gpus: int) -> Node | None:
    """Of its affinity, else empty, else any with room; the fullest first."""
    room = [n for n in nodes if book.free(n.id) >= gpus]
    own = [n for n in room if book.affinity.get(n.id) == gpus]
    if own:
        return min(own, key=lambda n: (book.load_in_nodes(n.id), book.free(n.id)))
    empty = [n for n in room if not book.residents(n.id)]
    if empty:
        return min(empty, key=lambda n: n.gpus)
    return min(room, key=lambda n: book.free(n.id), default=None)


def _shrink(book: HomeOccupancy, nodes: list[Node], gpus: int) -> Node | None:
    """A node whose grown jobs make room by going back to what they asked for."""
    for node in nodes:
        grown = {
            job: book.size(job, node.id) - book.jobs[job].demand.gpus
            for job in book.jobs_or_pairs(node.id)
            if len(book.home[job]) == 1 and book.size(job, node.id) > book.jobs[job].demand.gpus
        }
        if grown and book.free(node.id) + sum(grown.values()) >= gpus:
            for job in grown:
                book.resize(job, node.id, book.jobs[job].demand.gpus)
            return node
    return None


def _may_share(book: HomeOccupancy, node: Node) -> bool:
    return not any(book.pinned(job) for job in book.residents(node.id))


def _whole_nodes(book: HomeOccupancy, nodes: list[Node], gpus: int) -> Parts | None:
    """Empty nodes of one kind for a gang that no node can hold."""
    for kind in dict.fromkeys(node.kind for node in nodes):
        parts: Parts = {}
        left = gpus
        empty = [n for n in nodes if n.kind == kind and not book.residents(n.id)]
        for node in sorted(empty, key=lambda n: -n.gpus):
            if left:
                parts[node.id] = min(node.gpus, left)
                left -= parts[node.id]
        if not left:
            return parts
    return None
