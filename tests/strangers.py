"""A scheduler whose jobs say nothing of themselves, driven by hand."""

from __future__ import annotations

from typing import Any

from weft.core.events.actions import Start
from weft.core.events.event import Event, Finished, Observed, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Job, JobId
from weft.core.model.launch import Launch
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.cells import TableColumns
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.learnt_costs import LearntCosts
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of
from weft.perf.sharing.programs import LearntPrograms


class World:
    """A scheduler on one H200, and jobs that start as soon as they are asked to."""

    def __init__(
        self, cluster: str = "1x1:h200", policy: str = "weft:strangers=true", *, waits: bool = False
    ) -> None:
        knowledge = Knowledge(
            predictor=build("predictor", "history"),
            beliefs=FittedBeliefs(),
            colocation=Colocated(profile_of),
            costs=LearntCosts(),
            pooled=PooledBeliefs(),
            programs=LearntPrograms(waits=waits),
        )
        self.scheduler = Scheduler(
            build("policy", policy), parse_cluster(cluster), knowledge=knowledge
        )
        self.now, self.started = 0.0, list[str]()

    def tell(self, *events: Event, after: float = 1.0) -> None:
        self.now += after
        for action in self.scheduler.step(self.now, events):
            if isinstance(action, Start):
                self.started.append(action.job.id)
                self.scheduler.step(self.now, [Started(action.job.id, action.attempt)])

    def submit(self, name: str, script: str = "", **more: object) -> None:
        launch = Launch(("python", *(script or f"{name}.py").split()))
        fields: dict[str, Any] = {"preemptible": False, "launch": launch, **more}
        job = Job(JobId(name), self.now, **fields)
        self.tell(Submitted(job))

    def report(
        self, name: str, mem_gb: float, steps: float = 50.0, held_gb: float | None = None
    ) -> None:
        report = Report(mem_gb=mem_gb, steps=steps, held_gb=held_gb)
        self.tell(Reported(JobId(name), self.attempt(name), report))

    def observe(self, name: str, peak_gb: float) -> None:
        self.tell(Observed(JobId(name), self.attempt(name), peak_gb))

    def finish(self, name: str) -> None:
        self.tell(Finished(JobId(name), self.attempt(name)))

    def attempt(self, name: str) -> int:
        table = self.scheduler.state.table
        return int(table.get(table.row(JobId(name)), TableColumns.ATTEMPT))

    def held(self) -> list[Allocation]:
        return [on for on in self.scheduler.state.table.allocations if on is not None]

    def shares(self) -> dict[str, float]:
        table = self.scheduler.state.table
        return {
            job.id: round(on.sharing.share, 3)
            for job, on in zip(table.jobs, table.allocations, strict=True)
            if on is not None
        }
