"""SMD: admit the jobs, and give each the workers and servers, that are worth most together.

Paper       Yu et al., "A sum-of-ratios multi-dimensional-knapsack decomposition for DNN resource
            scheduling", INFOCOM 2021.
Objective   the sum of what jobs are worth at their completion, each a sigmoid of its time.
Needs       an estimate of remaining time, of jobs without servers; what jobs say of their layers,
            tasks, limits and worth (see docs/explanation/losses-and-utilities.md).
Controls    who is admitted, how many workers and servers it keeps to its end, and where.
Cost        O(jobs x rungs x log(range) / eps) for sizes, a linear program of jobs x rungs
            variables and at most `budget` smaller ones for the admission.
Deviations  the full text was not at hand: formulas are rebuilt from the abstract. Up to 60 sizes
            are chosen among to the optimum, more by the approximation. Sizes are also
            offered at halved caps, so that the admission chooses among several a job. An
            allocation has no servers of its own: they live in the host parts of its slices, so
            every node with a server has a worker, and links are counted by the policy alone. A
            job that cannot be packed takes a smaller size or waits. A job without servers is
            taken to speed up linearly; one without a worth does not mind when it ends. Among jobs
            of which nothing distinguishes worth by room, the earlier is served first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About, Controls, Needs, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, Knowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.place.tasks import Room, evenly, shrink
from weft.policies.smd.offers import Found, Ladder, Size, offers_of
from weft.solve.knapsack import BUDGET, choose

WHERE = classify(
    Objective.QUALITY,
    Knowledge.DURATIONS | Knowledge.WORTH,
    Preemption.NEVER,
    Elasticity.GPUS | Elasticity.SERVERS,
)


@frozen
class Smd:
    """Sizes by sums of ratios, admission by knapsack, once an `interval`; nobody is resized.

    `eps` is how far a size may be from the best, `exact` scans all sizes instead. `rungs` are the
    caps at which a job offers a size, each half of the one before. `fixed` and `budget` are how
    many jobs the knapsack fixes at a time and how often it tries. `node_gbps` is the link of a
    node. With `spare` the admitted are given faster sizes where nobody is left waiting.
    """

    interval: float = 60.0
    eps: float = 0.1
    exact: bool = False
    rungs: int = 4
    fixed: int = 1
    budget: int = BUDGET
    node_gbps: float = 25.0
    spare: bool = True

    @property
    def about(self) -> About:
        """Decides once an interval."""
        waits = "others are worth more for what they take"
        needs, also = Needs.REMAINING, Controls.HOST
        return sizes_in_rounds(
            "smd", "Yu et al. 2021", self.interval, WHERE, needs=needs, also=also, starves=waits
        )

    def decide(self, view: View) -> Plan:
        """Sizes, admission, places."""
        if not view.cluster.nodes or not view.table.waiting:
            return Plan()
        room = Room(view, self.node_gbps)
        offered = offers_of(view, Ladder(self.rungs, self.eps, self.exact, self.node_gbps))
        if not offered.sizes:
            return Plan()
        left = np.concatenate([room.of(kind) for kind in view.cluster.kinds])
        # Parts of shared devices are not whole free ones, but count for jobs that ask for parts.
        left[:: room.left.shape[1]] += _parts(view)
        chosen = choose(offered.offers, left, fixed=self.fixed, budget=self.budget)
        if self.spare and len(chosen) == len(np.unique(offered.offers.owner)):
            chosen = _widen(offered, chosen, left)
        return Plan(_place_offers(view, offered, chosen, left, room))


def _widen(offered: Found, chosen: list[int], left: Floats) -> list[int]:
    """The same jobs in faster sizes, worth no less, as far as there is room that nobody wants.

    Many sizes are worth nearly the same long before a job's target: the knapsack takes the
    smallest, also where the rest would lie idle.
    """
    offers, seconds = offered.offers, offered.seconds
    left = left - offers.need[chosen].sum(axis=0)
    widened = []
    for i in sorted(chosen, key=lambda i: -seconds[i]):
        room = left + offers.need[i]
        faster = (offers.owner == offers.owner[i]) & (seconds < seconds[i])
        faster &= (offers.worth >= offers.worth[i]) & (offers.need <= room + 1e-9).all(axis=1)
        at = np.flatnonzero(faster)
        best = int(at[seconds[at].argmin()]) if len(at) else i
        left = room - offers.need[best]
        widened.append(best)
    return widened


def _place_offers(
    view: View, offered: Found, chosen: list[int], left: Floats, room: Room
) -> dict[JobId, Allocation | None]:
    """Places for the chosen, the most worth for its room first; then for whoever still fits."""
    changes: dict[JobId, Allocation | None] = {}
    offers = offered.offers
    parts = np.divide(offers.need, left, out=np.zeros(offers.need.shape), where=left > 0.0)
    density = offers.worth / np.maximum(parts.sum(axis=1), 1e-9)
    first = np.zeros(len(offers), dtype=bool)
    first[chosen] = True
    for i in np.lexsort((-density, ~first)).tolist():
        size = offered.sizes[i]
        job = view.job(size.row)
        if job.id in changes or (offers.need[i] > left + 1e-6).any():
            continue
        place = _place(view, size, room)
        if place is not None:
            room.take(job, place)
            changes[job.id] = place
            left = left - offers.need[i]
    if not changes and not view.running().any():
        changes = _something(view, offered, density, room)
    return changes


def _something(
    view: View, offered: Found, density: Floats, room: Room
) -> dict[JobId, Allocation | None]:
    """On an idle cluster that holds no size of anybody as a whole: what fits of the best."""
    for i in np.argsort(-density, kind="stable").tolist():
        size = offered.sizes[i]
        if size.tasks is not None:
            place = shrink(size.tasks, size.workers, size.servers, room, size.kind)
            if place is not None and place.gpus >= view.job(size.row).demand.min:
                return {view.job(size.row).id: place}
    return {}


def _place(view: View, size: Size, room: Room) -> Allocation | None:
    if size.tasks is not None:
        return evenly(size.tasks, size.workers, size.servers, room, size.kind)
    job = view.job(size.row)
    demand = replace(job.demand, gpus=size.workers, kinds=(size.kind,))
    place = fewest_nodes(replace(job, demand=demand), view.free)
    return place if place is not None and view.free.fits(place) else None


def _parts(view: View) -> Floats:
    """Of each kind, the parts of devices that are left beside others' parts."""
    parts = []
    for kind in view.cluster.kinds:
        shared = view.free.with_room(kind, 0.0)
        parts.append(float(len(shared)))
    return np.array(parts)
