"""Choice of the spot jobs that give way: those whose lost work costs least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import pow

from weft.core.model.job import JobId
from weft.frozen import frozen

MOST_SCORE = 10_000.0
WEIGHT_OF_COST = 5.0


@frozen
class SpotGuest:
    """A spot job on a node: how many of its GPUs it has there, and what it costs to stop it.

    `cost` is the GPU-seconds since it started, on all its nodes.
    """

    job: JobId
    gpus: float
    cost: float


@frozen
class PromiseRecord:
    """Hours of spot jobs that were broken and kept."""

    broken: int = 0
    kept: int = 0


def choose_victims(guests: Iterable[SpotGuest], free: float, want: float) -> list[SpotGuest]:
    """The jobs to stop so that `want` GPUs are free: the costliest and cheapest in turn are spared.

    A job is spared while enough GPUs are left without it, else it is stopped. All of them where
    that is still too little.
    """
    ranked = sorted(guests, key=lambda guest: (-guest.cost, guest.job))
    left = free + sum(guest.gpus for guest in ranked)
    victims: list[SpotGuest] = []
    costliest = True
    while ranked:
        guest = ranked.pop(0 if costliest else -1)
        if left - guest.gpus >= want - 1e-9:
            left -= guest.gpus
        else:
            victims.append(guest)
            costliest = not costliest
    return victims


def node_cost(victims: Sequence[SpotGuest], record: PromiseRecord, gpu_seconds: float) -> float:
    """Return the cost of stopping these: broken promises, and lost work over `gpu_seconds`."""
    broken, lost = record.broken + len(victims), sum(guest.cost for guest in victims)
    hours = broken + record.kept
    return (broken / hours if hours else 0.0) + WEIGHT_OF_COST * lost / gpu_seconds


def eviction_score(last_hour: int, last_day: int) -> float:
    """Score how safe a node is for spot jobs, from evictions there: 9900 without any."""
    return MOST_SCORE * max(0.0, 1.0 - 0.01 * pow(2.0, 0.8 * last_hour + 0.2 * last_day))


NO_HOURS = PromiseRecord()
