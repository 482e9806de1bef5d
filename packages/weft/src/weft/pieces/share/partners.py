"""Jobs that share devices now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from weft.core.model.job import Allocation, NodeId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.releasing import devices_of
from weft.frozen import frozen
from weft.solve.few_jobs import NONE

TINY = 1e-6


@frozen
class Partners:
    """Rows on the same devices two by two, and rows that are on devices of others.

    `second` has the guest of each two by its host. `guests` are these, and all other jobs on a
    device that another row holds: the room that they take is counted there. `crowded` share with
    jobs that are not shown: they keep to the claims that they have.
    """

    second: Mapping[int, int] = field(default_factory=dict)
    guests: frozenset[int] = frozenset()
    crowded: frozenset[int] = frozenset()

    def leave(self, held: Floats) -> Floats:
        """The sizes that rows hold, where guests hold nothing."""
        if not self.guests:
            return held
        apart = held.copy()
        apart[list(self.guests)] = NONE
        return apart


NO_PARTNERS = Partners()


def find_partners(view: View, weight: Floats) -> Partners:
    """From what rows hold: the heavier of two is the host, and the other its guest.

    A job that may not be stopped comes first, and has no partner; one that asked for a part of a
    device has none either.
    """
    owner: dict[tuple[str, int], int] = {}
    second: dict[int, int] = {}
    guests: set[int] = set()
    stays = ~view.preemptible()
    rows = dict(_find_whole(view))
    for row in sorted(rows, key=lambda r: (not stays[r], -weight[r], r)):
        devices = [*devices_of(rows[row])]
        there = {owner[device] for device in devices if device in owner}
        for device in devices:
            owner.setdefault(device, row)
        if not there or stays[row]:
            continue
        guests.add(row)
        first = min(there)
        alike = len(there) == 1 and rows[first].devices == rows[row].devices
        if alike and first not in second and first not in guests and not stays[first]:
            second[first] = row
    return Partners(second, frozenset(guests), frozenset(_find_crowded(view, rows)))


def _find_whole(view: View) -> Iterable[tuple[int, Allocation]]:
    for row, on in enumerate(view.table.allocations):
        if on is not None and view.job(row).demand.share == 1.0:
            yield row, on


def _find_crowded(view: View, rows: Mapping[int, Allocation]) -> Iterable[int]:
    """Rows with a part of a device on which others than the rows claim something."""
    parts = {row: on for row, on in rows.items() if on.sharing.share < 1.0}
    claims: dict[tuple[str, int], float] = {}
    for on in parts.values():
        for device in devices_of(on):
            claims[device] = claims.get(device, 0.0) + on.sharing.share
    index, claimed = view.cluster.index, view.free.claimed
    others = {d for d, claim in claims.items() if claimed(index[NodeId(d[0])], d[1]) - claim > TINY}
    return [row for row, on in parts.items() if others and not others.isdisjoint(devices_of(on))]


def may_share(view: View, partners: Partners) -> list[int]:
    """Rows that may share devices: their submitters and ours have nothing against it."""
    able = np.flatnonzero(view.preemptible()).tolist()
    return [row for row in able if row not in partners.crowded and _is_shareable(view, row)]


def _is_shareable(view: View, row: int) -> bool:
    job = view.job(row)
    return job.shareable and job.demand.share == 1.0 and job.demand.gpus > 0
