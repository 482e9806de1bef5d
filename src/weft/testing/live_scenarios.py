"""Random scenarios on a live scheduler: whatever people do, decisions go on.

A scenario is drawn from a seed: a cluster, a policy under rules, and what people do to it over a
few hours, which pass in virtual time on the simulated engine. It is played through the real
driver, and looked at after every step: no policy may fail, no reason may be wrong, and when
people have gone every job comes to its end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.app.serve.live import Live, Settings
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import After, Allocation, BatchRange, Demand, Job, JobId, NodeId, Tier
from weft.core.model.launch import Launch
from weft.core.plan.about import Controls
from weft.core.plan.reasons import Blocker, Reason
from weft.core.spec.registry import names
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import fewest_nodes
from weft.runtime.deciding.waiting import waits_of, why_waits
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import resume, set_priority, suspend
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.status import JobStatus
from weft.testing.check import draw_on_nodes
from weft.testing.virtual_time import run_virtually

CLUSTERS = ("1x4:v100", "2x2:v100", "3x4:v100", "1x8:a100", "2x4:v100+1x8:a100", "1x1:t4+2x4:a100")
WRAPPERS = (
    "spare|priority|firm|steady|",
    "spare|quota:limits=red=3/blue=4|priority|firm|steady|",
    "spare|quota:weights=red=1/blue=3|priority|firm|steady|",
    "quota:limits=red=2,weights=red=1/blue=1|priority|firm|",
    "spare|lend:own=red=2/blue=1,min_run_s=60|priority|firm|steady|",
    "lend:own=red=1/blue=2/all=4,parents=red=all/blue=all,min_run_s=0|priority|firm|",
    "priority|firm|",
    "priority|",
    "firm|",
    "steady|",
    "",
)
STEPS = 24
COMMANDS = {"suspend": 0.0, "resume": 0.0, "lower": -1.0, "usual": 0.0, "raise": 1.0}
PAUSES_S = (0.0, 0.0, 0.5, 5.0, 70.0, 400.0)
SETTLED_S = 1.1  # until a decision that was put off has been made
PATIENCE_S = 4 * 86_400.0  # until every job must have ended, after people have gone


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a person does `after_s` seconds: submit `job`, or `what` to `whom`."""

    after_s: float
    what: str
    whom: str = ""
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played, and the seed it was drawn from."""

    seed: int
    cluster: str
    policy: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, and when."""

    seed: int
    policy: str
    step: int
    what: str


def draw(seed: int, policies: Sequence[str] = (), wrappers: Sequence[str] = WRAPPERS) -> Scenario:
    """A scenario; `policies` are all there are by default."""
    rng = np.random.default_rng(seed)
    text = str(rng.choice(CLUSTERS))
    cluster = parse_cluster(text)
    policy = str(rng.choice(policies or names("policy")))
    wrapper = str(rng.choice(wrappers))
    steps: list[Step] = []
    submitted: list[str] = []
    for _ in range(int(rng.integers(4, STEPS))):
        step = _step(rng, cluster, submitted)
        submitted += [step.whom] if step.job is not None else []
        steps.append(step)
    return Scenario(seed, text, wrapper + policy, tuple(steps))


def play(scenario: Scenario) -> Problem | None:
    """The first thing that goes wrong; None if nothing does."""
    return run_virtually(lambda seconds: _Play(scenario, seconds).whole())


