"""Synthetic PAI: parts of GPUs, gangs of instances, and GPU kinds that some jobs insist on."""

from __future__ import annotations

import numpy as np

from weft.traces.draft import demand
from weft.traces.draw.arrivals import Ints, Lengths, bursts, times
from weft.traces.draw.params import Floats, family
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe
from weft.traces.formats.pai import CLUSTER
from weft.traces.synthetic.calibrated import ALIKE, burst_scores, draw_sizes, people_of

# Percent of tasks by instances; the remaining 4 % are spread evenly in log scale over TAIL.
GANGS = {1: 77.0, 2: 3.1, 3: 1.5, 4: 1.4, 5: 1.7, 8: 1.2, 10: 4.0, 12: 0.8, 16: 0.9, 20: 2.1}
GANGS |= {30: 0.9, 50: 1.4}
TAIL = (6, 400)
LARGE, LARGE_SHIFT = 8, 0.45
FAILED = 0.225
# A third of the jobs name a kind (as measured in 2023); undisclosed kinds stand under `misc`.
# Only jobs on one device do here, three of four, so that a bound job fits wherever its kind is.
CONSTRAINED = 0.44
KINDS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("t4",), 0.53),
    (("misc",), 0.14),
    (("p100",), 0.11),
    (("v100", "v100m32"), 0.22),
)


def draw(want: DrawSettings) -> Drawn:
    """Like the other families, with a gang size and a kind drawn besides."""
    source = family("pai")
    arrivals, sizing, states, scores, people, ganging, kinding = want.streams(7)
    burst_of = bursts(want.jobs, source.arrival.burst, arrivals)
    alike = sizing.random(int(burst_of[-1]) + 1) < ALIKE
    each = draw_sizes(source, want.limit, burst_of, alike, sizing)
    gangs = np.where(each <= 1, draw_gangs(want.jobs, want.limit, ganging), 1)
    large = gangs > LARGE
    share = float(large.mean())
    lengths = Lengths(source, ((1 - share, 0.0), (share, LARGE_SHIFT)))
    score = burst_scores(burst_of, alike, scores)
    shift = np.where(large, LARGE_SHIFT, 0.0)
    seconds: Floats = lengths.draw(score, each, shift).round(3)
    kinds = draw_kinds(each * gangs, want.kinds, kinding)
    failed = states.random(want.jobs) < FAILED
    span = want.span(each * gangs * seconds)
    return Drawn(
        when=times(source.arrival, burst_of, span, arrivals),
        lengths=seconds,
        demands=[
            demand(size, gang, kind)
            for size, gang, kind in zip(each.tolist(), gangs.tolist(), kinds, strict=True)
        ],
        states=["failed" if f else "completed" for f in failed.tolist()],
        users=people_of(source, burst_of, (), people)[0],
    )


def draw_gangs(count: int, limit: int, rng: np.random.Generator) -> Ints:
    """Instances of each job, at most `limit`."""
    tail = np.arange(TAIL[0], TAIL[1] + 1)
    weight = 1.0 / tail
    sizes = np.concatenate((list(GANGS), tail)).astype(np.int64)
    rest = (100.0 - sum(GANGS.values())) * weight / weight.sum()
    p: Floats = np.concatenate((list(GANGS.values()), rest))
    p = np.where(sizes <= limit, p, 0.0)
    return rng.choice(sizes, size=count, p=p / p.sum())


def draw_kinds(
    gpus: Floats, present: tuple[str, ...], rng: np.random.Generator
) -> list[tuple[str, ...]]:
    """The kinds each job insists on; only kinds that are `present` are ever named."""
    wants = rng.random(gpus.size) < CONSTRAINED
    which = rng.choice(len(KINDS), size=gpus.size, p=[p for _, p in KINDS])
    options = [tuple(kind for kind in kinds if kind in present) for kinds, _ in KINDS]
    bound = wants & (gpus <= 1)
    return [
        options[i] if yes else () for i, yes in zip(which.tolist(), bound.tolist(), strict=True)
    ]


_ABOUT = "calibrated to Alibaba PAI with shared GPUs and gangs (Weng et al., NSDI'22)"
PAI = WorkloadRecipe(
    "pai", _ABOUT, "16x2:p100+10x2:t4+6x8:misc+3x8:v100m32+2x8:v100", draw
).workload()
PAI_100K = WorkloadRecipe(
    "pai-syn-100k", f"100,000 jobs {_ABOUT}", CLUSTER, draw, 100_000
).workload()
