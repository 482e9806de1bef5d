"""Machines where one job after the other fails at its start: noticed, and set aside.

A fold over events: a node is suspect once that many different jobs in a row died on it within
seconds of their start, jobs that are not known to fail elsewhere as well and that are of
different people: no one person's jobs, whatever is wrong with them, set a machine aside. People
whose jobs failed so on several machines are no witnesses before one of theirs has run well, so that
two users whose jobs cannot run put one machine at most out of use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.core.batch_work import NO_CLIENT
from weft.core.events.event import Decided, Event, Failed, Finished, Started, StartFailed
from weft.core.model.job import JobId, NodeId

IN_A_ROW, PEOPLE = 3, 2
AT_START_S = 60.0


@dataclass(slots=True)
class BadNodes:
    """What each node did to jobs lately."""

    owner_of: Callable[[JobId], str]
    in_a_row: int = IN_A_ROW
    at_start_s: float = AT_START_S
    _on: dict[JobId, NodeId | None] = field(default_factory=dict)
    _since: dict[JobId, float] = field(default_factory=dict)
    _owners: dict[JobId, str] = field(default_factory=dict)
    _failed: defaultdict[NodeId, dict[JobId, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _guilty: defaultdict[JobId, set[NodeId]] = field(default_factory=lambda: defaultdict(set))
    _unlucky: defaultdict[str, set[NodeId]] = field(default_factory=lambda: defaultdict(set))

    def note(self, at: float, event: Event) -> NodeId | None:
        """Take in one event; the node that has become suspect by it."""
        match event:
            case Decided(_, changes):
                for job, to in changes.items():
                    if to is not None:
                        nodes = {part.node for part in to.slices}
                        self._on[job] = nodes.pop() if len(nodes) == 1 else None
            case Started(job):
                self._since[job] = at
            case Finished(job):
                if (node := self._on.pop(job, None)) is not None:
                    self._note_well(node, job)
                self._since.pop(job, None)
            case Failed(job, _, reason) | StartFailed(job, _, reason):
                return self._note_failure(at, job, reason)
        return None

    def why(self, node: NodeId) -> str:
        """What happened there."""
        jobs = self._failed[node]
        last = next(reversed(jobs.values()), "").partition("\n")[0][:120]
        people = len({self._owners[job_id] for job_id in jobs})
        return f"{len(jobs)} jobs of {people} people failed at their start, the last: {last}"

    def forget(self, node: NodeId) -> None:
        """A person says that it is well."""
        self._failed.pop(node, None)

    def _note_failure(self, at: float, job: JobId, reason: str) -> NodeId | None:
        node, since = self._on.get(job), self._since.pop(job, at)
        if node is None or NO_CLIENT in reason:
            return None
        if at - since > self.at_start_s:
            self._note_well(node, job)  # it ran for a while
            return None
        owner = self._owners[job] = self.owner_of(job)
        self._guilty[job].add(node)
        self._unlucky[owner].add(node)
        self._failed[node][job] = reason
        jobs = [job_id for job_id in self._failed[node] if self._is_witness(job_id)]
        owners = {self._owners[job_id] for job_id in jobs}
        return node if len(jobs) >= self.in_a_row and len(owners) >= PEOPLE else None

    def _note_well(self, node: NodeId, job: JobId) -> None:
        """The machine works, and so do jobs of whose this is."""
        self._failed.pop(node, None)
        self._unlucky.pop(self.owner_of(job), None)

    def _is_witness(self, job: JobId) -> bool:
        """Whether it failed on one machine alone, as all that its owner submitted of late."""
        return len(self._guilty[job]) == 1 and len(self._unlucky[self._owners[job]]) <= 1
