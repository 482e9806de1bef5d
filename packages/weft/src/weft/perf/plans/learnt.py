"""Speeds of execution plans, learnt from jobs that run them on their GPUs.

A plan that never ran at a size is taken to be as fast as at the nearest size it was seen at, by
Rubick's law fitted to all that was reported of the program, or by a power of the GPUs until there
are as many reports as that has parameters. One that never ran anywhere is as fast as the law says,
else a little faster than the best that is known, so that a job that starts tries it. Plans under
which jobs died before they trained are left out.

The law is formulas of step times (Rubick, MLSys 2025), as its authors' code has them. Its times are
milliseconds, parameters are counted in Mi (2^20), bandwidths in MB a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp, floor, log, log2
from typing import NamedTuple

import numpy as np

from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.learning import Remembering
from weft.core.knowledge.plans import PlanChoice
from weft.core.knowledge.programs import program_of
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config, Job
from weft.core.state.cells import Floats
from weft.frozen import frozen

MI = 2.0**20
NETWORK = 20.0  # MB a millisecond between nodes, of plans that divide the model
SLOW = 2.0  # the same of data parallelism over a network
RECOMPUTE = 2.0  # forward passes with activation checkpointing
TENSOR_GAIN = 1.15  # of each way of tensor parallelism on the forward time


class Coefficients(NamedTuple):
    """Fitted numbers of a model: factors of times, and the cost of each step."""

    k_bwd: float
    k_sync: float
    k_opt: float
    k_os_offload: float
    k_const: float
    k_off: float
    k_swap: float


@frozen
class PlanLaw:
    """One model: its size, its global batch, its forward time on one GPU, and the coefficients.

    `pcie` and `nvlink` are bandwidths that its runs saw. `scales` is by how much the forward time
    of a GPU falls on some numbers of GPUs, where that is not their number; `unscaled` keeps it
    whole at any other. `activations` is sequence times hidden size. `most` is how many samples one
    GPU has memory for, by `dp`, `zero`, `offload` and whether activations are checkpointed.
    """

    params: float
    batch: int
    forward_ms: float
    pcie: float
    nvlink: float
    k: Coefficients
    activations: float = 0.0
    layers: float = 1
    scales: Mapping[int, float] = field(default_factory=dict)
    most: Mapping[tuple[str, bool], int] = field(default_factory=dict)

    def allows_plan(self, plan: Execution) -> bool:
        """Return true if memory and the batch allow a plan with its replicas filled in."""
        if plan.unit > 1:
            return plan.divides(self.batch) and plan.zero == 0
        samples, rest = divmod(self.batch, plan.data)
        return not rest and samples <= self.most.get((memory_family(plan), plan.checkpointing), 0)

    def forward_ms_on(self, gpus: int) -> float:
        """Milliseconds of the forward pass of one of that many GPUs."""
        if not self.scales:
            return self.forward_ms / gpus
        return self.forward_ms / self.scales.get(gpus, 1.0)

    def step_ms(
        self, plan: Execution, nodes: int = 1, *, threads: float = 1.0, near: bool = True
    ) -> float:
        """Milliseconds of an update; `near` has the GPUs of data parallelism on one node."""
        gpus = plan.data * plan.unit
        if plan.unit > 1:
            forward = self.forward_ms * plan.data / plan.pipeline / TENSOR_GAIN**plan.tensor
            return self.divided_ms(plan, forward, nodes, gpus // nodes)
        return self.replicated_ms(plan, self.forward_ms_on(gpus), threads=threads, near=near)

    def replicated_ms(
        self,
        plan: Execution,
        forward: float,
        *,
        threads: float = 1.0,
        near: bool = True,
        recompute: float = RECOMPUTE,
    ) -> float:
        """Of data parallelism, ZeRO and offload, with so long a forward pass on each GPU."""
        k, gpus = self.k, plan.data
        backward = k.k_bwd * forward
        volume = 8.0 * self.params * (gpus - 1) / gpus
        sync = overlap(volume / (self.nvlink if near else SLOW), backward, k.k_sync)
        moved = 4.0 * self.params / gpus / self.pcie if plan.offload else 0.0
        sync += k.k_off + moved if plan.offload else 0.0
        if plan.offload:
            update = k.k_os_offload * self.params / (gpus * threads)
        else:
            update = k.k_opt * self.params / (gpus if plan.zero else 1)
        passes = recompute if plan.checkpointing else 1.0
        return passes * forward + sync + update + k.k_swap + moved + k.k_const

    def divided_ms(self, plan: Execution, forward: float, nodes: int, per_node: int) -> float:
        """Return the milliseconds that tensor and pipeline parallelism divide."""
        k, tp, pp, dp = self.k, plan.tensor, plan.pipeline, plan.data
        micro = self.batch // dp
        tensor = 32.0 * self.activations * (tp - 1) / tp * micro * self.layers / MI / self.nvlink
        between = floor(16.0 * micro * self.activations / tp) / NETWORK / MI * pp
        inside = per_node > tp and pp == nodes
        replicas = floor(8.0 * (dp - 1) / dp * self.params / tp) / pp
        sync = overlap(replicas / (self.nvlink if inside else NETWORK), k.k_bwd * forward, k.k_sync)
        update = self.params / tp / pp * k.k_opt
        return forward + sync + update + k.k_const + (between if pp > 1 else 0.0) + tensor


def overlap(left: float, other: float, how: float) -> float:
    """Time of two things that overlap: their sum if `how` is 1, the longer if it is large."""
    longer, shorter = max(left, other), min(left, other)
    if longer <= 0.0 or shorter <= 0.0:
        return longer
    return longer * exp(log(1.0 + (shorter / longer) ** how) / how)


def memory_family(plan: Execution) -> str:
    """Under which name limits of memory are kept."""
    if plan.offload:
        return "offload"
    return "zero" if plan.zero else "dp"


SHAPE = 0.9  # speed grows with this power of GPUs where it was not measured
HOPE = 1.01  # of a plan that was never tried, against the best that is known
LATEST = 0.5  # part of the newest report in what is kept


@dataclass(slots=True)
class PlansSeen:
    """Samples per second by `program/kind/plan` and GPUs, GPUs it failed on, and batches."""

    rates: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: dict[str, list[int]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


class LearntPlans(Remembering[PlansSeen]):
    """Samples per second by program, kind, GPUs and plan, and plans that failed."""

    def __init__(self) -> None:
        super().__init__(PlansSeen())

    def knows(self, job: Job) -> bool:
        """Every job that declares plans: what is not known is tried."""
        return bool(job.plans)

    def choices(self, job: Job, config: Config) -> Sequence[PlanChoice]:
        """Plans that run there, as fast as they were seen or are hoped to be."""
        batch = self.memory.batches.get(program_of(job))
        plans = [plan.on(config.gpus) for plan in job.plans]
        run = [plan for plan in plans if plan is not None and (not batch or plan.divides(batch))]
        fine = [
            plan
            for plan in run
            if config.gpus not in self.memory.failed.get(_key(job, config, plan), ())
        ]
        rates = {plan: self._rate(job, config, plan) for plan in fine or run}
        known = [rate for rate in rates.values() if rate is not None]
        hoped = HOPE * max(known) if known else float(config.gpus) ** SHAPE
        choices = [
            PlanChoice(plan, hoped if rate is None else rate) for plan, rate in rates.items()
        ]
        return sorted(choices, key=lambda choice: -choice.rate)

    def observe(self, job: Job, kind: str, report: Report, attempt: AttemptSource) -> None:
        """Learn how long a job's steps take under the plan that it was given, or its own."""
        on = attempt.on
        plan = on.plan or job.plans[0].on(on.gpus)
        if plan is None or not report.step_s or not report.batch:
            return
        config = Config(kind, len(on.slices), on.gpus)
        key, rate = _key(job, config, plan), report.batch / report.step_s
        seen = self.memory.rates.setdefault(key, {})
        before = seen.get(str(on.gpus), rate)
        seen[str(on.gpus)] = (1.0 - LATEST) * before + LATEST * rate
        self.memory.batches[program_of(job)] = int(report.batch)
        if on.gpus in self.memory.failed.get(key, ()):
            self.memory.failed[key].remove(on.gpus)

    def fail(self, job: Job, kind: str, on: Allocation) -> None:
        """A job died under the plan that it was given; it counts if no job ever trained so."""
        if on.plan is None:
            return
        key = _key(job, Config(kind, len(on.slices), on.gpus), on.plan)
        failed = self.memory.failed.setdefault(key, [])
        if str(on.gpus) not in self.memory.rates.get(key, {}) and on.gpus not in failed:
            failed.append(on.gpus)

    def forget(self, job: Job) -> None:
        """Do nothing: what was learnt belongs to all jobs of the program."""

    def _rate(self, job: Job, config: Config, plan: Execution) -> float | None:
        """As seen at this size, else by the law or from the nearest; None where neither tells."""
        seen = self.memory.rates.get(_key(job, config, plan), {})
        if str(config.gpus) in seen:
            return seen[str(config.gpus)]
        law = self._law(job, config, plan)
        if not seen:
            return self.memory.batches[program_of(job)] / law(plan) if law else None
        near = min(seen, key=lambda gpus: abs(log2(int(gpus) / config.gpus)))
        nearest = replace(plan, data=0).on(int(near))
        if law and nearest:
            return seen[near] * law(nearest) / law(plan)
        return float(seen[near] * (config.gpus / int(near)) ** SHAPE)

    def _law(
        self, job: Job, config: Config, plan: Execution
    ) -> Callable[[Execution], float] | None:
        """Seconds of a step by the law fitted to all plans of the job; None where it says nothing.

        Reports count on this kind, from any job of its program.
        """
        batch = self.memory.batches.get(program_of(job))
        if not batch:
            return None
        seen = tuple(
            MeasuredStep(whole, quantise(batch / rate))
            for each in dict.fromkeys(replace(each, data=0) for each in job.plans)
            for gpus, rate in sorted(self.memory.rates.get(_key(job, config, each), {}).items())
            if (whole := each.on(int(gpus))) is not None
        )
        law = fit_reports(seen, batch, plan)
        return None if law is None else lambda plan: step_ms(law, plan) / 1000.0


