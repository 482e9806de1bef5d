"""Random scenarios on a live scheduler: whatever people do, decisions go on.

A scenario is drawn from a seed: a cluster, a policy under rules, and what people do to it over a
few hours, which pass in virtual time on the simulated engine. It is played through the real
driver, and looked at after every step: no policy may fail, no reason may be wrong, and when
people have gone every job comes to its end.
"""

from __future__ import annotations

import asyncio
import re
import selectors
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import patch

from tests.scenarios.drawn import COMMANDS, DrawnScenario, ScenarioStep
from tests.scenarios.rules_play import RuleViolation
from weft.app.serve.live import Live, Settings
from weft.app.serve.rules import RESERVE, Quotas
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Tier
from weft.core.plan.about import Controls
from weft.core.plan.reasons import Blocker, Reason
from weft.core.spec.registry import read_spec
from weft.core.state.capacity import Capacity
from weft.pieces.place.gangs import fewest_nodes
from weft.runtime.deciding.waiting import waits_of, why_waits
from weft.runtime.loop import leading
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import resume, set_priority, suspend
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.status import JobStatus
from weft.stack.layers import in_order
from weft.stack.windows import DRAIN, kept_away, read_window
from weft.testing.idle import find_user

SETTLED_S = 1.1  # until a decision that was put off has been made
PATIENCE_S = 4 * 86_400.0  # until every job must have ended, after people have gone


def play(
    scenario: DrawnScenario, at_end: Callable[[Driver], None] | None = None
) -> RuleViolation | None:
    """The first thing that goes wrong; None if nothing does. `at_end` looks before all is over."""
    return run_virtually(lambda seconds: _Play(scenario, seconds, at_end).whole())