class _Play:
    """One scenario under way."""

    def __init__(self, scenario: Scenario, seconds: Callable[[], float]) -> None:
        self._scenario = scenario
        engine = f"simulated:cluster={scenario.cluster},speed=1"
        self._live = Live(Settings(engine=engine, policy="fifo", decide_in="service"), seconds)
        self._refused: set[JobId] = set()

    async def whole(self) -> Problem | None:
        """Play every step, let everybody go, and wait for the end."""
        driver = self._live.driver
        await self._live.open()
        try:
            await driver.set_policy(self._scenario.policy)
            for number, step in enumerate(self._scenario.steps):
                await asyncio.sleep(step.after_s)
                await self._do(driver, step)
                if wrong := self._wrong(driver):
                    return self._problem(number, wrong)
            for node, _ in driver.nodes():
                await driver.undrain(node.id)
            for one in driver.jobs():
                await resume(driver, one.record.job.id)
            for job in self._impossible(driver):
                await driver.cancel(job)
            await asyncio.sleep(SETTLED_S)
            return await self._to_the_end(driver)
        finally:
            await driver.close()

    def _impossible(self, driver: Driver) -> list[JobId]:
        """Jobs that alone would take their tenant beyond its limit."""
        limits = dict(re.findall(r"(red|blue)=(\d+)", _limits(self._scenario.policy)))
        return [
            one.record.job.id
            for one in driver.jobs()
            if one.record.job.demand.min > int(limits.get(one.record.job.tenant, 99))
        ]

    async def _do(self, driver: Driver, step: Step) -> None:
        if step.job is not None:
            await self._submit(driver, step.job)
        elif step.what == "cancel" and step.whom not in self._refused:
            await driver.cancel(JobId(step.whom))
        elif step.what in COMMANDS and step.whom not in self._refused:
            await self._command(driver, step.what, JobId(step.whom))
        elif step.what == "drain":
            await driver.drain(NodeId(step.whom))
        elif step.what == "undrain":
            await driver.undrain(NodeId(step.whom))
        await asyncio.sleep(SETTLED_S)

    async def _command(self, driver: Driver, what: str, job: JobId) -> None:
        if what == "suspend":
            await suspend(driver, job, "its owner")
        elif what == "resume":
            await resume(driver, job)
        else:
            level = COMMANDS[what]
            tier = Tier.OPPORTUNISTIC if level < 0 else Tier.GUARANTEED
            await set_priority(driver, job, level, tier)

    async def _submit(self, driver: Driver, job: Job) -> None:
        try:
            await driver.submit(job)
        except InvalidConfig:
            if self._refused.isdisjoint(job.after.jobs):  # the one before it was refused itself
                raise
            self._refused.add(job.id)

    async def _to_the_end(self, driver: Driver) -> Problem | None:
        waited = 0.0
        while unfinished := [one for one in driver.jobs() if not one.record.outcome]:
            if wrong := self._wrong(driver):
                return self._problem(-1, wrong)
            if waited > PATIENCE_S:
                return self._problem(-1, f"never ends: {_list(unfinished)}")
            await asyncio.sleep(600.0)
            waited += 600.0
        return None

    def _wrong(self, driver: Driver) -> str:
        if driver.trouble:
            return driver.trouble
        waits = waits_of(driver)
        table = driver.scheduler.state.table
        if held := [job for job in table.suspended if table.allocations[table.row(job)]]:
            return f"{', '.join(held)} hold devices although they are suspended"
        for job, on in zip(table.jobs, table.allocations, strict=True):
            if on is not None and not _keeps_nodes(job, on):
                return f"{job.id} asks for {job.demand.nodes} nodes and is on {on.devices}"
        for one in driver.jobs():
            if one.state in ("pending", "preempted"):
                why = why_waits(waits, driver.scheduler, one.record)
                if why is not None and not _true(driver, one.record, why):
                    return f"{one.record.job.id} is told what is not so: {why.text}"
        return ""

    def _problem(self, step: int, what: str) -> Problem:
        return Problem(self._scenario.seed, self._scenario.policy, step, what)


def _true(driver: Driver, record: JobRecord, why: Reason) -> bool:
    """Whether a reason holds, found out by other means than those that gave it."""
    job, state = record.job, driver.scheduler.state
    if why.blocker in (Blocker.DEPENDENCY, Blocker.PARALLEL) or not job.demand.max:
        return _is_kept_back(driver, job, why)
    sized = Controls.COUNT in driver.scheduler.policy.about.controls
    least = job.demand.min if sized else job.demand.gpus
    place, fits = _find_place(job, least, state.free)
    away = [node for node, word in driver.nodes() if word != "up" and _runs_on(job, node)]
    holds = {
        Blocker.GPUS: place is None,
        Blocker.NODES: place is None and job.demand.nodes > 0,
        # Nobody waits beside GPUs that it could use, unless the policy says that this may be.
        Blocker.TURN: fits and bool(driver.scheduler.policy.about.idles),
        Blocker.ROUND: fits,
        Blocker.CPUS: not fits,
        Blocker.MEMORY: not fits,
        Blocker.STEADY: sized,
        Blocker.QUOTA: _over(driver, job, least * job.demand.share, why.text),
        Blocker.FALLBACK: bool(driver.trouble),
        Blocker.AWAY: place is None and bool(away),
        Blocker.FAILED: record.starts > 0,
        Blocker.SAID: sized,  # who chooses sizes may say what one would be worth
    }
    return holds.get(why.blocker, True)


def _find_place(job: Job, least: int, free: Capacity) -> tuple[Allocation | None, bool]:
    """Where the usual placer would put a job, and whether it fits there or on any other device."""
    demand = replace(job.demand, gpus=least, min=least)
    place = fewest_nodes(replace(job, demand=demand), free)
    if place is None or free.fits(place) or demand.share == 1.0:
        return place, place is not None and free.fits(place)
    sharing = place.sharing
    others = (
        Allocation((free.slice_of(i, 1 << gpu, demand.share),), sharing)
        for i, node in enumerate(free.cluster.nodes)
        if not demand.kinds or node.kind in demand.kinds
        for gpu in range(node.gpus)
    )
    return place, any(map(free.fits, others))


def _is_kept_back(driver: Driver, job: Job, why: Reason) -> bool:
    """Whether something else than devices keeps a job waiting, as it is told."""
    table = driver.scheduler.state.table
    held = [
        other
        for other, on in zip(table.jobs, table.allocations, strict=True)
        if on is not None or other.demand.max == 0
    ]
    row = table.row(job.id)
    before = {other.id for other in (*held, *table.jobs[:row])} - {job.id}
    beside = sum(
        other.app == job.app and other.tenant == job.tenant and other.id in before
        for other in table.jobs
    )
    holds = {
        Blocker.DEPENDENCY: any(other in table for other in job.after.jobs),
        Blocker.PARALLEL: beside >= job.max_parallel > 0,
        Blocker.TURN: False,  # a job without devices is kept back by rounds alone
        Blocker.ROUND: driver.scheduler.policy.about.every is not None,
        Blocker.CPU_JOBS: any(other.demand.max == 0 and other.id != job.id for other in held),
    }
    return holds.get(why.blocker, True)


