"""Rubick's law of step times, fitted to what jobs of a program reported of whole steps.

Forward times and bandwidths are not measured in a running job, so they are fitted as well, and the
size of the model is folded into them. GPUs share the forward pass evenly: by the authors' rule it
would grow with the replicas of a model that is divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

import numpy as np

from weft.core.model.execution import Execution
from weft.core.state.table import Floats
from weft.perf.plans.law import MI, NETWORK, Coefficients, PlanLaw

SIZE = 1e9  # parameters of a model that nobody told: only its times are fitted
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


class Seen(NamedTuple):
    """Milliseconds of a step under a plan with its replicas filled in."""

    plan: Execution
    step_ms: float


def fit_reports(seen: tuple[Seen, ...], batch: int, plan: Execution) -> PlanLaw | None:
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
    """Of a plan with its replicas filled in; a stage of a pipeline has its replicas together."""
    gpus = plan.data * plan.unit
    if plan.unit > 1:
        return law.divided_ms(plan, law.forward(gpus), plan.pipeline, gpus // plan.pipeline)
    return law.replicated_ms(plan, law.forward(gpus))


def _covers(plan: Execution) -> bool:
    """Rubick divides no model that has ZeRO, offload or checkpointing."""
    return plan.unit == 1 or not (plan.zero or plan.offload or plan.checkpointing)


def _traits(plan: Execution) -> set[str]:
    """What must have been seen before the law tells anything of a plan."""
    kind = "offload" if plan.offload else f"zero{plan.zero}"
    parts = {kind: True, "gc": plan.checkpointing, "tp": plan.tensor > 1, "pp": plan.pipeline > 1}
    return {name for name, there in parts.items() if there}


def _names(rows: tuple[Seen, ...]) -> tuple[str, ...]:
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
def _fit(rows: tuple[Seen, ...], batch: int) -> PlanLaw:
    """Least squares of logarithms, by Levenberg and Marquardt's steps."""
    names, shortest = _names(rows), min(row.step_ms for row in rows)
    most = max(row.plan.data * row.plan.unit for row in rows)
    times = [shortest * (most if n == "forward" else 1.0) for n in names]
    scale = np.array([0.0 if n in BOUNDS else log(t) for n, t in zip(names, times, strict=True)])
    start = scale + np.log([START[n] for n in names])
    low, high = scale + np.log([BOUNDS.get(n, REACH) for n in names]).T
    told = np.log([row.step_ms for row in rows])

    def errors(at: Floats) -> Floats:
        law = _law(dict(zip(names, np.exp(at).tolist(), strict=True)), batch)
        off = _bounded(np.log([step_ms(law, row.plan) for row in rows]) - told)
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
