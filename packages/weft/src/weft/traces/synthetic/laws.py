"""Workloads drawn by the laws that published systems state: Gavel, Shockwave, Pollux, Tiresias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.plural import say_gpus
from weft.traces.draft import demand
from weft.traces.draw.arrivals import Ints, heads, poisson, stretch
from weft.traces.draw.params import Floats, family
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe
from weft.traces.formats.gavel import GAVEL_CLUSTER, STEPS_PER_S, batch_of
from weft.traces.formats.shockwave import MODES
from weft.traces.formats.sia import MODELS, elastic, length

JOB_TYPES = tuple(STEPS_PER_S)
GAVEL_GPUS = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.05}
SHOCKWAVE_GPUS = {1: 0.6, 2: 0.3, 4: 0.09, 8: 0.01}
TIRESIAS_GPUS = {1: 1 / 2, 2: 1 / 6, 4: 1 / 6, 8: 1 / 6}
TIRESIAS_MODELS = (
    *("vgg11", "vgg16", "vgg19", "alexnet", "googlenet", "inception3", "inception4"),
    *("resnet50", "resnet101", "resnet152"),
)
# Classes of Philly jobs by GPU-time, and what Pollux trains in their place.
POLLUX_MIX = {"cifar10": 0.746, "deepspeech2": 0.093, "bert": 0.093, "yolov3": 0.048}
POLLUX_MIX |= {"imagenet": 0.021}
# The eight hours of the day, from 02:00, that Pollux cuts out.
POLLUX_START = 2


def draw_gavel(want: DrawSettings) -> Drawn:
    """60 * 10^U s, U in [1.5, 3] four times of five and else in [3, 4]; a fifth weigh five."""
    arrivals, sizing, lengthening, weighing = want.streams(4)
    types = sizing.integers(0, len(JOB_TYPES), want.jobs)
    gpus = _gangs(types, GAVEL_GPUS, want, sizing)
    short = lengthening.random(want.jobs) < 0.8
    u = lengthening.random(want.jobs)
    lengths = np.round(60.0 * 10.0 ** np.where(short, 1.5 + 1.5 * u, 3.0 + u), 3)
    models = [JOB_TYPES[i] for i in types.tolist()]
    return replace(
        _arrive(want, arrivals, gpus, lengths, models),
        priorities=np.where(weighing.random(want.jobs) < 0.2, 5.0, 1.0).tolist(),
        hints=[batch_of(model) for model in models],
    )


def draw_shockwave(want: DrawSettings) -> Drawn:
    """0.2 to 5 h on a geometric grid of 100 points, shorter classes likelier; batches change."""
    arrivals, sizing, lengthening, adapting = want.streams(4)
    types = sizing.integers(0, len(JOB_TYPES), want.jobs)
    gpus = _gangs(types, SHOCKWAVE_GPUS, want, sizing)
    grid = np.geomspace(0.2, 5.0, 100) * 3600
    cuts = np.array([0, 20, 50, 90, 100])
    kind = lengthening.choice(4, size=want.jobs, p=[0.72, 0.20, 0.05, 0.03])
    lengths = np.round(grid[lengthening.integers(cuts[kind], cuts[kind + 1])], 3)
    accordion = adapting.random(want.jobs) < 0.5
    # Too short to change its batch: such a job is static.
    mode = np.where(accordion, np.where(lengths < 1000, "static", "accordion"), "gns")
    models = [JOB_TYPES[i] for i in types.tolist()]
    modes = zip(models, mode.tolist(), strict=True)
    hints = [{**batch_of(model), "mode": MODES[m]} for model, m in modes]
    return replace(_arrive(want, arrivals, gpus, lengths, models), hints=hints)


def draw_pollux(want: DrawSettings) -> Drawn:
    """A model by the class of a Philly job, a tuned request, and the morning hours of Philly."""
    arrivals, choosing, tuning = want.streams(3)
    weight = np.array(list(POLLUX_MIX.values()))
    picked = choosing.choice(len(POLLUX_MIX), size=want.jobs, p=weight / weight.sum())
    models = [list(POLLUX_MIX)[i] for i in picked.tolist()]
    luck = tuning.random(want.jobs).tolist()
    tuned = [_tune(m, u, want.limit) for m, u in zip(models, luck, strict=True)]
    lengths = np.array([length(m, gpus) for m, (gpus, _) in zip(models, tuned, strict=True)])
    work = lengths * np.array([gpus for gpus, _ in tuned])
    hours = np.roll(family("philly").arrival.hours, -POLLUX_START)
    calm = replace(family("philly").arrival, hours=hours, noise=0.0, burst=0.0)
    span = want.span(work)
    return Drawn(
        when=stretch(heads(calm, want.jobs, span, arrivals), span),
        lengths=lengths,
        demands=[elastic(gpus) for gpus, _ in tuned],
        models=models,
        batches=[MODELS[m].batch for m in models],
        hints=[{"batch": float(batch)} for _, batch in tuned],
    )


def draw_tiresias(want: DrawSettings) -> Drawn:
    """Short CNN jobs as on the testbed: two minutes and a little, some up to half an hour."""
    arrivals, sizing, lengthening = want.streams(3)
    gpus = _sizes(TIRESIAS_GPUS, want, sizing)
    picked = sizing.integers(0, len(TIRESIAS_MODELS), want.jobs)
    more = 5.0 * np.exp(2.4 * lengthening.standard_normal(want.jobs))
    lengths: Floats = np.minimum(120.0 + more, 1800.0).round(3)
    models = [TIRESIAS_MODELS[i] for i in picked.tolist()]
    return _arrive(want, arrivals, gpus, lengths, models)


def _arrive(
    want: DrawSettings,
    arrivals: np.random.Generator,
    gpus: Floats,
    lengths: Floats,
    models: list[str],
) -> Drawn:
    when = poisson(want.jobs, want.span(gpus * lengths), arrivals)
    return Drawn(when, lengths, [demand(g) for g in gpus.tolist()], models=models)


def _sizes(mix: dict[int, float], want: DrawSettings, rng: np.random.Generator) -> Floats:
    sizes = np.array([size for size in mix if size <= want.limit], dtype=np.float64)
    p = np.array([share for size, share in mix.items() if size <= want.limit])
    return rng.choice(sizes, size=want.jobs, p=p / p.sum())


def _gangs(
    types: Ints, mix: dict[int, float], want: DrawSettings, rng: np.random.Generator
) -> Floats:
    """Sizes; job types that train on one GPU only get one."""
    single = np.array([len(rates) == 1 for rates in STEPS_PER_S.values()])
    return np.where(single[types], 1.0, _sizes(mix, want, rng))


def _tune(model: str, luck: float, limit: int) -> tuple[int, int]:
    known: Sequence[tuple[int, int]] = [t for t in MODELS[model].tuned if t[0] <= limit]
    if not known:
        least = min(MODELS[model].tuned)[0]
        raise InvalidConfig(
            f"{model} asks for at least {say_gpus(least)}, and the largest job may have {limit}",
            hint=f"choose a cluster of at least {say_gpus(least)} of one kind",
        )
    return known[int(luck * len(known))]


GAVEL = WorkloadRecipe(
    "gavel",
    "Poisson arrivals of 26 job types by the law of Gavel (Narayanan et al., OSDI'20)",
    GAVEL_CLUSTER,
    draw_gavel,
).workload()
# Loads of the next three are those of the published arrival rates.
SHOCKWAVE = WorkloadRecipe(
    "shockwave",
    "overload of jobs that change batch size, by the law of Shockwave (Zheng et al., NSDI'23)",
    "8x4:v100",
    draw_shockwave,
    120,
    4.0,
).workload()
POLLUX = WorkloadRecipe(
    "pollux",
    "adaptive jobs of five models, shaped as in Pollux (Qiao et al., OSDI'21) and Sia (SOSP'23)",
    "sia-hetero",
    draw_pollux,
    160,
    1.7,
).workload()
TIRESIAS = WorkloadRecipe(
    "tiresias-60",
    "60 short CNN jobs as on the testbed of Tiresias (Gu et al., NSDI'19)",
    "tiresias-testbed",
    draw_tiresias,
    60,
    0.25,
).workload()
