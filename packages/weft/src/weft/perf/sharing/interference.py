"""The law of sharing a GPU: what a job shows alone, and what groups of jobs make of it.

A job alone spends its step partly where neighbours do not matter (the host launches kernels, loads
data) and partly exposed to them. Let s_i be the exposed share and v_i the job's weight, both
functions of what it shows alone. Jobs that are on the GPU at the same moment share it in proportion
to their weights, and what one takes costs the others a factor c of it:

    R_i = s_i (1 + c sum over k != i of v_k / v_i Q_k)    exposed time, in steps alone
    Q_i = R_i / (1 - s_i + R_i)                           share of time on the GPU or waiting
    r_i = 1 / (1 - s_i + R_i)                             normalised rate: together over alone

which is approximate mean-value analysis of a closed queueing system (Schweitzer 1979) whose server
is shared by weights. k equal jobs that fill the GPU get 1 / (1 + c (k - 1)) each: fair shares with
c at 1. With s near 0 they do not notice each other. In terms of v_i Q_i every right-hand side grows
with every s and every neighbour's v and Q, so another or a heavier neighbour never helps.

s and v are linear in the features (through a sigmoid and an exponential; more demand never weighs
less) plus a small kernel term around the workloads that were measured;
`benchmarks.interference_fit` finds the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

ROUNDS = 12
LIMIT = 3.0  # of the logarithm of a weight: beyond, nothing was measured
SHARES = (0.01, 0.99)  # logits of features stay finite


@frozen
class Features:
    """What a job shows when it has the GPU to itself.

    `busy` is the share of a step in which a kernel runs (NVML's utilisation is close to it), `fill`
    the share of the GPU's processors these kernels occupy, `bandwidth` the share of time in which
    memory is read or written; `kernel_us` and `step_s` are mean times of a kernel and of a step,
    `mem_gb` is the peak. `busy` is None for a job without measurements: it is then taken to be as
    exposed as the most exposed of the measured workloads, to weigh as much as the heaviest where it
    slows others, and as little as the lightest where others slow it. Unknown memory fits
    beside no other.
    """

    busy: float | None = None
    fill: float = 0.9
    bandwidth: float = 0.5
    kernel_us: float = 30.0
    step_s: float = 0.04
    mem_gb: float = math.inf

    def __post_init__(self) -> None:
        shares = {"busy": self.busy, "fill": self.fill, "bandwidth": self.bandwidth}
        for name, share in shares.items():
            if share is not None and not 0.0 <= share <= 1.0:
                raise InvalidConfig(
                    f"{name} is {share!r}, expected a share from 0 to 1",
                    hint="divide percentages by 100",
                )
        amounts = {"kernel_us": self.kernel_us, "step_s": self.step_s, "mem_gb": self.mem_gb}
        for name, amount in amounts.items():
            if not amount > 0.0:
                raise InvalidConfig(
                    f"{name} is {amount!r}, expected more than 0",
                    hint="leave out what was not measured",
                )


UNKNOWN = Features()


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """The fitted functions of one discipline.

    Row 0 of `weights` and `bumps` makes the exposed share, row 1 the job's weight; `centres` are
    the points (of the measured workloads) that kernels of width `width` are around; `cost` is c.
    Compared by identity, so that caches need not hash a hundred numbers.
    """

    weights: tuple[tuple[float, ...], ...]
    bumps: tuple[tuple[float, ...], ...]
    centres: tuple[tuple[float, ...], ...]
    width: float
    cost: float


def settle(jobs: Sequence[tuple[float, float]], cost: float) -> list[float]:
    """Rates of jobs by share and weight.

    A fixed number of rounds from below, each monotone in its inputs, so that the answer is too.
    """
    if len(jobs) == 2:
        return _settle_two(*jobs[0], *jobs[1], cost)
    times = [s for s, _ in jobs]
    taken = [v * s for s, v in jobs]
    for _ in range(ROUNDS):
        # Not the total less one's own: rounding would tell identical jobs apart.
        others = [sum(taken[:i] + taken[i + 1 :]) for i in range(len(jobs))]
        times = [s * (1.0 + cost * o / v) for (s, v), o in zip(jobs, others, strict=True)]
        taken = [v * t / (1.0 - s + t) for (s, v), t in zip(jobs, times, strict=True)]
    # The bound is for the last digit: 1 - s + s may be less than 1.
    return [min(1.0, 1.0 / (1.0 - s + t)) for (s, _), t in zip(jobs, times, strict=True)]


def _settle_two(s: float, v: float, z: float, w: float, cost: float) -> list[float]:
    """The same for a pair, which is most of what is asked, several times as fast."""
    here, there, time, other = s, z, s, z
    on, back = cost * w / v, cost * v / w
    for _ in range(ROUNDS):
        time, other = s * (1.0 + on * there), z * (1.0 + back * here)
        here, there = time / (1.0 - s + time), other / (1.0 - z + other)
    return [min(1.0, 1.0 / (1.0 - s + time)), min(1.0, 1.0 / (1.0 - z + other))]


@lru_cache(maxsize=65_536)
def exposure(law: Law, job: Features) -> tuple[float, float]:
    """The job's exposed share, in (0, 1), and its weight."""
    return _exposure(law, point(job))


def worst(law: Law) -> tuple[float, float, float]:
    """Largest share, smallest weight and largest weight of the measured workloads."""
    measured = [_exposure(law, centre) for centre in law.centres]
    weights = [weight for _, weight in measured]
    return max(share for share, _ in measured), min(weights), max(weights)


def _exposure(law: Law, x: Sequence[float]) -> tuple[float, float]:
    near = [math.exp(-_apart(x, centre) / (2.0 * law.width**2)) for centre in law.centres]
    share, weight = (
        weights[0] + _dot(weights[1:], x) + _dot(bumps, near)
        for weights, bumps in zip(law.weights, law.bumps, strict=True)
    )
    share = 1.0 / (1.0 + math.exp(-min(max(share, -30.0), 30.0)))
    return share, math.exp(min(max(weight, -LIMIT), LIMIT))


def _apart(x: Sequence[float], y: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def _dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def point(job: Features) -> tuple[float, ...]:
    """Where a measured job lies, on scales on which the laws are linear; demands come first."""
    busy = 1.0 if job.busy is None else job.busy
    return (
        _logit(busy) / 2.0,
        _logit(job.fill) / 2.0,
        _logit(job.bandwidth) / 2.0,
        math.log(job.kernel_us / 30.0) / 1.5,
        math.log(job.step_s / 0.04),
    )


def _logit(share: float) -> float:
    share = min(max(share, SHARES[0]), SHARES[1])
    return math.log(share / (1.0 - share))
