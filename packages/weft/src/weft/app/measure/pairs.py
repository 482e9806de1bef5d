"""Measure training scripts beside each other on the same GPUs: what each costs the other.

All scripts are started once and made to stand still; then each goes on alone for a while, then each
pair, and at last each alone once more. A speed is steps per second beside the other over the better
of the two rates alone.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import asdict, field
from itertools import combinations
from pathlib import Path
from typing import Any

from weft.app.engine import build_real_engine
from weft.app.measure.script import MeasureSettings, first_gpus
from weft.core.errors import InvalidConfig
from weft.core.events.event import Event, Failed, Finished, Reported, StartFailed, Stopped
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.core.protocols import Engine
from weft.core.stops import PROBE
from weft.frozen import frozen
from weft.run_terms import Processes

READY_STEPS = 8  # the first of a script pay for allocations and compilations
TAKE_UP_S = 0.5  # until all that go on are at full speed
START_S = 300.0
PATIENCE = 20.0  # times the seconds of a measurement, for scripts with very long steps
GRACE_S = 5.0


@frozen
class Script:
    """A script to run, and the name of its `model` in jobs."""

    model: str
    command: tuple[str, ...]


@frozen
class SoloRun:
    """A script by itself."""

    model: str
    batch: int
    step_s: float
    mem_gb: float
    command: tuple[str, ...] = field(default=())


@frozen
class Together:
    """Two scripts on the same GPUs: numbers in `alone`, speeds as parts of their speeds alone."""

    one: int
    other: int
    speed_one: float
    speed_other: float


@frozen
class PairTable:
    """Measurements of pairs; `sharing` is timeslicing or mps."""

    kind: str
    gpus: int
    sharing: str
    seconds: float
    alone: tuple[SoloRun, ...]
    together: tuple[Together, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def beside(
    scripts: Sequence[Script],
    workdir: Path,
    wanted: MeasureSettings,
    *,
    mps: bool = False,
    every_pair: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> PairTable:
    """Run the first script beside each of the others, or every pair; raises InvalidConfig."""
    every = combinations(range(len(scripts)), 2)
    pairs = [pair for pair in every if every_pair or pair[0] == 0]
    with tempfile.TemporaryDirectory(prefix="weft-profile-") as state:
        engine = build_real_engine(wanted.engine, Path(state))
        if mps and engine.sharing != "mps":
            raise InvalidConfig(
                "there is no MPS here: it needs a GPU and nvidia-cuda-mps-control",
                hint="leave --mps out to measure time slicing",
            )
        crew = _Crew(scripts, workdir, wanted, progress, engine)
        return asyncio.run(crew.measured(pairs))


class _Crew:
    """The scripts, all started, and what each last said."""

    def __init__(
        self,
        scripts: Sequence[Script],
        workdir: Path,
        wanted: MeasureSettings,
        progress: Callable[[str], None],
        engine: Engine,
    ) -> None:
        self._scripts, self._workdir = scripts, workdir
        self._wanted, self._progress = wanted, progress
        self._running: set[int] = set()
        self._engine = engine
        self._events: AsyncIterator[Event] | None = None

    async def measured(self, pairs: Collection[tuple[int, int]]) -> PairTable:
        """Start all jobs, measure, and see them all gone."""
        began = time.monotonic()
        engine = self._engine
        node, on = await first_gpus(engine, self._wanted)
        self._events = engine.events()
        await engine.adopt(())
        try:
            await self._start(on)
            first = [await self._alone(at) for at in range(len(self._scripts))]
            rates = [(pair, await self._together(*pair)) for pair in pairs]
            again = [await self._alone(at) for at in range(len(self._scripts))]
        finally:
            await self._end()
            await engine.close()
        alone = [
            min(two, key=lambda measured: measured.step_s) for two in zip(first, again, strict=True)
        ]
        together = [
            Together(
                *pair, *(rate * alone[at].step_s for at, rate in zip(pair, pair_rates, strict=True))
            )
            for pair, pair_rates in rates
        ]
        return PairTable(
            node.kind,
            self._wanted.gpus,
            engine.sharing,
            time.monotonic() - began,
            tuple(alone),
            tuple(together),
        )

    async def _start(self, on: Allocation) -> None:
        """Run each job until it has trained a few steps, and freeze it."""
        for at, script in enumerate(self._scripts):
            env = dict(self._wanted.env or {})
            launch = Launch(
                script.command, str(self._workdir), env, retries=0, processes=Processes.PER_GPU
            )
            job = Job(_job(at), demand=Demand(self._wanted.gpus), launch=launch)
            self._engine.check(job)
            await self._engine.start(job, on, 1)
            self._running.add(at)
        waiting = set(self._running)
        until = time.monotonic() + START_S
        while waiting:
            self._progress(f"{len(waiting)} of {len(self._scripts)} scripts are starting")
            at, report = await self._report(until, waiting)
            if (report.steps or 0.0) >= READY_STEPS and at in waiting:
                await self._engine.freeze(_job(at), 1, by=PROBE)
                waiting.remove(at)

    async def _alone(self, at: int) -> SoloRun:
        script = self._scripts[at]
        self._progress(f"{script.model} alone")
        rate, report = (await self._rates((at,)))[at]
        batch, mem_gb = int(report.batch or 0.0), report.mem_gb or 0.0
        return SoloRun(script.model, batch, 1.0 / rate, mem_gb, script.command)

    async def _together(self, first: int, other: int) -> tuple[float, float]:
        self._progress(f"{self._scripts[first].model} beside {self._scripts[other].model}")
        rates = await self._rates((first, other))
        return rates[first][0], rates[other][0]

    async def _rates(self, members: Sequence[int]) -> dict[int, tuple[float, Report]]:
        """Steps per second of members that go on at the same time, and their last reports."""
        for at in members:
            await self._engine.thaw(_job(at), 1, by=PROBE)
        began = time.monotonic()
        until = began + PATIENCE * self._wanted.each_s + TAKE_UP_S
        seen: dict[int, list[tuple[float, Report]]] = {at: [] for at in members}
        while not all(_long_enough(reports, self._wanted.each_s) for reports in seen.values()):
            at, report = await self._report(until, members)
            now = time.monotonic()
            if now - began >= TAKE_UP_S and at in seen:
                seen[at].append((now, report))
        for at in members:
            await self._engine.freeze(_job(at), 1, by=PROBE)
        return {at: (_rate(reports), reports[-1][1]) for at, reports in seen.items()}

    async def _report(self, until: float, of: Collection[int]) -> tuple[int, Report]:
        """The next report of any job; raises if one of those waited for ends or none comes."""
        assert self._events is not None
        while True:
            try:
                async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                    event = await anext(self._events)
            except TimeoutError:
                names = " and ".join(self._scripts[at].model for at in sorted(of))
                raise InvalidConfig(
                    f"{names} reported too little to be measured",
                    hint="`weft profile` measures scripts that use weft_train; try longer --each",
                ) from None
            if isinstance(event, (Finished, Stopped, Failed, StartFailed)):
                self._running.discard(_number(event.job))
                raise self._gone(event)
            if isinstance(event, Reported) and None not in (event.report.steps, event.report.batch):
                return _number(event.job), event.report

    def _gone(self, event: Finished | Stopped | Failed | StartFailed) -> InvalidConfig:
        model = self._scripts[_number(event.job)].model
        if isinstance(event, (Failed, StartFailed)):
            return InvalidConfig(f"{model} failed: {event.reason}", hint="try it alone first")
        return InvalidConfig(
            f"{model} ended before everything was measured",
            hint="let it train for more epochs; nothing of it is kept",
        )

    async def _end(self) -> None:
        """Stop all jobs and wait until they are gone."""
        for at in self._running:
            await self._engine.stop(_job(at), 1, 0.0)  # which wakes it
        until = time.monotonic() + GRACE_S
        assert self._events is not None
        while self._running:
            try:
                async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                    event = await anext(self._events)
            except TimeoutError:
                return
            if isinstance(event, (Finished, Stopped, Failed, StartFailed)):
                self._running.discard(_number(event.job))


def _job(at: int) -> JobId:
    return JobId(f"beside-{at}")


def _number(job: JobId) -> int:
    return int(job.rpartition("-")[2])


def _long_enough(reports: Sequence[tuple[float, Report]], seconds: float) -> bool:
    return len(reports) > 1 and reports[-1][0] - reports[0][0] >= seconds and _steps(reports) > 0


def _rate(reports: Sequence[tuple[float, Report]]) -> float:
    return _steps(reports) / (reports[-1][0] - reports[0][0])


def _steps(reports: Sequence[tuple[float, Report]]) -> float:
    return (reports[-1][1].steps or 0.0) - (reports[0][1].steps or 0.0)
