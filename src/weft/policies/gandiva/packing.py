"""Packing by trial: put two jobs on the same devices, measure, keep or undo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations

from weft.core.model.job import JobId, NodeId
from weft.policies.gandiva.occupancy import Occupancy, Pair

BUSY = 0.99  # a job that keeps its devices as busy as this has nothing to give away


def worth_it(speeds: Sequence[float]) -> bool:
    """Whether jobs together do more than in turns; speeds are parts of each one's alone."""
    return sum(speeds) > 1.0 + 1e-9


def judge(book: Occupancy, over: Collection[NodeId]) -> None:
    """Where the trial is over keep every pair that was worth it; part the others for good."""
    ended = [pair for pair in book.trials if set(book.home.get(pair[0], {})) <= set(over)]
    for job_id, other in ended:
        if book.mate.get(job_id) != other:
            continue
        paces = [book.view.sharing().pace(book.jobs[job]) for job in (job_id, other)]
        measured = [pace for pace in paces if pace is not None]
        if len(measured) < len(paces) or not worth_it(measured):
            book.part(job_id, other)
    book.trials = [pair for pair in book.trials if pair not in ended]


def candidate(book: Occupancy, node: NodeId) -> Pair | None:
    """The two least busy jobs of a node that may run together and were not tried yet."""
    sharing = book.view.sharing()
    alone = [job for job in book.residents(node) if _movable(book, job)]
    use = {job: sharing.profile(book.jobs[job]).gpu_use for job in alone}
    alone = sorted((job for job in alone if use[job] < BUSY), key=lambda job: use[job])
    failed = {frozenset(pair) for pair in book.refused}
    most = book.nodes[node].device_gb
    for job_id, other in combinations(alone, 2):
        if book.home[job_id] != book.home[other] or frozenset((job_id, other)) in failed:
            continue
        if sum(sharing.profile(book.jobs[job]).mem_gb for job in (job_id, other)) <= most:
            return job_id, other
    return None


def _movable(book: Occupancy, job: JobId) -> bool:
    asked = book.jobs[job]
    free = job not in book.mate and not book.pinned(job)
    return free and asked.shareable and asked.demand.share == 1.0
