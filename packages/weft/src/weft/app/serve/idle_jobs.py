"""Jobs that wait beside idle devices, and jobs that hold devices and do not use them.

Whatever a policy and its rules decide, a job that fits on devices that are free and not kept from
it, within its tenant's limits, starts within a minute or gets the reason that really keeps it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.app.serve.rules import Quotas
from weft.core.events.event import Cancelled, Noticed, Woken
from weft.core.model.job import Job, JobId
from weft.core.plan.about import Controls
from weft.core.plan.reasons import Blocker, device_word, name_some
from weft.pieces.place.gangs import fewest_nodes
from weft.runtime.deciding.waiting import WaitExplainer, waits_of, why_waits
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.runtime.records.idle_jobs import NOTICED, IdleJobs, describe_idle, find_memory_wait
from weft.stack.windows import ReservedWindow, kept_away, read_window

log = logging.getLogger(__name__)

AT_ONCE = 500  # jobs looked at before others are let in
AGAIN_S, LATE_S = 30.0, 60.0  # until a policy decides again, and until it is counted
# What can be checked; other reasons are the policy's own.
CHECKED = (
    *(Blocker.GPUS, Blocker.NODES, Blocker.AWAY, Blocker.RESERVED, Blocker.QUOTA),
    *(Blocker.TURN, Blocker.FALLBACK),
)


@dataclass
class IdleBeside(Repeated):
    """Since when jobs of a driver have waited beside what they could use.

    `counts` are those beyond a minute, by their reason; `looks` how often a policy was asked
    to decide again.
    """

    every_s = 15.0
    trouble = "jobs that wait beside idle devices are not counted"
    waits_first = True
    driver: Driver
    rules: Callable[[], Quotas]
    counts: Mapping[str, int] = field(default_factory=dict)
    looks: int = 0
    _since: dict[JobId, float] = field(default_factory=dict)
    _asked: set[JobId] = field(default_factory=set)

    async def poll(self) -> bool:
        """Count jobs that wait beside idle devices, and decide again where it may help."""
        again = await self.count()
        if again:
            self.driver.scheduler.put_off(self.driver.now)
            await self.driver.write_down(Woken())
        return again

    async def count(self) -> bool:
        """Count jobs that wait beside idle devices; whether to decide again for one."""
        driver, beside = self.driver, dict[JobId, Blocker]()
        jobs = [*driver.scheduler.state.table.jobs]
        for start in range(0, len(jobs), AT_ONCE):
            beside |= find_beside_idle(driver, self.rules(), jobs[start : start + AT_ONCE])
            await asyncio.sleep(0.0)  # others in between: 15,000 jobs took a fifth of a second
        now = driver.now
        self._since = {job: self._since.get(job, now) for job in beside}
        self._asked &= self._since.keys()
        speed = driver.engine.speed
        waited = {job: (now - since) / speed for job, since in self._since.items()}
        late = {job: beside[job] for job, seconds in waited.items() if seconds >= LATE_S}
        if more := [job for job in late if job not in driver.decisions.doubted]:
            log.warning(
                "%d job%s waited for a minute beside GPUs that are free for %s, under policy %r: "
                "%s; `weft explain` says why",
                *(len(more), *((" has", "it") if len(more) == 1 else ("s have", "them"))),
                *(driver.scheduler.policy.about.name, name_some(more)),
            )
        driver.decisions.doubted = frozenset(late)
        self.counts = Counter(blocker.value for blocker in late.values())
        again = {job for job, seconds in waited.items() if seconds >= AGAIN_S} - self._asked
        self._asked |= again
        self.looks += bool(again)
        return bool(again)


def find_beside_idle(driver: Driver, rules: Quotas, jobs: Sequence[Job]) -> dict[JobId, Blocker]:
    """Return those of `jobs` that wait and fit on free devices within their rules, by reason.

    One that has left meanwhile is skipped, and so is one that is just being written down.
    """
    state = driver.scheduler.state
    waits: WaitExplainer | None = None  # needed for few: with 20,000 jobs it takes a while
    table = state.table
    room = _Room(driver, rules)
    beside: dict[JobId, Blocker] = {}
    for job in jobs:
        row, record = table.find(job.id), driver.ledger.jobs.live.get(job.id)
        if (
            row is None
            or record is None
            or table.allocations[row] is not None
            or job.demand.max == 0
        ):
            continue
        if state.releasing.is_leaving(job.id) or not room.is_there_for(job):
            continue
        if waits is None:  # also while a decision is made
            waits = replace(waits_of(driver), wake_at=state.wake_at)
        why = why_waits(waits, driver.scheduler, record)
        if why is not None and why.blocker in CHECKED:
            beside[job.id] = why.blocker
    return beside


class _Room:
    """The free devices at this instant, asked about many jobs."""

    def __init__(self, driver: Driver, rules: Quotas) -> None:
        self._state, self._now, self._rules = driver.scheduler.state, driver.now, rules
        self._sized = Controls.COUNT in driver.scheduler.policy.about.controls
        every = (read_window(name, text) for name, text in rules.windows.items())
        self._windows = [window for window in every if self._now < window.end]
        self._held = driver.scheduler.view(self._now).held_by_tenants() if rules.limits else {}
        self._fits: dict[tuple[object, ...], bool] = {}

    def is_there_for(self, job: Job) -> bool:
        """True if it fits, on a kind of which its tenant may hold more."""
        kinds = job.demand.kinds or self._state.cluster.kinds
        kinds = tuple(kind for kind in kinds if self._is_within(job, kind))
        barred = tuple(window for window in self._windows if not window.admits(job, self._now))
        key = (job.demand, kinds, tuple(window.name for window in barred))
        if key not in self._fits:
            self._fits[key] = bool(kinds) and self._place(job, kinds, barred)
        return self._fits[key]

    def _least(self, job: Job) -> int:
        return job.demand.min if self._sized else job.demand.gpus

    def _is_within(self, job: Job, kind: str) -> bool:
        held: dict[str, float] = {"": 0.0, kind: 0.0}
        for (tenant, of), gpus in self._held.items():
            if tenant == job.tenant:
                held[""] += gpus
                held[kind] += gpus * (of == kind)
        limits = {"": job.tenant, kind: f"{job.tenant}@{kind}"}
        more = self._least(job) * job.demand.share
        return all(
            held[of] + more <= self._rules.limits.get(name, held[of] + more) + 1e-9
            for of, name in limits.items()
        )

    def _place(self, job: Job, kinds: tuple[str, ...], barred: tuple[ReservedWindow, ...]) -> bool:
        free, least = self._state.free, self._least(job)
        with kept_away(free, barred):
            demand = replace(job.demand, gpus=least, min=least, kinds=kinds)
            place = fewest_nodes(replace(job, demand=demand), free)
            return place is not None and free.fits(place)


class IdleWatch(Repeated):
    """Watch over a driver's running jobs; `stop_s` None never stops any."""

    every_s = 30.0
    trouble = "reasons of idle jobs are not written"
    waits_first = True

    def __init__(self, driver: Driver, stop_s: float | None = None) -> None:
        self._driver, self._stop_s = driver, stop_s

    @property
    def jobs(self) -> IdleJobs:
        """The running jobs as they were observed."""
        return self._driver.ledger.idle

    async def poll(self) -> None:
        """Report jobs that are found idle; stop those that were so for too long.

        A job that waits for memory of its GPU would go on if it could.
        """
        driver = self._driver
        live = driver.ledger.jobs.live.values()
        running = [
            record
            for record in live
            if record.running is not None
            and not record.outcome
            and find_memory_wait(driver.engine, record) is None
        ]
        for job in self.jobs.find_idle(running, driver.now):
            attempt = self.jobs.uses[job].attempt
            await driver.write_down(Noticed(job, attempt, NOTICED, self._describe(job)))
        for job in self._find_late():
            text = f"stopped: it {self._describe(job)}"
            log.warning("job=%s %s", job, text)
            await driver.write_down(Cancelled(job, text))

    def _describe(self, job: JobId) -> str:
        kinds = (node.kind for node, _ in self._driver.nodes())
        return describe_idle(self.jobs.uses[job], device_word(kinds))

    def _find_late(self) -> list[JobId]:
        if self._stop_s is None:
            return []
        return [job for job, use in self.jobs.idle.items() if use.idle_s >= self._stop_s]