def _key(job: Job, config: Config, plan: Execution) -> str:
    return f"{program_of(job)}/{config.kind}/{replace(plan, data=0).text}"


# ---- Rubick's law of step times, fitted to what jobs of a program reported of whole steps
#
# Forward times and bandwidths are not measured in a running job, so they are fitted as well,
# and the size of the model is folded into them. GPUs share the forward pass evenly: by the
# authors' rule it would grow with the replicas of a model that is divided.


SIZE = 1e9  # parameters of a model that does not state them: only its times are fitted
SIZES = 3  # different numbers of GPUs, below which nothing tells what grows with them
STEPS, STEP = 40, 1e-4  # of the fit, and of its slopes
ENOUGH, HOPELESS = 1e-6, 1e6  # squared errors gained by a step, and damping: it ends there
FAR = 0.1  # an error, of a logarithm, from which on it counts little more
PULL = 1e-3  # to the start, of what reports do not tell
# The times of `_law` as parts of the shortest step that was seen, `backward` and `overlap` as are.
START = {
    "forward": 0.3,
    "sync": 0.3,
    "overlap": 2.0,
    "constant": 0.05,
    "backward": 2.0,
    "update": 0.1,
    "hosted": 0.3,
    "moved": 0.1,
    "tensor": 0.1,
    "pipeline": 0.1,
}
PLAIN = ("forward", "sync", "overlap", "constant")
REACH = (1e-5, 1e5)  # of times, as parts of the shortest step
BOUNDS = {"overlap": (1.0, 20.0), "backward": (1.0, 10.0)}


