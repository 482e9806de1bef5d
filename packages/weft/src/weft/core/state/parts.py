"""The parts of a state, for code that folds events into one of them."""

from __future__ import annotations

from typing import Protocol

from weft.core.asleep.sleeping import Asleep
from weft.core.events.actions import Action
from weft.core.events.event import Reported
from weft.core.model.cluster import Cluster
from weft.core.model.job import JobId
from weft.core.state.capacity import Capacity
from weft.core.state.live_changes import LiveChanges
from weft.core.state.releasing import Releasing
from weft.core.state.table import JobTable


class StateParts(Protocol):
    """A `weft.core.state.state.State`, as its own parts know it."""

    cluster: Cluster
    whole: Cluster
    recalled: int
    table: JobTable
    releasing: Releasing
    live: LiveChanges
    asleep: Asleep
    reports: dict[JobId, Reported]

    @property
    def free(self) -> Capacity:
        """Capacity that is not promised to a job."""
        ...

    def end_attempts(self, job: JobId) -> list[Action]:
        """No attempt of a job is to go on."""
        ...

    def rebuild(self, cluster: Cluster) -> None:
        """There are other machines than before."""
        ...
