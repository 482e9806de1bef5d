"""Sizes that need no computation: as many GPUs as were asked for, the fewest, or an equal part."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from weft.core.model.job import Config
from weft.core.plan.about import About, Controls
from weft.core.plan.taxonomy import Elasticity, Fairness, Preemption, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.fit import EPS
from weft.pieces.parts import Sizes
from weft.pieces.place.gangs import acceptable


@frozen
class AskedSize:
    """As many GPUs as the job asked for."""

    about = About("asked", "baseline", taxonomy=declare(Elasticity.RIGID))
    stops = False

    def choose_sizes(self, view: View) -> Sizes:
        """All rows as they ask, as far as there is room."""
        asked = {row: job.demand.gpus for row, job in enumerate(view.table.jobs)}
        return Sizes(choose_kinds(view, asked, exact=True))


@frozen
class Least:
    """The fewest GPUs that the job can do with."""

    about = About(
        "least",
        "baseline",
        controls=Controls.COUNT,
        idles="no job gets more than its minimum",
        taxonomy=declare(Elasticity.GPUS),
    )
    stops = False

    def choose_sizes(self, view: View) -> Sizes:
        return Sizes(choose_kinds(view, {r: j.demand.min for r, j in enumerate(view.table.jobs)}))


@frozen
class EqualPart:
    """An equal part of the cluster for every job, within what it can use; every `interval` seconds.

    What some cannot use the others divide.
    """

    interval: float = 60.0

    stops = False

    @property
    def about(self) -> About:
        """Sizes change as jobs come and go, once an interval."""
        return About(
            "equal",
            "baseline",
            idles="GPUs are divided again once an interval",
            controls=Controls.COUNT,
            every=self.interval,
            taxonomy=declare(Elasticity.GPUS, Preemption.RESIZES, Fairness.JOBS),
        )

    def choose_sizes(self, view: View) -> Sizes:
        """One GPU after the other to the job that has fewest, minimum sizes first."""
        demands = [job.demand for job in view.table.jobs]
        bound = view.running() & ~view.preemptible()
        counts: dict[int, int] = {}
        for row, demand in enumerate(demands):
            on = view.allocation(row)
            counts[row] = on.gpus if bound[row] and on is not None else demand.min
        left = view.cluster.gpus - sum(counts.values())
        growing = [row for row in counts if not bound[row]]
        while left > 0 and growing:
            growing = [row for row in growing if counts[row] < demands[row].max]
            level = min((counts[row] for row in growing), default=0)
            for row in [row for row in growing if counts[row] == level][:left]:
                counts[row] += 1
                left -= 1
        return Sizes(choose_kinds(view, counts))


# Which kind of GPU a number of them is taken from.


def choose_kinds(
    view: View, counts: Mapping[int, int], *, exact: bool = False
) -> dict[int, Config]:
    """Rows by kind: running jobs stay on their kind, others go where most room is left.

    A job without room for its number gets as many as there are, if that is enough for it and the
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
