"""Synthetic Acme: LLM development by job type, on Seren or Kalos.

Evaluation jobs come in batches within a minute. Pretraining is a few long runs cut into segments,
each submitted some minutes after the one before it failed or was stopped.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from weft.traces.draft import demand
from weft.traces.draw.arrivals import draw_users, heads, quantile, stretch
from weft.traces.draw.params import Family, Floats, JobType, family, job_types
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe, number_names

# Our choices; the trace says only that evaluations are simultaneous and segments follow restarts.
BATCH, BATCH_SPREAD_S = 40, 60.0
RESTART_S = (300.0, 1800.0)
BEYOND, BEYOND_UP_TO = 0.05, 1024
STOPPED = 0.6


def draw(want: DrawSettings, cluster: str) -> Drawn:
    """Draw the type of each job, then its GPUs, length and arrival by the ways of that type."""
    source = family(f"acme_{cluster}")
    types = job_types(cluster)
    typing, sizing, lengthening, arriving, people, states = want.streams(6)
    share = np.array([t.share for t in types])
    which = np.sort(typing.choice(len(types), size=want.jobs, p=share / share.sum()))
    counts = np.bincount(which, minlength=len(types))
    parts = list(zip(types, counts.tolist(), strict=True))
    gpus = np.concatenate([draw_gpus(t, n, want.limit, sizing) for t, n in parts])
    lengths = np.concatenate(
        [quantile(t.duration_cdf, lengthening.random(n), source.duration_cap) for t, n in parts]
    ).round(3)
    span = want.span(gpus * lengths)
    ends = np.cumsum(counts)
    when = [
        _arrivals(t, lengths[end - n : end], span, source, arriving)
        for (t, n), end in zip(parts, ends, strict=True)
    ]
    users = draw_users(want.jobs, source.users, source.user_sigma, people)
    return Drawn(
        when=stretch(np.concatenate(when), span),
        lengths=lengths,
        demands=[demand(g) for g in gpus.tolist()],
        states=[s for t, n in parts for s in _states(t, n, source, states)],
        users=number_names("u", users),
        models=[t.name for t, n in parts for _ in range(n)],
    )


def draw_gpus(job_type: JobType, count: int, limit: int, rng: np.random.Generator) -> Floats:
    """Lognormal through the quartiles, rounded to 1, 2, 4 or multiples of 8, within the whiskers.

    What is larger than `limit` is cut to it: large pretraining has no smaller sizes to redraw.
    """
    low, first, median, third, high = job_type.gpu_box
    sigma = np.log(third / first) / 1.349
    raw = median * np.exp(sigma * rng.standard_normal(count))
    gpus = np.clip(round_sizes(raw), low, high)
    if job_type.name == "pretrain":
        far = round_sizes(rng.uniform(high, max(high, BEYOND_UP_TO), count))
        gpus = np.where(rng.random(count) < BEYOND, far, gpus)
    most = limit // 8 * 8 if limit >= 8 else 2 ** int(np.log2(limit))
    return np.minimum(gpus, float(most))


def round_sizes(gpus: Floats) -> Floats:
    """The nearest size that users ask for."""
    small = 2.0 ** np.clip(np.round(np.log2(gpus)), 0, 3)
    return np.where(gpus < 8, small, np.maximum(8.0, np.round(gpus / 8) * 8))


def _arrivals(
    job_type: JobType, lengths: Floats, span: float, source: Family, rng: np.random.Generator
) -> Floats:
    count = lengths.size
    if job_type.name == "pretrain":
        # Segments end to end, wrapped at the end of the trace: as many runs side by side as needed.
        waits = rng.uniform(*RESTART_S, count)
        clock = np.cumsum(lengths + waits) - lengths - waits + rng.uniform(0, span)
        wrapped: Floats = clock % span
        return wrapped
    if job_type.name == "eval":
        batches = max(1, round(count / BATCH))
        starts = heads(source.arrival, batches, span, rng)
        return starts[rng.integers(0, batches, count)] + rng.uniform(0, BATCH_SPREAD_S, count)
    return heads(source.arrival, count, span, rng)


def _states(job_type: JobType, count: int, source: Family, rng: np.random.Generator) -> list[str]:
    if job_type.name == "pretrain":
        stopped = rng.random(count) < STOPPED
        return ["cancelled" if s else "failed" for s in stopped.tolist()]
    return [source.states[i] for i in rng.choice(len(source.states), count, p=source.state_p)]


_ABOUT = "LLM development by job type, calibrated to Acme {} (Hu et al., NSDI'24)"
_seren, _kalos = partial(draw, cluster="seren"), partial(draw, cluster="kalos")
SEREN = WorkloadRecipe("seren", _ABOUT.format("Seren"), "seren", _seren).workload()
KALOS = WorkloadRecipe("kalos", _ABOUT.format("Kalos"), "kalos", _kalos).workload()
SEREN_WEEK = WorkloadRecipe(
    "seren-syn-week", f"17,000 jobs, {_ABOUT.format('Seren')}", "seren", _seren, 17_000
).workload()
KALOS_MONTH = WorkloadRecipe(
    "kalos-syn-month", f"5,600 jobs, {_ABOUT.format('Kalos')}", "kalos", _kalos, 5_600
).workload()
