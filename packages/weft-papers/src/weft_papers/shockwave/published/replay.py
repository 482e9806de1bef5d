"""One run of a policy on one of the authors' traces, as their simulator would make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job
from weft.core.model.trace import Trace
from weft.core.plan.policy import Policy
from weft.core.scheduler import Scheduler
from weft.formulas.training.regimes import Regimes, regimes_of
from weft.sim.driver import Simulation
from weft.sim.physics import Milestone, Physics
from weft.traces.formats.shockwave import read_tables
from weft.traces.options import Options
from weft.traces.read import find
from weft_papers.published import build_named
from weft_papers.shockwave.published.others import EqualParts, MatchedLines
from weft_papers.shockwave.published.rounds import (
    ROUND_S,
    AtPresentSpeed,
    InRounds,
    ProfiledEpochs,
    StepBeliefs,
    read_rows,
)

UNFAIR = 1.05
THEIRS: dict[str, Callable[[], Policy]] = {
    "allox, as theirs": lambda: MatchedLines(objective="shortest-job", reset=1000.0, round=ROUND_S),
    "gandiva_fair, as theirs": lambda: EqualParts(reset=1000.0, round=ROUND_S),
}


@dataclass(frozen=True, slots=True)
class ReplayGround:
    """A trace, the table it was measured with, and the GPUs it runs on."""

    trace: str
    tables: str
    gpus: int


GROUNDS = {
    120: ReplayGround("canonical_120jobs_32gpus.trace", "tacc_throughputs.json", 32),
    220: ReplayGround("scale_220jobs_64gpus.trace", "wisr_throughputs.json", 64),
    460: ReplayGround("scale_460jobs_128gpus.trace", "wisr_throughputs.json", 128),
    900: ReplayGround("scale_900jobs_256gpus_a.trace", "wisr_throughputs.json", 256),
}


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Seconds, finish-time fairness by the authors' definition, and the slowest decision."""

    makespan: float
    jct: float
    rho: float
    unfair: float
    slowest_s: float


class Rounds(Physics):
    """Physics that tells jobs which round it is."""

    def __init__(self, trace: Trace, truth: InRounds) -> None:
        super().__init__(trace, truth)
        self._clock = truth.clock

    def update_progress(self, now: float, seq: int) -> Milestone:
        self._clock.round = round(now / ROUND_S)
        return super().update_progress(now, seq)


def load(folder: Path, jobs: int) -> Trace:
    """The trace, with profiled epochs in whole seconds as Shockwave is given them."""
    ground = GROUNDS[jobs]
    options = Options(tables=str(folder / ground.tables))
    trace = find(str(folder / ground.trace), options=options)
    return replace(trace, jobs=tuple((_in_whole_seconds(job), truth) for job, truth in trace))


def run(folder: Path, jobs: int, policy: str) -> ReplayOutcome:
    """Replay rounds until every job is done."""
    ground, trace = GROUNDS[jobs], load(folder, jobs)
    truth = InRounds(read_tables(folder / ground.tables), read_rows(folder / ground.trace))
    physics, cluster = Rounds(trace, truth), parse_cluster(f"1x{ground.gpus}:v100")
    decider = THEIRS[policy]() if policy in THEIRS else build_named(policy)
    known = Knowledge(AtPresentSpeed(truth), StepBeliefs(truth), None, ProfiledEpochs(truth, trace))
    simulation = Simulation(Scheduler(decider, cluster, knowledge=known), physics, cluster)
    simulation.run()
    jct = physics.ended_at - np.array([job.submitted for job, _ in trace])
    alone = np.array([truth.length for _, truth in trace])
    rho = jct / (alone * max(1.0, len(trace) / ground.gpus))
    return ReplayOutcome(
        float(physics.ended_at.max()),
        float(jct.mean()),
        float(rho.max()),
        100.0 * float((rho > UNFAIR).mean()),
        max(simulation.counts.decide_s),
    )


def _in_whole_seconds(job: Job) -> Job:
    declared = regimes_of(job)
    assert declared is not None
    seconds = {batch: max(1.0, round(took)) for batch, took in declared.epoch_s.items()}
    whole = Regimes(declared.epochs, seconds, declared.samples)
    return replace(job, hints={**job.hints, **whole.hints()})
