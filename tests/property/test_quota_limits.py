"""No tenant goes beyond its limits in a whole run."""

from __future__ import annotations

import pytest

from weft.core.events.event import Decided, Failed, Finished, Stopped
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.testing.build import cluster_of


@pytest.mark.parametrize("inner", ["fifo:backfill=true", "las", "srtf", "optimus", "tiresias"])
def test_no_policy_goes_beyond_the_limit_in_a_whole_run(inner: str) -> None:
    spec = f"quota:limits=a=5/a@t4=2|{inner}"
    cluster = cluster_of("2x4:a100+1x4:t4")
    trace = Trace(
        "t",
        tuple(
            (
                Job(
                    JobId(f"{'ab'[i % 3 == 0]}{i}"),
                    float(7 * i),
                    Demand(1 + i % 4, 1, 4) if i % 2 else Demand(1 + i % 4),
                    tenant="ab"[i % 3 == 0],
                ),
                Truth(60.0 + 37.0 * (i % 7)),
            )
            for i in range(60)
        ),
    )
    physics = Physics(trace, Replay())
    held: dict[str, tuple[str, int]] = {}
    worst = {"any": 0, "t4": 0}
    tenants = {j.id: j.tenant for j, _ in trace}

    def watch(_: float, event: object) -> None:
        if isinstance(event, Decided):
            for name, on in event.changes.items():
                held.pop(name, None)
                if on is not None:
                    held[name] = (cluster.kind_of(on), on.gpus)
            mine = [v for k, v in held.items() if tenants[JobId(k)] == "a"]
            worst["any"] = max(worst["any"], sum(n for _, n in mine))
            worst["t4"] = max(worst["t4"], sum(n for kind, n in mine if kind == "t4"))
        elif isinstance(event, (Finished, Failed, Stopped)):
            held.pop(event.job, None)

    scheduler = Scheduler(
        build("policy", spec),
        cluster,
        knowledge=Knowledge(Oracle(physics.remaining), LinearBeliefs()),
        journal=watch,
    )
    Simulation(scheduler, physics, cluster).run()

    assert worst["any"] <= 5
    assert worst["t4"] <= 2
    assert worst["any"] >= 4
