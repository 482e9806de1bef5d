"""Which kind of GPU a number of them is taken from."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from weft.core.model.job import Config
from weft.core.plan.view import View
from weft.pieces.fit import EPS
from weft.pieces.place.gangs import acceptable


def choose_kinds(
    view: View, counts: Mapping[int, int], *, exact: bool = False
) -> dict[int, Config]:
    """Rows by kind: who runs stays on its own, others go where most room is left.

    Who finds no room for its number gets as many as there are, if that is enough for it and the
    number need not be `exact`. Parts of devices are counted as such.
    """
    room = {kind: float(gpus) for kind, gpus in view.cluster.gpus_by_kind.items()}
    configs: dict[int, Config] = {}
    held = {row: on for row, on in enumerate(view.table.allocations) if on is not None}
    for row in sorted(counts, key=lambda row: row not in held):
        job, on = view.job(row), held.get(row)
        kinds = acceptable(job, view.free) if on is None else (view.cluster.kind_of(on),)
        kind = max(kinds, key=lambda kind: room[kind], default=None)
        if kind is None:
            continue
        gpus = min(counts[row], int(room[kind] / job.demand.share + EPS))
        if gpus < (counts[row] if exact else job.demand.min):
            continue
        room[kind] -= gpus * job.demand.share
        configs[row] = Config(kind, ceil(gpus / view.cluster.node_size(kind)), gpus)
    return configs
