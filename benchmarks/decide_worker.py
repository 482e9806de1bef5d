"""What it costs to decide in a worker: 500 running and 5,000 waiting jobs.

    python -m benchmarks.decide_worker [POLICY ...]

The same decisions, one after each event, in this process and through a worker: medians of the wall
time of a decision, and what the worker adds. Also how long a new worker takes to be ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time

from weft.core.events.event import Cancelled, Event, NodeUp, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import read_spec
from weft.perf.linear import LinearBeliefs
from weft.predict.hinted import Hinted
from weft.runtime.deciding.decider import Decider, InProcess, InWorker
from weft.runtime.deciding.live_policy import live_policy

RUNNING, WAITING, ROUNDS = 504, 5_000, 50


async def decisions(policy: str, decider: Decider) -> tuple[float, list[float]]:
    """Seconds of the first decision, and of each one after it."""
    spec = read_spec("policy", policy)
    log: list[tuple[float, Event]] = []
    scheduler = Scheduler(
        live_policy(spec),
        parse_cluster("1x1:v100"),
        knowledge=Knowledge(Hinted(), LinearBeliefs()),
        journal=lambda at, event: log.append((at, event)),
    )

    def apply_events(now: float, events: list[Event]) -> None:
        log.clear()
        scheduler.apply_events(now, events)
        for at, event in log:
            decider.add_event(at, event)

    async def decide(now: float) -> float:
        began = time.perf_counter()
        plan = await decider.plan(scheduler, spec, now)
        log.clear()
        scheduler.adopt(now, plan)
        for at, event in log:
            decider.add_event(at, event)
        return time.perf_counter() - began

    await decider.start()
    nodes: list[Event] = [NodeUp(node) for node in parse_cluster("63x8:a100").nodes]
    apply_events(0.0, nodes + [_submitted(i) for i in range(RUNNING + WAITING)])
    first = await decide(1.0)
    took = []
    for i in range(ROUNDS):
        now = 2.0 + i
        apply_events(now, [Cancelled(JobId(f"j{i}")), _submitted(100_000 + i)])
        took.append(await decide(now))
    await decider.close()
    return first, took


def _submitted(i: int) -> Submitted:
    length = 60.0 + i % 541
    return Submitted(Job(JobId(f"j{i}"), demand=Demand(1), hints={"duration_s": length}))


def main() -> None:
    """Measure each policy both ways."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decide_worker")
    parser.add_argument("policies", nargs="*", default=["fifo", "las", "priority|no_preempt|srtf"])
    for policy in parser.parse_args().policies:
        _, here = asyncio.run(decisions(policy, InProcess()))
        first, apart = asyncio.run(decisions(policy, InWorker(limit_s=120.0)))
        alone, through = statistics.median(here), statistics.median(apart)
        print(
            json.dumps(
                {
                    "policy": policy,
                    "in_process_ms": round(alone * 1e3, 2),
                    "in_worker_ms": round(through * 1e3, 2),
                    "added_ms": round((through - alone) * 1e3, 2),
                    "first_ms": round(first * 1e3, 1),
                }
            )
        )


if __name__ == "__main__":
    main()