def _over(driver: Driver, job: Job, asks: float, told: str) -> bool:
    """Whether a job that is told of a quota would go beyond it."""
    table = driver.scheduler.state.table
    held = sum(
        on.gpus * on.sharing.share
        for other, on in zip(table.jobs, table.allocations, strict=True)
        if on is not None and other.tenant == job.tenant
    )
    limit = re.search(r"would hold more than ([\d.]+) GPUs", told)
    rounds = driver.scheduler.policy.about.every is not None  # told at the last one
    return rounds or limit is None or held + asks > float(limit[1])


def _keeps_nodes(job: Job, on: Allocation) -> bool:
    nodes = job.demand.nodes
    return not nodes or [len(part.gpus) for part in on.slices] == [on.gpus // nodes] * nodes


def _runs_on(job: Job, node: Node) -> bool:
    return not job.demand.kinds or node.kind in job.demand.kinds


def _limits(policy: str) -> str:
    found = re.search(r"quota:limits=([^,|]*)", policy)
    return found[1] if found else ""


def _list(jobs: Sequence[JobStatus]) -> str:
    return ", ".join(f"{one.record.job.id} {one.state} {one.record.reason}" for one in jobs[:4])


def _step(rng: np.random.Generator, cluster: Cluster, submitted: Sequence[str]) -> Step:
    pause = float(rng.choice(PAUSES_S))
    dice = rng.random()
    node = str(rng.choice([node.id for node in cluster.nodes]))
    if dice < 0.1:
        return Step(pause, "drain", node)
    if dice < 0.22:
        return Step(pause, "undrain", node)
    if dice < 0.38 and submitted:
        return Step(pause, "cancel", str(rng.choice(submitted)))
    if dice < 0.55 and submitted:
        return Step(pause, str(rng.choice([*COMMANDS])), str(rng.choice(submitted)))
    name = f"j{len(submitted)}"
    return Step(pause, "submit", name, _in_order(rng, _job(rng, name, cluster), submitted))


def _in_order(rng: np.random.Generator, job: Job, submitted: Sequence[str]) -> Job:
    """Jobs without devices, after others, of a sweep; and most that are none of these."""
    dice = rng.random()
    if dice < 0.1:
        return replace(job, demand=Demand(0), batch=None, cpus=1.0)
    if dice < 0.2 and submitted:
        other = (JobId(str(rng.choice(submitted))),)
        ways = (After(ok=other), After(any=other), After(not_ok=other))
        return replace(job, after=ways[int(rng.integers(len(ways)))])
    if dice < 0.3:
        return replace(job, app="sweep", max_parallel=2)
    return job


def _job(rng: np.random.Generator, name: str, cluster: Cluster) -> Job:
    kinds = () if rng.random() < 0.75 else (str(rng.choice(cluster.kinds)),)
    room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
    length = float(rng.choice([5.0, 60.0, 600.0, 3000.0]))
    gpus = min(int(rng.choice([1, 1, 1, 2, 2, 3, 4, 8])), room)
    level = int(rng.choice([-1, 0, 0, 0, 1]))
    job = Job(
        JobId(name),
        demand=Demand(gpus, kinds=kinds),
        tenant=str(rng.choice(["red", "blue"])),
        model=str(rng.choice(["", "resnet50"])),
        priority=float(level),
        tier=Tier.OPPORTUNISTIC if level < 0 else Tier.GUARANTEED,
        hints={"duration_s": length} if rng.random() < 0.7 else {},
        preemptible=bool(rng.random() < 0.6),
        shareable=bool(rng.random() < 0.85),
        launch=Launch(("true",), retries=3, backoff_s=2.0),
    )
    return _of_some_sort(rng, job, cluster, length)


def _of_some_sort(rng: np.random.Generator, job: Job, cluster: Cluster, length: float) -> Job:
    """Parts of a device, elastic, adaptive or failing jobs, gangs on given nodes, plain ones."""
    dice, demand = rng.random(), job.demand
    room = max(cluster.gpus_by_kind[kind] for kind in demand.kinds or cluster.kinds)
    if dice < 0.15:
        share = float(rng.choice([0.25, 0.5, 0.6]))
        return replace(job, demand=Demand(1, kinds=demand.kinds, share=share), shareable=True)
    if dice < 0.4:
        most = min(room, max(2 * demand.gpus, 2))
        elastic = Demand(1, 1, most, demand.kinds)
        batch = BatchRange(32, 1024, 256) if rng.random() < 0.5 else None
        return replace(job, demand=elastic, batch=batch, preemptible=True)
    if dice < 0.5:
        return replace(job, hints={"duration_s": length, "fails_at_s": length / 2})
    if dice < 0.62:
        return replace(job, demand=draw_on_nodes(rng, cluster, demand.kinds))
    return job
