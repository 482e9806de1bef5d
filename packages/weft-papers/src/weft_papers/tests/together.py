"""Simulations of policies that let jobs share devices, for the tests of their papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.core.events.event import Decided, Event, Started, Stopped
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.policy import Policy
from weft.core.protocols import PerfModel
from weft.core.scheduler import Scheduler
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.physics import ChangeTerms, Physics


@dataclass(frozen=True)
class Done:
    """What became of every job, and the log."""

    end: dict[str, float]
    start: dict[str, float]
    log: list[tuple[float, Event]]
    physics: Physics

    def decisions(self) -> list[tuple[float, Decided]]:
        """Decisions that changed something."""
        return [(at, e) for at, e in self.log if isinstance(e, Decided) and e.changes]

    def started(self) -> list[tuple[float, str]]:
        """Every start, in order."""
        return [(at, e.job) for at, e in self.log if isinstance(e, Started)]

    def stopped(self) -> list[tuple[float, str]]:
        """Every stop, in order."""
        return [(at, e.job) for at, e in self.log if isinstance(e, Stopped)]


def job(
    name: str,
    gpus: int = 1,
    at: float = 0.0,
    model: str = "",
    hints: Mapping[str, float] | None = None,
) -> Job:
    return Job(JobId(name), at, Demand(gpus), model=model, hints=hints or {})


def together(
    policy: Policy,
    jobs: Sequence[tuple[Job, float]],
    cluster: str,
    coupling: Colocated | None = None,
    perf: PerfModel | None = None,
    seed: int = 0,
) -> Done:
    """Simulate jobs of known length on a cluster."""
    trace = Trace("test", tuple((job, Truth(length)) for job, length in jobs))
    machines = parse_cluster(cluster)
    coupling = coupling or Colocated(profile_of)
    physics = Physics(
        trace,
        perf or Replay(0.0),
        coupling=coupling,
        terms=ChangeTerms(resume_s=policy.about.resume_s),
    )
    log: list[tuple[float, Event]] = []
    scheduler = Scheduler(
        policy,
        machines,
        knowledge=Knowledge(Oracle(physics.remaining), LinearBeliefs(), coupling),
        seed=seed,
        journal=lambda at, event: log.append((at, event)),
    )
    Simulation(scheduler, physics, machines, seed=seed).run()
    names = [job.id for job, _ in jobs]
    return Done(
        dict(zip(names, physics.ended_at.tolist(), strict=True)),
        dict(zip(names, physics.first_start.tolist(), strict=True)),
        log,
        physics,
    )