class _Play:
    """One scenario under way."""

    def __init__(
        self,
        scenario: DrawnScenario,
        seconds: Callable[[], float],
        at_end: Callable[[Driver], None] | None = None,
    ) -> None:
        self._scenario, self._at_end = scenario, at_end
        engine = f"simulated:cluster={scenario.cluster},speed=1"
        self._live = Live(Settings(engine=engine, policy="fifo", decide_in="service"), seconds)
        self._refused: set[JobId] = set()
        self._drained: dict[str, str] = {}  # windows of single devices

    async def whole(self) -> RuleViolation | None:
        """Play every step, let all jobs end, and wait for the end."""
        driver = self._live.driver
        await self._live.open()
        try:
            await self._decide_by(driver)
            for number, step in enumerate(self._scenario.steps):
                await asyncio.sleep(step.after_s)
                await self._do(driver, step)
                if wrong := self._wrong(driver):
                    return self._problem(number, wrong)
            for node, _ in driver.nodes():
                await self._use_again(driver, node.id)
            for status in driver.jobs():
                await resume(driver, status.record.job.id)
            for job in self._impossible(driver):
                await driver.cancel(job)
            await asyncio.sleep(SETTLED_S)
            return await self._to_the_end(driver)
        finally:
            if self._at_end is not None:
                self._at_end(driver)
            await driver.close()

    def _impossible(self, driver: Driver) -> list[JobId]:
        """Jobs that alone would take their tenant beyond its limit."""
        limits = dict(re.findall(r"(red|blue)=(\d+)", _limits(self._scenario.policy)))
        return [
            status.record.job.id
            for status in driver.jobs()
            if status.record.job.demand.min > int(limits.get(status.record.job.tenant, 99))
        ]

    async def _do(self, driver: Driver, step: ScenarioStep) -> None:
        if step.job is not None:
            await self._submit(driver, step.job)
        elif step.what == "cancel" and step.whom not in self._refused:
            await driver.cancel(JobId(step.whom))
        elif step.what in COMMANDS and step.whom not in self._refused:
            await self._command(driver, step.what, JobId(step.whom))
        elif step.what == "drain":
            await self._drain(driver, step.whom)
        elif step.what == "undrain":
            await self._use_again(driver, NodeId(step.whom))
        await asyncio.sleep(SETTLED_S)

    async def _drain(self, driver: Driver, what: str) -> None:
        """A machine, or some of its devices, which the service does by a rule."""
        node, single, _ = what.partition(":")
        if not single:
            await driver.drain(NodeId(node))
            return
        self._drained[f"{DRAIN}{what}"] = what
        await self._decide_by(driver)

    async def _use_again(self, driver: Driver, node: NodeId) -> None:
        await driver.undrain(node)
        kept = {k: v for k, v in self._drained.items() if v.partition(":")[0] != node}
        if kept != self._drained:
            self._drained = kept
            await self._decide_by(driver)

    async def _decide_by(self, driver: Driver) -> None:
        """The policy inside its rules, and that of drained devices."""
        policy = read_spec("policy", self._scenario.policy)
        if self._drained:
            rules = {wrapper.name: dict(wrapper.params) for wrapper in policy.wrappers}
            rules[RESERVE] = {"windows": self._drained}
            policy = replace(policy, wrappers=()).inside(*in_order(rules))
        self._live.quotas = Quotas.of(policy)
        await driver.set_policy(policy)

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

    async def _to_the_end(self, driver: Driver) -> RuleViolation | None:
        waited, idle = 0.0, ""
        while unfinished := [status for status in driver.jobs() if not status.record.outcome]:
            before, idle = idle, self._idle(driver)
            if wrong := self._wrong(driver) or (idle if idle == before else ""):
                return self._problem(-1, wrong)
            if waited > PATIENCE_S:
                return self._problem(-1, f"never ends: {_list(unfinished)}")
            await asyncio.sleep(600.0)
            waited += 600.0
        return None

    def _idle(self, driver: Driver) -> str:
        """A job with less than it can use beside idle GPUs, where the policy does not allow that.

        It is wrong only if it lasts: policies with rounds grow no job between them.
        """
        policy, state = driver.scheduler.policy.about, driver.scheduler.state
        if policy.idles:
            return ""
        running = [
            (job, on)
            for job, on in zip(state.table.jobs, state.table.allocations, strict=True)
            if on is not None and on.gpus
        ]
        return find_user(running, state.free, policy.controls)

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
        for status in driver.jobs():
            if status.state in ("pending", "preempted"):
                why = why_waits(waits, driver.scheduler, status.record)
                if why is not None and why.blocker is Blocker.SPARED:
                    return f"{status.record.job.id} is sound, and yet {why.text}"
                kept = [read_window(name, text) for name, text in self._drained.items()]
                with kept_away(driver.scheduler.state.free, kept):
                    holds = why is None or _true(driver, status.record, why)
                if why is not None and not holds:
                    return f"{status.record.job.id} has a wrong reason: {why.text}"
        return ""

    def _problem(self, step: int, what: str) -> RuleViolation:
        return RuleViolation(self._scenario.seed, self._scenario.policy, step, what)


