"""Watches devices that jobs share as they run, and freezes jobs that must pause for a moment.

What is learnt goes into the log as `Observed`, so that decisions follow from it; freezing for parts
of a second does not. Nothing stays frozen when it closes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from weft.core.errors import NotRunningError, WeftError
from weft.core.events.event import Observed
from weft.core.knowledge.measured import MeasuredAttempt
from weft.core.model.job import Discipline, Job, JobId, NodeId, Stage
from weft.core.plan.about import Controls
from weft.core.state.cells import TableColumns
from weft.core.stops import Rung
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.runtime.sharing.device import DeviceControl, ResidentStanding
from weft.runtime.sharing.speeds import Predict, ResidentSpeed, predict_nothing

log = logging.getLogger(__name__)

SHARE = "share"  # on whose behalf engines are asked to freeze
EVERY_S = 0.25  # between looks at shared devices
FIND_EVERY = 4  # looks for each look at which job is where
ALONE_EVERY = 8  # looks at shared devices for one at a device of a single job
SETTLED_S = 2.0  # since its first step: memory is looked at once a second
UNSEEN_S = 30.0  # of running, where no steps are seen
GROWN = 1.05  # times what was reported: report it again
CHANGED = 0.15  # of a pace: tell it again
BROKEN_S = 2.0  # more of a broken promise: tell it again
GROUP_S = 4.0  # between two tellings of a job's pace beside others than before
TELL_S = 20.0  # between two tellings of a job's pace

Device = tuple[NodeId, int]
Attempt = tuple[JobId, int]
Residents = dict[Device, dict[Attempt, tuple[Job, float]]]  # with their ages


@dataclass(slots=True)
class _LastReport:
    peak_gb: float = 0.0
    pace: float | None = None
    beside: tuple[JobId, ...] = ()
    at: float = 0.0
    broken_s: float = 0.0


class SharingGuard(Repeated):
    """All devices of a driver's engine."""

    every_s = EVERY_S
    trouble = "sharing is not watched now"

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._devices: dict[Device, DeviceControl] = {}
        self._frozen: set[Attempt] = set()
        self._reports: dict[Attempt, _LastReport] = {}
        self._there: Residents = {}
        self._looks = 0
        self._saying: set[asyncio.Task[None]] = set()

    # ---- life

    def open(self) -> None:
        """Begin to watch, where the engine sees anything and can freeze."""
        engine = self._driver.engine
        if engine.real and engine.sees and Rung.FREEZE in engine.stops:
            super().open()

    async def close(self) -> None:
        """Wake all jobs and leave."""
        await super().close()
        for task in self._saying:
            task.cancel()
        await asyncio.gather(*self._saying, return_exceptions=True)
        for attempt in [*self._frozen]:
            await self._thaw(attempt)

    def resident_state(self, job: JobId) -> ResidentStanding | None:
        """The state of a job on a device that it shares; None where it is alone."""
        for control in self._devices.values():
            with suppress(KeyError):
                return control.resident_state(job)
        return None

    async def _run(self) -> None:
        await self._wake_all()
        await super()._run()

    async def _wake_all(self) -> None:
        """Jobs that an earlier service froze for a moment."""
        table = self._driver.scheduler.state.table
        for row, job in enumerate(table.jobs):
            if table.get(row, TableColumns.STAGE) == Stage.RUNNING:
                await self._thaw((job.id, int(table.get(row, TableColumns.ATTEMPT))))

    # ---- one look

    async def poll(self) -> None:
        """Measure the jobs that share a device, and freeze or thaw."""
        self._looks += 1
        if self._looks % FIND_EVERY == 1:
            shares = Controls.SHARE in self._driver.scheduler.policy.about.controls
            self._there = self._find_residents() if shares else {}
        there = self._there
        if not there and not self._devices:
            return
        seen = await asyncio.to_thread(self._measure, there)
        now = time.time()
        frozen: set[Attempt] = set()
        for device, rows in there.items():
            if any(attempt not in seen for attempt in rows):
                continue  # of a single job, and it is not time to look
            residents = {
                job.id: self._describe(job, number, seen[job.id, number], age_s)
                for (_, number), (job, age_s) in rows.items()
            }
            control = self._devices.setdefault(device, DeviceControl())
            control.speeds.predict = self._predict_on(device, rows)
            still = control.tick(now, residents)
            frozen |= {(job, residents[job].attempt) for job in still}
            self._tell(now, control, residents)
        self._devices = {d: control for d, control in self._devices.items() if d in there}
        await self._apply(frozen, {attempt for rows in there.values() for attempt in rows})

    def _describe(
        self, job: Job, number: int, measured: MeasuredAttempt, age_s: float
    ) -> ResidentSpeed:
        """A job with what it asked to be promised, else with the default."""
        programs = self._driver.scheduler.knowledge.programs
        promise = job.slowdown if programs is None else programs.promise(job)
        firm = job.slowdown is not None
        return ResidentSpeed(job.id, number, measured, promise, age_s, firm)

    def _predict_on(self, device: Device, rows: dict[Attempt, tuple[Job, float]]) -> Predict:
        """A function for the speeds remembered of the programs on a device beside each other."""
        programs = self._driver.scheduler.knowledge.programs
        cluster = self._driver.scheduler.state.cluster
        at = cluster.index.get(device[0])
        if programs is None or at is None:
            return predict_nothing
        jobs, kind = {job.id: job for job, _ in rows.values()}, cluster.nodes[at].kind

        def predict(job: JobId, others: frozenset[JobId]) -> float | None:
            slowdown = programs.slowdown(jobs[job], kind, [jobs[other] for other in others])
            return None if slowdown is None else 1.0 / slowdown

        return predict

    def _find_residents(self) -> Residents:
        """Running jobs of one GPU by device, with how long each ran."""
        table, now = self._driver.scheduler.state.table, self._driver.now
        residents: Residents = {}
        for row, on in enumerate(table.allocations):
            if on is None or on.gpus != 1 or on.sharing.discipline is not Discipline.NONE:
                continue
            if table.get(row, TableColumns.STAGE) != Stage.RUNNING:
                continue
            job, part = table.jobs[row], next(part for part in on.slices if part.gpus)
            attempt = job.id, int(table.get(row, TableColumns.ATTEMPT))
            age_s = now - table.get(row, TableColumns.RAN_SINCE)
            residents.setdefault((part.node, part.gpus[0]), {})[attempt] = job, age_s
        return residents

    def _measure(self, there: Residents) -> dict[Attempt, MeasuredAttempt]:
        """Measurements of jobs that share; of others from time to time. Reads files."""
        measured, every = self._driver.engine.measured, self._looks % ALONE_EVERY == 1
        return {
            attempt: measured(*attempt)
            for rows in there.values()
            if len(rows) > 1 or every
            for attempt in rows
        }

    async def _apply(self, frozen: set[Attempt], there: set[Attempt]) -> None:
        """Freeze and wake as was decided; a job that could not be frozen runs."""
        self._frozen &= there
        for attempt in self._frozen - frozen:
            await self._thaw(attempt)
        for job, number in sorted(frozen - self._frozen):
            try:
                await self._driver.engine.freeze(job, number, by=SHARE)
            except NotRunningError:
                continue  # it ended since it was measured
            except WeftError as error:
                log.warning("job=%s attempt=%d is not frozen: %s", job, number, error)
                continue
            self._frozen.add((job, number))

    async def _thaw(self, attempt: Attempt) -> None:
        job, number = attempt
        try:
            await self._driver.engine.thaw(job, number, by=SHARE)
        except WeftError as error:
            log.warning("job=%s attempt=%d is not woken: %s", job, number, error)
            return
        self._frozen.discard(attempt)

    # ---- what is reported

    def _tell(
        self, now: float, control: DeviceControl, residents: dict[JobId, ResidentSpeed]
    ) -> None:
        for resident in residents.values():
            last = self._reports.setdefault((resident.job, resident.attempt), _LastReport())
            peak_gb = resident.measured.peak_gb
            if peak_gb and peak_gb > last.peak_gb * GROWN and is_settled(now, resident):
                last.peak_gb = peak_gb
                self._say(
                    self._driver.write_down(Observed(resident.job, resident.attempt, peak_gb))
                )
            beside, pace = control.beside_now(resident.job)
            broken_s = control.resident_state(resident.job).broken_s
            if pace is not None and _is_news(now, last, pace, beside, broken_s):
                last.pace, last.beside, last.at, last.broken_s = pace, beside, now, broken_s
                observed = Observed(
                    resident.job, resident.attempt, None, round(pace, 4), beside, round(broken_s, 1)
                )
                self._say(self._driver.write_down(observed))
        if len(self._reports) > 10_000:
            self._reports.clear()

    def _say(self, writing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(writing)
        self._saying.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._saying.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("observations are not recorded: %s", error)


def is_settled(now: float, resident: ResidentSpeed) -> bool:
    """True if a job has held whatever memory a step of it needs, and that was seen."""
    if resident.measured.steps is None:
        return resident.age_s >= UNSEEN_S
    return now - resident.steps_since >= SETTLED_S


def _is_news(
    now: float, last: _LastReport, pace: float, beside: tuple[JobId, ...], broken_s: float
) -> bool:
    if last.pace is None or broken_s >= last.broken_s + BROKEN_S:
        return True
    if last.beside != beside:
        return now - last.at >= GROUP_S
    return now - last.at >= TELL_S and abs(pace - last.pace) > CHANGED * last.pace
