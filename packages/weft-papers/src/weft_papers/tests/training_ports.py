"""What tests tell policies of trainings, and the tasks that those then hold."""

from __future__ import annotations

from weft.core.events.report import Report
from weft.core.knowledge.knowledge import LossSoFar
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.job import Job
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.formulas.training.tasks import Ratios, tasks_of


class NoTraining(NothingLearnt):
    """A training port that knows nothing of anybody."""

    __slots__ = ()

    def observe(self, job: Job, kind: str, report: Report) -> None:
        pass

    def forget(self, job: Job) -> None:
        pass

    def ratios(self, job: Job) -> Ratios | None:
        return None

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        return None

    def steps_left(self, job: Job) -> float | None:
        return None

    def seconds_left(self, job: Job) -> float | None:
        return None

    def learned(self, job: Job) -> LossSoFar | None:
        return None


def tasks_held(view: View, policy: Policy) -> dict[str, tuple[int, int]]:
    """Workers and servers of each job after a decision, which is taken back."""
    mark = view.free.mark()
    after = view.after(policy.decide(view))
    view.free.rollback(mark)
    held = {}
    for name, on in after.items():
        tasks = tasks_of(view.job(view.table.row(name)))
        assert tasks is not None
        split = tasks.split(on)
        held[str(name)] = (sum(w for w, _ in split), sum(p for _, p in split))
    return held