def _true(driver: Driver, record: JobRecord, why: Reason) -> bool:
    """Whether a reason holds, found out by other means than those that gave it."""
    job, state = record.job, driver.scheduler.state
    if why.blocker in (Blocker.DEPENDENCY, Blocker.PARALLEL) or not job.demand.max:
        return _is_kept_back(driver, job, why)
    sized = Controls.COUNT in driver.scheduler.policy.about.controls
    least = job.demand.min if sized else job.demand.gpus
    place, fits = _find_place(job, least, state.free)
    kinds = [kind for kind in state.free.kinds if kind in (job.demand.kinds or state.free.kinds)]
    away = [node for node, word in driver.nodes() if word != "up" and _runs_on(job, node)]
    holds = {
        Blocker.GPUS: place is None,
        Blocker.NODES: place is None and job.demand.nodes > 0,
        # No job waits beside GPUs that it could use, unless the policy says that this may be.
        Blocker.TURN: fits and bool(driver.scheduler.policy.about.idles),
        Blocker.ROUND: fits,
        Blocker.CPUS: not fits,
        Blocker.MEMORY: not fits,
        Blocker.STEADY: sized,
        Blocker.QUOTA: _over(driver, job, least * job.demand.share, why.text),
        Blocker.FALLBACK: bool(driver.trouble),
        Blocker.AWAY: place is None and bool(away),
        Blocker.FAILED: record.starts > 0,
        Blocker.RESERVED: not fits
        or (job.demand.share < 1.0 and not any(map(state.free.idle, kinds))),
        Blocker.SAID: sized,  # a policy that chooses sizes may say what one would be worth
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
    """Whether something other than devices keeps a job waiting, by its reason."""
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


def _over(driver: Driver, job: Job, asks: float, text: str) -> bool:
    """Whether a job whose reason is a quota would go beyond it."""
    table = driver.scheduler.state.table
    held = sum(
        on.counted_gpus
        for other, on in zip(table.jobs, table.allocations, strict=True)
        if on is not None and other.tenant == job.tenant
    )
    limit = re.search(r"would hold more than ([\d.]+) GPUs", text)
    rounds = driver.scheduler.policy.about.every is not None  # told at the last one
    return rounds or limit is None or held + asks > float(limit[1])


def _keeps_nodes(job: Job, on: Allocation) -> bool:
    nodes = job.demand.nodes
    return not nodes or [len(part.gpus) for part in on.slices] == [on.gpus // nodes] * nodes


def _runs_on(job: Job, node: Node) -> bool:
    return not job.demand.kinds or node.kind in job.demand.kinds


def _limits(policy: str) -> str:
    match = re.search(r"quota:limits=([^,|]*)", policy)
    return match[1] if match else ""


def _list(jobs: Sequence[JobStatus]) -> str:
    return ", ".join(
        f"{status.record.job.id} {status.state} {status.record.reason}" for status in jobs[:4]
    )


# ---- Hours of a live scheduler in seconds: an event loop whose time jumps to whatever is due
# next


Result = TypeVar("Result")
BEGAN = 1_800_000_000.0  # a whole hour: rounds follow the wall clock, and tests must not
Watched = list[tuple[selectors.SelectorKey, int]]


LEASE_S = 600.0  # between renewals of a lease that no standby waits for
THREAD_S = 10.0  # of the clock on the wall, for a thread to be heard of


def run_virtually(main: Callable[[Callable[[], float]], Coroutine[Any, Any, Result]]) -> Result:
    """Run `main` to its end, given the time to pass on as `seconds`.

    Nothing sleeps: when there is nothing to do, time jumps, and the wall clock with it from
    `BEGAN` on, so that a run is the same whenever it is made. What is sent to a thread is done at
    once in this one.
    """
    loop = _Jumping()
    loop.set_default_executor(AtOnce(1))
    with (
        patch.object(leading, "BEAT_S", LEASE_S),
        patch.object(time, "time", lambda: BEGAN + loop.time()),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(main(loop.time))


class _Jumping(asyncio.SelectorEventLoop):
    """Waiting is passing on the clock."""

    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_NoWaiting(self._pass))

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._passed

    def _pass(self, seconds: float) -> None:
        self._passed += seconds


class _NoWaiting(selectors.DefaultSelector):
    """Tells how long it would have waited instead."""

    def __init__(self, waited: Callable[[float], None]) -> None:
        super().__init__()
        self._waited = waited

    def select(self, timeout: float | None = None) -> Watched:
        """What is ready now."""
        ready = super().select(0)
        if not ready:
            if timeout is not None:
                self._waited(max(timeout, 0.0))
            elif not (ready := super().select(THREAD_S)):  # the loop ends its executor in a thread
                raise RuntimeError("all jobs wait forever")
        return ready


class AtOnce(ThreadPoolExecutor):
    """No thread at all."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it here and now."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # handed to whoever waits for the future
            done.set_exception(error)
        return done