class MeasuredStep(NamedTuple):
    """Milliseconds of a step under a plan with its replicas filled in."""

    plan: Execution
    step_ms: float


def fit_reports(seen: tuple[MeasuredStep, ...], batch: int, plan: Execution) -> PlanLaw | None:
    """The law of plans like this one; None where reports do not tell it.

    There must be as many as the law has parameters for the plans that were reported, at three
    different sizes, and whatever makes the plan differ must be in one of them.
    """
    if not _covers(plan):
        return None
    rows = tuple(
        row for row in seen if _covers(row.plan) and row.plan.accumulate == plan.accumulate
    )
    traits = set[str]().union(*(_traits(row.plan) for row in rows))
    sizes = {row.plan.data * row.plan.unit for row in rows}
    if not _traits(plan) <= traits or len(sizes) < SIZES or len(rows) < len(_names(rows)):
        return None
    return _fit(rows, batch)


def step_ms(law: PlanLaw, plan: Execution) -> float:
    """Return the step time of a plan with its replicas filled in, a pipeline's together."""
    gpus = plan.data * plan.unit
    if plan.unit > 1:
        return law.divided_ms(plan, law.forward_ms_on(gpus), plan.pipeline, gpus // plan.pipeline)
    return law.replicated_ms(plan, law.forward_ms_on(gpus))


def _covers(plan: Execution) -> bool:
    """Rubick divides no model that has ZeRO, offload or checkpointing."""
    return plan.unit == 1 or not (plan.zero or plan.offload or plan.checkpointing)


def _traits(plan: Execution) -> set[str]:
    """Return the traits that must have been seen before the law applies to a plan."""
    kind = "offload" if plan.offload else f"zero{plan.zero}"
    parts = {kind: True, "gc": plan.checkpointing, "tp": plan.tensor > 1, "pp": plan.pipeline > 1}
    return {name for name, there in parts.items() if there}


def _names(rows: tuple[MeasuredStep, ...]) -> tuple[str, ...]:
    """Parameters of the law that these plans have."""
    plans = [row.plan for row in rows]
    parts = {
        "backward": any(plan.checkpointing for plan in plans),
        "update": any(plan.zero or plan.offload or plan.unit > 1 for plan in plans),
        "hosted": any(plan.offload for plan in plans),
        "moved": any(plan.offload for plan in plans),
        "tensor": any(plan.tensor > 1 for plan in plans),
        "pipeline": any(plan.pipeline > 1 for plan in plans),
    }
    return (*PLAIN, *(name for name, there in parts.items() if there))


@lru_cache(maxsize=4096)
def _fit(rows: tuple[MeasuredStep, ...], batch: int) -> PlanLaw:
    """Least squares of logarithms, by Levenberg and Marquardt's steps."""
    names, shortest = _names(rows), min(row.step_ms for row in rows)
    most = max(row.plan.data * row.plan.unit for row in rows)
    times = [shortest * (most if n == "forward" else 1.0) for n in names]
    scale = np.array([0.0 if n in BOUNDS else log(t) for n, t in zip(names, times, strict=True)])
    start = scale + np.log([START[n] for n in names])
    low, high = scale + np.log([BOUNDS.get(n, REACH) for n in names]).T
    measured = np.log([row.step_ms for row in rows])

    def errors(at: Floats) -> Floats:
        law = _law(dict(zip(names, np.exp(at).tolist(), strict=True)), batch)
        off = _bounded(np.log([step_ms(law, row.plan) for row in rows]) - measured)
        return np.concatenate((off, PULL * (at - start)))

    at, damping, off = start, 1e-2, errors(start)
    for _ in range(STEPS):
        slopes = np.array([(errors(at + step) - off) / STEP for step in STEP * np.eye(len(at))]).T
        curve = slopes.T @ slopes
        move = np.linalg.solve(curve + damping * np.eye(len(at)), slopes.T @ off)
        then = np.clip(at - move, low, high)
        off_then = errors(then)
        gain = float(off @ off - off_then @ off_then)
        damping *= 0.1 if gain > 0.0 else 10.0
        if gain > 0.0:
            at, off = then, off_then
        if 0.0 <= gain < ENOUGH or damping > HOPELESS:
            break
    return _law(dict(zip(names, np.exp(at).tolist(), strict=True)), batch)


def _bounded(off: Floats) -> Floats:
    """Errors with those far off counting little more (Cauchy's loss): a size may be of its own.

    A program that puts all it can on one GPU takes as long on two; no law says so.
    """
    bounded: Floats = np.sign(off) * FAR * np.sqrt(np.log1p((off / FAR) ** 2))
    return bounded


def _law(p: Mapping[str, float], batch: int) -> PlanLaw:
    """The law with these times in milliseconds, of a step on one GPU or of all that is moved."""
    bandwidth = 8.0 * SIZE / p["sync"]
    activations = p.get("pipeline", 1.0) * NETWORK * MI / 16.0 / batch
    return PlanLaw(
        SIZE,
        batch,
        p["forward"],
        pcie=float("inf"),
        nvlink=bandwidth,
        k=Coefficients(
            p.get("backward", START["backward"]),
            p["overlap"],
            p.get("update", 0.0) / SIZE,
            p.get("hosted", 0.0) / SIZE,
            p["constant"],
            p.get("moved", 0.0),
            0.0,
        ),
        activations=activations,
        layers=p.get("tensor", 0.0) * MI * bandwidth / (32.0 * activations * batch),
    )


def quantise(step_s: float) -> float:
    """Milliseconds, to a percent: a fit is not made again for what hardly changed."""
    return exp(round(log(1000.0 * step_s), 2))
