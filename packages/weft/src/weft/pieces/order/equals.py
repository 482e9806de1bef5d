"""Equal jobs: no job is stopped so that its equal, which waits, can have its place.

Nothing is gained by that, and a restart is lost. It would happen where only the order of submission
is between them: an earlier one that died is back soon after a later one was given its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Demand, Job
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Rows

Likeness = tuple[Demand, str, str, int, float]


def put_holders_first(view: View, rows: Rows, key: Floats | None = None) -> Rows:
    """Order rows so that of equal jobs of one `key` those that hold devices come first."""
    holds = view.table.held[rows] > 0.0
    if holds.all() or not holds.any():
        return rows
    places: dict[Likeness, list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        places.setdefault(_likeness(view, row, key), []).append(place)
    order = rows.copy()
    for alike in places.values():
        order[alike] = rows[sorted(alike, key=lambda place: not holds[place])]
    return order


def drop_swaps(
    view: View, key: Floats | None, stopped: Sequence[int], started: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Rows that stop and rows that start, in order, without the pairs of equals of one `key`.

    With several kinds of GPU the place of the one may be of another kind than that of its equal.
    """
    if key is None or not stopped or not started or len(view.cluster.kinds) > 1:
        return stopped, started
    equals: dict[Likeness, list[int]] = {}
    for row in started:
        equals.setdefault(_likeness(view, row, key), []).append(row)
    held, need = view.table.held, view.table.need
    dropped: set[int] = set()
    for row in stopped:
        alike = equals.get(_likeness(view, row, key))
        if alike and abs(held[row] - need[row]) < 1e-9:
            dropped |= {row, alike.pop()}  # those that come first still start elsewhere
    if not dropped:
        return stopped, started
    return [r for r in stopped if r not in dropped], [r for r in started if r not in dropped]


def _likeness(view: View, row: int, key: Floats | None) -> Likeness:
    job: Job = view.job(row)
    rank = job.priority if key is None else float(key[row])  # what has a key may ignore priorities
    return (job.demand, job.model, job.tenant, job.tier, rank)
