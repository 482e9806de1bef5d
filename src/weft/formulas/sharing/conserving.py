"""Interleaving without lock step: each member at its own rate, no resource left idle in vain.

Members start from the pace that lock step would give them, so nobody loses by it; then all
speeds rise together, as parts of each member's speed alone, until a resource is used up or
a member runs as if alone. Those held back stay where they are and the others go on: the max-min
fair point that a coordinator reaches by granting each resource to whoever is furthest behind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.state.table import Floats

EPS = 1e-12


def speeds(alone_s: Sequence[float], stages: Sequence[Sequence[float]], floor_s: float) -> Floats:
    """Each member's speed as a part of its speed alone.

    `alone_s` are iteration times alone, `stages` the seconds of each resource in an iteration,
    `floor_s` the period in which lock step would do one iteration of everybody.
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
