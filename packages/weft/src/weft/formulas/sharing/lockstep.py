"""Interleaving in lock step: every member does one iteration in a common period.

Zhao et al., "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022. The period
has a slot for each resource; members are shifted by one slot each, so that at any moment they use
different resources, and a slot lasts as long as its slowest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import isclose
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats

Stages = tuple[float, ...]
SLOTS = 4
CYCLES = 2
OPPOSITE = (0, 2)


class Period(NamedTuple):
    """The length of a period, and the slots by which each member is shifted in it."""

    seconds: float
    shifts: tuple[int, ...]


@lru_cache(maxsize=1 << 16)
def best(members: tuple[Stages, ...]) -> Period:
    """The shifts with the shortest period; the first found among equals."""
    return min(_periods(members), key=lambda period: period.seconds)


@lru_cache(maxsize=1 << 16)
def worst(members: tuple[Stages, ...]) -> Period:
    """The shifts with the longest period, to show what ordering is worth."""
    return max(_periods(members), key=lambda period: period.seconds)


def period(members: Sequence[Stages], shifts: Sequence[int]) -> float:
    """Seconds in which members shifted like this do one iteration each."""
    if len({len(stages) for stages in members}) > 1:
        members = [split_data(stages) for stages in members]
    if tuple(shifts) == OPPOSITE and len(members[0]) == SLOTS - 1:
        (d0, g0, n0), (d1, g1, n1) = members
        return max(d0, g1 + n1) + max(d1, g0 + n0)
    if sorted(shifts) != list(range(len(members))):
        return best(tuple(members)).seconds  # the order is not given: they find the best
    ordered = [members[i] for i in sorted(range(len(members)), key=lambda i: shifts[i])]
    return _merge(ordered) if len(members[0]) == SLOTS - 1 else _fill_slots(ordered)


def split_data(stages: Stages) -> Stages:
    """Four resources: a data stage measured as one is half storage and half CPU."""
    if len(stages) == SLOTS:
        return stages
    data, gpu, network = stages
    return data / 2, data / 2, gpu, network


def efficiency(members: Sequence[Stages], period: float) -> float:
    """Mean busy part of the resources over one period."""
    return sum(map(sum, members)) / (SLOTS * period)


def _periods(members: tuple[Stages, ...]) -> list[Period]:
    """Every way to shift members; two that were measured in three stages may also be opposite."""
    ways = list(permutations(range(len(members))))
    if len(members) == 2 and {len(stages) for stages in members} == {SLOTS - 1}:
        ways.append(OPPOSITE)
    return [Period(period(members, shifts), shifts) for shifts in ways]


def _fill_slots(ordered: Sequence[Stages]) -> float:
    """A slot for each stage: in slot s the member at position i is in stage s - i."""
    k = max(len(ordered[0]), len(ordered))
    padded = [tuple(stages) + (0.0,) * (k - len(stages)) for stages in ordered]
    return sum(max(stages[(s - i) % k] for i, stages in enumerate(padded)) for s in range(k))


def _merge(ordered: Sequence[Stages]) -> float:
    """Return the time where storage and CPU were measured as one stage, which takes two slots.

    As the authors compute it: `at[i]` is when slot i begins. The recurrence takes no maximum
    with the slot before, so a slot may even begin earlier than the one in front of it.
    """
    n = len(ordered)
    at = [0.0] * (SLOTS * CYCLES + 1)
    for i in range(SLOTS * CYCLES):
        ends = [0.0]
        if (p := (i + 1) % SLOTS) < n:
            ends.append(at[i] + ordered[p][2])
        if (p := (i + 2) % SLOTS) < n:
            ends.append(at[i] + ordered[p][1])
        if i > 0 and (p := (i + 3) % SLOTS) < n:
            ends.append(at[i - 1] + ordered[p][0])
        at[i + 1] = max(ends)
        if i >= SLOTS:
            this, last = at[i + 1] - at[i - 3], at[i] - at[i - 4]
            if this > 0.0 and isclose(this, last, rel_tol=1e-3):
                return this
    return at[-1] - at[-1 - SLOTS]


# Interleaving without lock step: each member at its own rate, no resource left idle in vain.
#
# Members start from the pace that lock step would give them, so no job loses by it; then all speeds
# rise together, as parts of each member's speed alone, until a resource is used up or a member runs
# as if alone. Those held back stay where they are and the others go on: the max-min fair point that
# a coordinator reaches by granting each resource to the job that is furthest behind.

EPS = 1e-12


def conserving_speeds(
    alone_s: Sequence[float], stages: Sequence[Sequence[float]], floor_s: float
) -> Floats:
    """Each member's speed as a part of its speed alone.

    `alone_s` are iteration times alone, `stages` the seconds of each resource in an iteration,
    `floor_s` the period in which lock step would do one iteration of all.
    """
    alone = np.asarray(alone_s, dtype=float)
    # Resource x member: the part of a resource that a member would take at full speed; more
    # than all of it where contention makes one stage longer than an iteration alone was.
    use = np.asarray(stages, dtype=float).T / alone
    speed = np.minimum(alone / floor_s, 1.0)
    rising = speed < 1.0 - EPS
    while rising.any():
        room = 1.0 - use @ speed
        climb = use[:, rising].sum(axis=1)
        steps = np.divide(room, climb, out=np.full_like(room, np.inf), where=climb > EPS)
        step = max(0.0, min(float(steps.min()), float((1.0 - speed[rising]).min())))
        speed[rising] += step
        full = 1.0 - use @ speed <= 1e-9
        rising &= (speed < 1.0 - EPS) & ~(use[full] > EPS).any(axis=0)
    return speed
