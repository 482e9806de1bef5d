"""IADeep against other ways to share, on a generated workload.

    python -m weft_papers.iadeep.published

The eight models of the paper's evaluation, one GPU each, on 20 GPUs of 24 GB as in the paper;
arrivals and lengths are drawn (`colocated` of `weft list trace`), step times and noise scales are
ours (`weft.perf.sharing.batching`). Speeds side by side are by the package's interference model,
under the driver's time slicing or MPS. AntMan is given every second job as opportunistic; Gandiva
takes turns and packs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import JobId, Tier
from weft.core.model.trace import Trace
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.protocols import DeviceSharing
from weft.core.scheduler import Scheduler
from weft.core.state.cells import Floats
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.batching import find_batching
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, profile_of
from weft.predict.none import NoPredictor
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.traces.options import DrawRequest
from weft.traces.synthetic.colocated import CLUSTER, JOBS, LOAD, generate
from weft_papers.iadeep.policy import IADeepMemory
from weft_papers.published import build_named

SEEDS = (0, 1, 2)
FIRST = "one at a time"


class SharingWay(NamedTuple):
    """A way to run the jobs: who decides, how the device is shared, and whether by tiers."""

    name: str
    policy: str
    sharing: DeviceSharing = "timeslicing"
    tiers: bool = False


WAYS = (
    SharingWay("one at a time", "fifo"),
    SharingWay("AntMan", "antman", tiers=True),
    SharingWay("Gandiva's turns", "gandiva"),
    SharingWay("time slices", "iadeep:tune=false"),
    SharingWay("MPS", "iadeep:tune=false", "mps"),
    SharingWay("IADeep", "iadeep"),
    SharingWay("IADeep, MPS", "iadeep", "mps"),
    SharingWay("IADeep's code", "authors/iadeep"),
)


def main() -> int:
    """Print mean completion time and makespan of every policy; fail where tuning does not pay."""
    print(f"{JOBS} jobs on {CLUSTER}, load {LOAD}, seeds {SEEDS}; to one at a time")
    print(f"{'way':<16} {'mean JCT':>9} {'makespan':>9} {'hours':>7} {'fullest GPU, GB':>16}")
    mean: dict[str, float] = {}
    last: dict[str, float] = {}
    watched: list[WatchedSearches] = []
    for case in WAYS:
        runs = [simulate(drawn(seed, case), case, seed) for seed in SEEDS]
        mean[case.name] = float(np.mean([run.completion.mean() for run in runs]))
        last[case.name] = float(np.mean([run.makespan for run in runs]))
        fullest = max(run.watched.fullest_gb for run in runs)
        jct, span = mean[case.name] / mean[FIRST], last[case.name] / last[FIRST]
        hours = mean[case.name]
        print(
            f"{case.name:<16} {jct:>9.3f} {span:>9.3f} {hours:>7.3f} {fullest:>16.1f}", flush=True
        )
        if case.name == "IADeep":
            watched = [run.watched for run in runs]
    curves = [curve for job in watched for curve in job.curves()]
    gains = [1.0 - min(curve) / curve[0] for curve in curves]
    probes = [len(curve) for curve in curves]
    print(
        f"{len(curves)} searches of {np.mean(probes):.1f} measurements; degradation "
        f"{np.mean(gains):.1%} lower in the mean, {np.max(gains):.1%} at most"
    )
    rivals = (FIRST, "Gandiva's turns", "time slices")
    won = all(mean["IADeep"] < mean[r] and last["IADeep"] < last[r] for r in rivals)
    return 0 if won else 1


@dataclass(frozen=True, slots=True)
class Run:
    """Hours from submission to end of every job, the makespan, and what was watched."""

    completion: Floats
    makespan: float
    watched: WatchedSearches


@dataclass(slots=True)
class WatchedSearches:
    """A policy whose searches and whose use of memory are written down."""

    inner: Policy
    fullest_gb: float = 0.0
    searches: dict[tuple[str, float], tuple[float, ...]] = field(default_factory=dict)
    _began: dict[str, tuple[tuple[JobId, ...], float]] = field(default_factory=dict)

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        plan = self.inner.decide(view)
        self._weigh(view, plan)
        if isinstance(plan.memory, IADeepMemory):
            for key, session in plan.memory.sessions.items():
                if self._began.get(key, ((), 0.0))[0] != session.jobs:
                    self._began[key] = session.jobs, view.now
                if session.values:
                    self.searches[key, self._began[key][1]] = session.values
        return plan

    def curves(self) -> list[list[float]]:
        """Degradation measured, probe by probe, of every search that got to a second one."""
        return [list(values) for values in self.searches.values() if len(values) > 1]

    def _weigh(self, view: View, plan: Plan) -> None:
        used: dict[tuple[str, int], float] = {}
        for job, on in view.after(plan).items():
            known = find_batching(view.job(view.table.row(job)))
            assert known is not None
            batch = known.known.init if on.batch is None else on.batch.per_gpu
            for part in on.slices:
                device = part.node, part.gpus[0]
                used[device] = used.get(device, 0.0) + known.known.mem_gb(batch)
        self.fullest_gb = max((self.fullest_gb, *used.values()))


def drawn(seed: int, case: SharingWay) -> Trace:
    """The workload of a seed; every second job opportunistic where the case has tiers."""
    trace = generate(DrawRequest(seed=seed))
    if not case.tiers:
        return trace
    tiers = (Tier.GUARANTEED, Tier.OPPORTUNISTIC)
    jobs = [(replace(job, tier=tiers[at % 2]), truth) for at, (job, truth) in enumerate(trace)]
    return replace(trace, jobs=tuple(jobs))


def simulate(trace: Trace, case: SharingWay, seed: int) -> Run:
    """Simulate one way of placing on one workload."""
    cluster = parse_cluster(CLUSTER)
    together = Colocated(profile_of, Unordered(case.sharing), batching=find_batching)
    physics = Physics(trace, Replay(), coupling=together)
    watched = WatchedSearches(build_named(case.policy))
    scheduler = Scheduler(
        watched, cluster, knowledge=Knowledge(NoPredictor(), LinearBeliefs(), together), seed=seed
    )
    Simulation(scheduler, physics, cluster, seed=seed).run()
    submitted = np.array([job.submitted for job, _ in trace])
    hours = (physics.ended_at - submitted) / 3600
    return Run(hours, float(physics.ended_at.max() - submitted.min()) / 3600, watched)


if __name__ == "__main__":
    sys.exit(main())
