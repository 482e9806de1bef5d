"""Costs of changes of devices, as a simulation charges them: stated, nothing is learnt."""

from __future__ import annotations

from collections.abc import Callable

from weft.core.knowledge.costs import AttemptSource, Costs
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.job import Job
from weft.core.protocols import PerfModel
from weft.frozen import frozen
from weft.perf.restart import state_gb


def data_parallel(job: Job) -> bool:  # noqa: ARG001 - what may be said of a job
    """Every job is, where nothing else is known."""
    return True


def as_published(job: Job) -> None:
    """No other restart was measured."""


@frozen
class StatedCosts(NothingLearnt):
    """The costs of a truth about speeds.

    With `live` jobs change their devices as they train, if they are `able`: data-parallel ones.
    They pause for `pause_s` and `pause_gb_s` a GB; new processes get ready for `prepare_s`, None
    for as long as a restart takes. `later` says what a start from a checkpoint takes, where that
    is not the truth's.
    """

    perf: PerfModel
    live: bool = False
    pause_s: float = 0.0
    pause_gb_s: float = 0.0
    prepare_s: float | None = None
    able: Callable[[Job], bool] = data_parallel
    later: Callable[[Job], float | None] = as_published

    def start_s(self, job: Job, *, first: bool) -> float:
        """Seconds until a job that was given devices trains."""
        later_s = None if first else self.later(job)
        return self.perf.restart(job, first=first) if later_s is None else later_s

    def costs(self, job: Job, kind: str = "") -> Costs:  # noqa: ARG002 - alike on all kinds
        again_s = self.start_s(job, first=False)
        first_s = self.start_s(job, first=True)
        if not self.live or not self.able(job):
            return Costs(first_s, again_s)
        ready_s = again_s if self.prepare_s is None else self.prepare_s
        size = state_gb(job.model)
        return Costs(first_s, again_s, True, ready_s, self.pause_s, self.pause_gb_s, size)

    def observe_report(self, job: Job, kind: str, attempt: AttemptSource) -> None:
        """Do nothing: it is known already."""

    def observe_able(self, job: Job, state_gb: float) -> None:
        """Do nothing: it is known already."""

    def observe_unable(self, job: Job) -> None:
        """Do nothing: it is known already."""

    def observe_pause(
        self, job: Job, kind: str, pause_s: float, state_gb: float, prepare_s: float = 0.0
    ) -> None:
        """Do nothing: it is known already."""

    def forget(self, job: Job) -> None:
        """Do nothing: it is known already."""
