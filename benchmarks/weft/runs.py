"""Simulate cases one at a time, and keep what came out: a rerun goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import ROOT, fingerprint
from benchmarks.weft.cases import Case
from weft.app.simulate.setup import Setup, read_resize
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import World, world_of
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Job
from weft.core.model.trace import Trace
from weft.core.plan.policy import Policy
from weft.core.spec.registry import build
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.goodput.pooled import Key, MeasurementPool, PooledBeliefs, groups_of
from weft.perf.goodput.tables import read_tables
from weft.traces.read import load

OUT = ROOT / "out" / "weft_runs.json"
METRICS = ("avg_jct_h", "p50_jct_h", "p99_jct_h", "makespan_h", "worst_ftf", "restarts_per_job")
# What results of the policies that read pooled beliefs depend on, beside the simulator.
OURS = ("policies/weft", "pieces/size", "pieces/order", "pieces/place", "perf/goodput", "solve")

Numbers = dict[str, float]


class Runs:
    """Results by case, on disk after every simulation; `fresh` begins anew."""

    def __init__(self, data: Path, *, fresh: bool = False) -> None:
        self._data = data
        self._known: dict[str, Numbers] = {}
        if OUT.is_file() and not fresh:
            self._known = json.loads(OUT.read_text())

    def has(self, case: Case) -> bool:
        """Whether it was simulated before."""
        return self._key(case) in self._known

    def get(self, case: Case) -> Numbers:
        """Simulate, unless that was done before."""
        key = self._key(case)
        if key not in self._known:
            self._known[key] = simulate(self._data, case)
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(self._known, indent=1))
        return self._known[key]

    def _key(self, case: Case) -> str:
        mine = build("policy", case.policy).about.pools
        return f"{case.key} | {fingerprint(OURS)}" if mine else case.key


def simulate(data: Path, case: Case) -> Numbers:
    """One simulation with published restart costs, or live ones as measured."""
    began = time.process_time()
    policy: Policy = build("policy", case.policy)
    cluster = parse_cluster(case.cluster)
    trace = load(data / "workloads" / f"{case.file}.csv")
    trace = hasten(trace, case.arrivals)
    setup = Setup(trace, policy, profiles=str(data / "profiles"), resize=case.resize)
    world = world_of(setup, trace, cluster, policy.about)
    if case.unlabelled:
        world = hide_labels(world, data, case.unlabelled)
    run = wire(world, cluster, policy, live=read_resize(case.resize))
    outcome = run.outcome(case.policy)
    numbers = {name: outcome.metrics[name] for name in METRICS}
    numbers["resizes_per_job"] = float(run.physics.resized.mean())
    return {**numbers, "cpu_s": time.process_time() - began}


def hasten(trace: Trace, times: float) -> Trace:
    """The same jobs, arriving so many times as fast."""
    if times == 1.0:
        return trace
    jobs = tuple((replace(job, submitted=job.submitted / times), truth) for job, truth in trace)
    return replace(trace, jobs=jobs)


def hide_labels(world: World, data: Path, part: float) -> World:
    """The same, where this part of jobs tell nobody which model they train."""

    def keys(job: Job) -> tuple[Key, ...]:
        digest = hashlib.sha256(job.id.encode()).digest()
        hidden = int.from_bytes(digest[:4]) < part * 2**32
        return (("", job.id),) if hidden else groups_of(job)

    facts = MeasuredFacts(read_tables(data / "profiles"))
    return replace(world, pooled=PooledBeliefs(facts, pool=MeasurementPool(keys)))
