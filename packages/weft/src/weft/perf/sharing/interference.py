"""Speeds of jobs beside each other on one GPU, and whether they fit.

`rates` answers for a group by the model that ships with the package, fitted to measurements on an
H200 by `python -m benchmarks.interference_ship`; `benchmarks.interference_fit` makes one from
other measurements.

The law of sharing a GPU: what a job shows alone, and what groups of jobs make of it.

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

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import InvalidConfig, did_you_mean
from weft.frozen import frozen

ROUNDS = 12
LIMIT = 3.0  # of the logarithm of a weight: beyond, nothing was measured
SHARES = (0.01, 0.99)  # logits of features stay finite


@frozen
class Features:
    """Use of a GPU that a job has to itself.

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
class InterferenceLaw:
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


def rates_by_share(jobs: Sequence[tuple[float, float]], cost: float) -> list[float]:
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
    """Settle a pair, which is most of what is asked, several times as fast."""
    here, there, time, other = s, z, s, z
    on, back = cost * w / v, cost * v / w
    for _ in range(ROUNDS):
        time, other = s * (1.0 + on * there), z * (1.0 + back * here)
        here, there = time / (1.0 - s + time), other / (1.0 - z + other)
    return [min(1.0, 1.0 / (1.0 - s + time)), min(1.0, 1.0 / (1.0 - z + other))]


@lru_cache(maxsize=65_536)
def exposure(law: InterferenceLaw, job: Features) -> tuple[float, float]:
    """The job's exposed share, in (0, 1), and its weight."""
    return _exposure(law, place_on_scales(job))


def worst(law: InterferenceLaw) -> tuple[float, float, float]:
    """Largest share, smallest weight and largest weight of the measured workloads."""
    measured = [_exposure(law, centre) for centre in law.centres]
    weights = [weight for _, weight in measured]
    return max(share for share, _ in measured), min(weights), max(weights)


def _exposure(law: InterferenceLaw, x: Sequence[float]) -> tuple[float, float]:
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


def place_on_scales(job: Features) -> tuple[float, ...]:
    """Place a measured job on scales on which the laws are linear; demands come first."""
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


TIMESLICING, MPS = "timeslicing", "mps"
Floats = NDArray[np.float64]
CONTEXT_GB = 0.5  # what a CUDA context holds beside the job's own tensors


@dataclass(frozen=True, slots=True, eq=False)
class Interference:
    """Normalised rates of groups, under each discipline there is a law for.

    `known` are the features of measured workloads by `MODEL:BATCH`, `errors` what the fit states
    about itself.
    """

    laws: Mapping[str, InterferenceLaw]
    known: Mapping[str, Features] = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)

    def rates(self, group: Sequence[Features], discipline: str) -> Floats:
        """The rate of each member over its rate alone: in (0, 1], and 1 for a single member."""
        law = self.laws.get(discipline)
        if law is None:
            raise InvalidConfig(
                f"no sharing discipline {discipline!r}{did_you_mean(discipline, self.laws)}",
                hint=f"there are {', '.join(sorted(self.laws))}",
            )
        if len(group) < 2:
            return np.ones(len(group))
        return np.array(_rates(law, tuple(group)))

    def features(self, model: str, batch: int | None = None) -> Features:
        """Return features at the nearest measured batch size; `UNKNOWN` for other models.

        Without a batch size the largest measured one is meant, which is the worst neighbour.
        """
        name = self.nearest_workload(model, batch)
        return UNKNOWN if name is None else self.known[name]

    def nearest_workload(self, model: str, batch: int | None = None) -> str | None:
        """The measured workload `MODEL:BATCH` that is nearest; None where none is of the model."""
        sizes = {int(size): f"{name}:{size}" for name, size, _ in self._named() if name == model}
        if not sizes:
            return None
        if batch is None:
            return sizes[max(sizes)]
        return sizes[min(sizes, key=lambda size: abs(math.log(size / max(batch, 1))))]

    def _named(self) -> Iterator[tuple[str, str, Features]]:
        for name, features in self.known.items():
            model, _, batch = name.rpartition(":")
            yield model, batch, features


def rates(group: Sequence[Features], discipline: str) -> Floats:
    """The rate of each member over its rate alone, by the model that ships with the package."""
    return load_shipped().rates(group, discipline)


def fits_memory(group: Sequence[Features], gpu_mem_gb: float) -> bool:
    """Return true if members' peaks and a context for each fit; a single job is taken to fit."""
    return len(group) < 2 or sum(job.mem_gb + CONTEXT_GB for job in group) <= gpu_mem_gb


@lru_cache(maxsize=65_536)
def _rates(law: InterferenceLaw, group: tuple[Features, ...]) -> tuple[float, ...]:
    if all(job.busy is not None for job in group):
        return tuple(rates_by_share([exposure(law, job) for job in group], law.cost))
    return tuple(_own(law, group, at) for at in range(len(group)))


def _own(law: InterferenceLaw, group: tuple[Features, ...], at: int) -> float:
    """A member's rate where some are not measured: heavy to others, light to themselves."""
    share, light, heavy = worst(law)
    jobs = [(share, heavy) if job.busy is None else exposure(law, job) for job in group]
    if group[at].busy is None:
        jobs[at] = share, light
    return rates_by_share(jobs, law.cost)[at]


@cache
def load_shipped() -> Interference:
    """The model fitted to measurements on an H200; `errors` states how well."""
    return parse(files("weft.perf").joinpath("data/interference.json").read_text())


def parse(text: str) -> Interference:
    """The model that `dump` wrote."""
    try:
        held = json.loads(text)
        laws = {name: _law(law) for name, law in held["laws"].items()}
        known = {name: Features(**facts) for name, facts in held["known"].items()}
        return Interference(laws, known, held["errors"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidConfig(
            f"not an interference model: {error!r}",
            hint="`python -m benchmarks.interference_ship` writes one",
        ) from error


def _law(held: dict[str, Any]) -> InterferenceLaw:
    def rows(name: str) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(row) for row in held[name])

    return InterferenceLaw(
        rows("weights"), rows("bumps"), rows("centres"), held["width"], held["cost"]
    )


def dump(model: Interference) -> str:
    """The model as JSON, numbers to five digits."""
    whole = {
        "errors": dict(model.errors),
        "laws": {name: _short(asdict(law)) for name, law in model.laws.items()},
        "known": {name: _short(asdict(job)) for name, job in model.known.items()},
    }
    return json.dumps(whole, indent=1) + "\n"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _short(held) for key, held in value.items()}
    return [_short(held) for held in value] if isinstance(value, (list, tuple)) else value
