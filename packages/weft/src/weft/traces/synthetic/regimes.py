"""Jobs that change their batch size as they train, drawn by laws of ours.

No law of regimes has been published. Two kinds of adaptation are known from training systems:
Accordion goes between a small batch, in epochs where gradients change fast, and a large one; growth
by gradient noise scale doubles the batch again and again. Half of the jobs do one, four tenths the
other, and the rest keep their batch. Gangs are those of Shockwave's traces.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import numpy as np

from weft.core.model.trace import Detail
from weft.formulas.training.regimes import Regimes
from weft.traces.draft import demand
from weft.traces.draw.arrivals import poisson
from weft.traces.draw.batch_schedules import Schedule, compress
from weft.traces.draw.recipe import Drawn, DrawSettings, WorkloadRecipe

GANGS = {1: 0.6, 2: 0.3, 4: 0.09, 8: 0.01}
ACCORDION, GROWING = 0.5, 0.9  # below the first, and below the second, of a draw from 0 to 1
SHORTEST_S, LONGEST_S = 720.0, 18_000.0
SHORT = 3.0  # how much likelier short jobs are: lengths are drawn by the power of a uniform number


class DrawnTraining(NamedTuple):
    """A drawn job: what it declares, and the regimes it goes through."""

    declared: Regimes
    schedule: Schedule


def draw_regimes(want: DrawSettings) -> Drawn:
    """20 to 200 epochs; a larger batch makes an epoch shorter, by 1.1 to 1.6 for each doubling."""
    arrivals, sizing, lengthening, adapting = want.streams(4)
    sizes = np.array([g for g in GANGS if g <= max(want.limit, 1)])
    odds = np.array([GANGS[int(g)] for g in sizes])
    gangs = sizing.choice(sizes, want.jobs, p=odds / odds.sum())
    spread = np.log(LONGEST_S / SHORTEST_S)
    wanted = SHORTEST_S * np.exp(spread * lengthening.random(want.jobs) ** SHORT)
    trainings = [_train(float(seconds), adapting) for seconds in wanted]
    lengths = np.array([training.declared.seconds(training.schedule) for training in trainings])
    return Drawn(
        when=poisson(want.jobs, want.span(gangs * lengths), arrivals),
        lengths=lengths,
        demands=[demand(int(g)) for g in gangs.tolist()],
        hints=[
            {"batch": float(training.schedule[0][0]), **training.declared.hints()}
            for training in trainings
        ],
        schedules=[training.schedule for training in trainings],
    )


def _train(seconds: float, rng: np.random.Generator) -> DrawnTraining:
    """A job of about `seconds`, scaled to be exactly so."""
    epochs, batch = int(rng.integers(20, 201)), int(2 ** rng.integers(4, 8))
    kind = float(rng.random())
    if kind < ACCORDION:
        schedule = _accordion(epochs, batch, rng)
    elif kind < GROWING:
        schedule = _grow(epochs, batch, rng)
    else:
        schedule = ((batch, epochs),)
    faster = float(rng.uniform(1.1, 1.6))
    sizes = sorted({size for size, _ in schedule})
    relative = {size: faster ** -log2(size / batch) for size in sizes}
    total = sum(n * relative[size] for size, n in schedule)
    declared = {size: round(seconds / total * each, 6) for size, each in relative.items()}
    return DrawnTraining(Regimes(epochs, declared, 1000.0 * batch), schedule)


def _accordion(epochs: int, batch: int, rng: np.random.Generator) -> Schedule:
    """A large batch after a tenth to two fifths of all epochs, but in a tenth of each third."""
    first, period = int(rng.uniform(0.1, 0.4) * epochs), max(epochs // 3, 10)
    large = batch * int(2 ** rng.integers(1, 5))
    critical = max(period // 10, 1)
    return compress(
        batch if epoch < first or epoch % period < critical else large for epoch in range(epochs)
    )


def _grow(epochs: int, batch: int, rng: np.random.Generator) -> Schedule:
    """One to four doublings, at epochs drawn at random."""
    at = np.sort(rng.integers(1, epochs, int(rng.integers(1, 5))))
    return compress(int(batch * 2 ** int((at <= epoch).sum())) for epoch in range(epochs))


REGIMES = WorkloadRecipe(
    "regimes",
    "jobs that change their batch size, and so their speed, as they train",
    "8x4:v100",
    draw_regimes,
    120,
    3.0,
    detail=Detail.REGIMES,
).workload()
