"""Round-robin gang slicing inside a node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from weft.core.model.job import JobId
from weft.policies.gandiva.occupancy import Turn


def next_turn(
    order: Sequence[JobId], sizes: Mapping[JobId, int], gpus: int, pinned: Collection[JobId] = ()
) -> Turn:
    """The next set of gangs that fits, from the head of the order; they go to its end.

    The head always runs, so each gang runs at least once in as many quanta as there are gangs
    that do not fit together.
    """
    inside: list[JobId] = []
    for unit in sorted(order, key=lambda u: u not in pinned):
        if sizes[unit] <= gpus:
            inside.append(unit)
            gpus -= sizes[unit]
    rest = [unit for unit in order if unit not in inside]
    return Turn((*rest, *inside), tuple(inside))


def fill_slice(turn: Turn, sizes: Mapping[JobId, int], gpus: int) -> Turn:
    """The same turn with gaps that leavers left filled by those who come next."""
    inside = [unit for unit in turn.inside if unit in sizes]
    gpus -= sum(sizes[unit] for unit in inside)
    for unit in turn.order:
        if unit not in inside and sizes[unit] <= gpus:
            inside.append(unit)
            gpus -= sizes[unit]
    return Turn(turn.order, tuple(inside))


def known(turn: Turn, units: Sequence[JobId]) -> Turn:
    """A turn without those who left, newcomers at the end of its order."""
    order = [unit for unit in turn.order if unit in units]
    order += [unit for unit in units if unit not in order]
    return Turn(tuple(order), tuple(unit for unit in turn.inside if unit in units))
