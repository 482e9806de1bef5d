"""CPU milliseconds of a step with very many waiting jobs, printed: one side of `before_after`.

Run by its path with the package of either revision: it reads nothing else of this folder.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from benchmarks.decision_scaling import an_end
from weft.core.events.actions import Start
from weft.core.events.event import Event, Started, Submitted
from weft.core.events.job_end import Ended
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.perf.linear import LinearBeliefs

STEPS, ENDED = 12, 2_000


def main(policy: str, predictor_name: str, count: int) -> float:
    """The median of steps in which one job ends and another comes."""
    rng = np.random.default_rng(0)
    total = count + STEPS + ENDED
    sizes = rng.choice([1, 1, 1, 2, 4, 8], total).tolist()
    jobs = [
        Job(JobId(f"j{i}"), demand=Demand(size), user=f"u{i % 64}", model=f"m{i % 200}")
        for i, size in enumerate(sizes)
    ]
    predictor = build("predictor", predictor_name)
    for job, length in zip(jobs[-ENDED:], rng.lognormal(7.0, 2.0, ENDED).tolist(), strict=True):
        predictor.learn(Ended(job, length, length * job.demand.gpus, True))
    scheduler = Scheduler(
        build("policy", policy),
        parse_cluster("64x8:v100"),
        knowledge=Knowledge(predictor, LinearBeliefs()),
    )
    _settle(scheduler, 0.0, [Submitted(job) for job in jobs[:count]])
    took = []
    for i in range(STEPS):
        events = [an_end(scheduler), Submitted(jobs[count + i])]
        began = time.process_time()
        _settle(scheduler, 10.0 * (i + 1), events)
        took.append(time.process_time() - began)
    return 1e3 * statistics.median(took)


def _settle(scheduler: Scheduler, now: float, events: list[Event]) -> None:
    while events:
        acts = scheduler.step(now, events)
        events = [Started(act.job.id, act.attempt) for act in acts if isinstance(act, Start)]


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
