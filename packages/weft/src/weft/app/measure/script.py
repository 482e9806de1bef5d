"""Measure a training script on this machine: run it for a while by the local engine alone.

The script runs as any job does; its batch size is doubled from what it begins with to the
largest it allows, by the same request that a scheduler sends, and what it reports of each size
is kept. Nothing of it stays: checkpoints go to a folder that is removed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from weft.app.engine import build_real_engine
from weft.core.errors import InvalidConfig
from weft.core.events.event import Event, Failed, Finished, Reported, StartFailed, Stopped
from weft.core.events.report import Report
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Batch, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.protocols import Engine
from weft.frozen import frozen
from weft.plural import say_gpus
from weft.run_terms import Processes

SETTLE_STEPS = 5  # the first of a size pay for allocations and are not representative
TAKE_UP_S = 1.0
SILENCE_S = 120.0
GRACE_S = 5.0


@frozen
class BatchPoint:
    """The measurement of one batch size; seconds are of one step, medians over the last fifty.

    `compute_s` is forward and backward of all micro-batches on a rank, `efficiency` how much a
    sample is worth against one in a batch of the first size, `goodput` throughput times that; both
    None where the noise of the gradients is not known.
    """

    batch: int
    per_gpu: int
    accumulate: int
    steps: int
    step_s: float
    data_s: float
    compute_s: float
    sync_s: float
    throughput: float
    mem_gb: float
    lr_factor: float
    efficiency: float | None = None
    goodput: float | None = None

    def with_worth(self, noise: float, first: int) -> BatchPoint:
        """The point with what its samples are worth at a noise scale, against `first` a batch."""
        worth = (noise + first) / (noise + self.batch)
        return replace(self, efficiency=worth, goodput=self.throughput * worth)


@frozen
class ScriptProfile:
    """A script's profile.

    `noise` is None where its gradients never gave an estimate; `trouble` is what ended the
    measurement before its time, empty for nothing.
    """

    command: tuple[str, ...]
    kind: str
    gpus: int
    seconds: float
    points: tuple[BatchPoint, ...]
    noise: Mapping[str, float] | None
    trouble: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@frozen
class MeasureSettings:
    """Settings of a measurement: GPUs, seconds for each batch size, how many sizes, environment."""

    gpus: int = 1
    each_s: float = 4.0
    sizes: int = 8
    engine: str = "local:warm=false"
    env: Mapping[str, str] | None = None


def profile(
    command: Sequence[str],
    workdir: Path,
    wanted: MeasureSettings,
    progress: Callable[[str], None] = lambda _: None,
) -> ScriptProfile:
    """Run `command` in `workdir` and measure it; raises InvalidConfig if it never reports."""
    with tempfile.TemporaryDirectory(prefix="weft-profile-") as state:
        return asyncio.run(_measure(Path(state), command, workdir, wanted, progress))


async def _measure(
    state: Path,
    command: Sequence[str],
    workdir: Path,
    wanted: MeasureSettings,
    progress: Callable[[str], None],
) -> ScriptProfile:
    engine = build_real_engine(wanted.engine, state)
    node, on = await first_gpus(engine, wanted)
    launch = Launch(
        tuple(command), str(workdir), dict(wanted.env or {}), retries=0, processes=Processes.PER_GPU
    )
    run = _Run(engine, launch, on, wanted, progress)
    began = time.monotonic()
    await engine.adopt(())
    try:
        await run.sweep()
    finally:
        await run.end()
        await engine.close()
    if not run.points:
        raise _nothing(run)
    took = time.monotonic() - began
    points, noise = tuple(run.points), run.noise
    if noise is not None:
        points = tuple(point.with_worth(noise["noise"], points[0].batch) for point in points)
    return ScriptProfile(tuple(command), node.kind, wanted.gpus, took, points, noise, run.trouble)


async def first_gpus(engine: Engine, wanted: MeasureSettings) -> tuple[Node, Allocation]:
    """The first GPUs of the machine; raises InvalidConfig if it has too few."""
    [node] = await engine.nodes()
    if wanted.gpus > node.gpus:
        raise InvalidConfig(
            f"{say_gpus(wanted.gpus)} are asked for; {node.id} has {node.gpus} of kind {node.kind}",
            hint=f"ask for at most {node.gpus}",
        )
    return node, Allocation((Slice(NodeId(node.id), tuple(range(wanted.gpus))),))


class _Run:
    """The script, started and given larger batches; restarted from the beginning when it ends."""

    def __init__(
        self,
        engine: Any,
        launch: Launch,
        on: Allocation,
        wanted: MeasureSettings,
        progress: Callable[[str], None],
    ) -> None:
        self.points: list[BatchPoint] = []
        self.noise: Mapping[str, float] | None = None
        self.trouble = ""
        self._engine, self._launch, self._on = engine, launch, on
        self._wanted, self._progress = wanted, progress
        self._events: AsyncIterator[Event] = engine.events()
        self._starts = 0
        self._running = False

    @property
    def job(self) -> JobId:
        """The present run; another name each time, so that it finds no checkpoint."""
        return JobId(f"profile-{self._starts}")

    async def sweep(self) -> None:
        """Measure the script's own batch, then twice it, until it does not get larger.

        First on each GPU, then by accumulation where the script lets a GPU take no more.
        """
        values = await self._measure(None)
        full = False
        while values is not None:
            larger = not self.points or (values.batch or 0.0) > self.points[-1].batch
            if larger:
                self._keep(values)
            if (full and not larger) or len(self.points) >= self._wanted.sizes or self.trouble:
                return
            last = self.points[-1]
            full = full or not larger
            micros = last.accumulate
            to = Batch(last.per_gpu, 2 * micros) if full else Batch(2 * last.per_gpu, micros)
            values = await self._measure(to)

    async def end(self) -> None:
        """Stop the script and wait until it is gone."""
        if not self._running:
            return
        await self._engine.stop(self.job, 1, GRACE_S)
        deadline = time.monotonic() + 2 * GRACE_S
        while self._running:
            if await self._next(deadline) is None:
                return

    async def _measure(self, batch: Batch | None) -> Report | None:
        if self._running:
            to = Allocation(self._on.slices, batch=batch)
            await self._engine.adjust(self.job, 1, to)
            values = await self._settled(fresh=False)
            if values is not None or self._running or self.trouble:
                return values
        await self._start(batch)
        return await self._settled(fresh=True)

    async def _start(self, batch: Batch | None) -> None:
        self._starts += 1
        job = Job(self.job, demand=Demand(self._wanted.gpus), launch=self._launch)
        self._engine.check(job)
        self._progress("starting the script")
        await self._engine.start(job, Allocation(self._on.slices, batch=batch), 1)
        self._running = True

    async def _settled(self, *, fresh: bool) -> Report | None:
        """The last report of this size once `each_s` is over; None if there was none.

        A script that runs on takes up a new size a little later: its first reports do not count.
        """
        began = time.monotonic()
        first: float | None = 0.0 if fresh else None
        last: Report | None = None
        while True:
            event = await self._next(began + SILENCE_S)
            if event is None or not self._running:
                return last
            if not isinstance(event, Reported) or event.report.batch is None:
                continue
            report = event.report
            steps = report.steps or 0.0
            first = steps if first is None else first
            self._progress(f"batch {report.batch:,.0f}, {steps:,.0f} steps")
            noise = {
                "noise": report.noise,
                "grad_var": report.grad_var,
                "grad_sqr": report.grad_sqr,
            }
            self.noise = {k: v for k, v in noise.items() if v is not None} or self.noise
            waited = time.monotonic() - began
            if steps - first < SETTLE_STEPS or not (fresh or waited > TAKE_UP_S):
                continue
            last = report
            if waited >= self._wanted.each_s:
                return last

    async def _next(self, deadline: float) -> Event | None:
        """The next event; None if there is none in time. Notes whether the script runs."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                event = await anext(self._events)
        except TimeoutError:
            self.trouble = "it reported nothing for a long time"
            return None
        if isinstance(event, (Finished, Stopped, Failed, StartFailed)):
            self._running = False
        if isinstance(event, (Failed, StartFailed)):
            self.trouble = event.reason
        return event

    def _keep(self, report: Report) -> None:
        batch, step_s, micros = report.batch or 0.0, report.step_s or 0.0, report.accumulate or 1.0
        self.points.append(
            BatchPoint(
                batch=int(batch),
                per_gpu=int(report.per_gpu or batch),
                accumulate=int(micros),
                steps=int(report.steps or 0.0),
                step_s=step_s,
                data_s=report.data_s or 0.0,
                compute_s=(report.grad_s or 0.0) * micros,
                sync_s=report.sync_s or 0.0,
                throughput=batch / step_s if step_s else 0.0,
                mem_gb=report.mem_gb or 0.0,
                lr_factor=1.0 if report.lr_factor is None else report.lr_factor,
            )
        )


def _nothing(run: _Run) -> InvalidConfig:
    if run.trouble:
        return InvalidConfig(f"the script failed: {run.trouble}", hint="try it alone first")
    return InvalidConfig(
        "the script ended without reporting how fast it trains",
        hint="`weft profile` measures scripts that use weft_train",
    )
