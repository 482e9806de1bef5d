"""SLAQ: GPUs where the loss is predicted to fall most in the next few seconds.

Paper       Zhang et al., "SLAQ: Quality-driven scheduling for distributed machine learning",
            SoCC 2017.
Objective   the sum over jobs of the loss reduction in the next epoch, each in units of the
            largest change that one iteration of the job ever made.
Needs       the losses and iteration times that jobs report. A job that has reported none has an
            equal part of the GPUs, at most what it asked for.
Controls    how many GPUs, between a job's least and most, and which.
Cost        O(GPUs log jobs) to hand out GPUs; curves are fitted again for jobs that reported.
Deviations  GPUs stand in for cores, and a job begins with its least size, which need not be one.
            An iteration is assumed to speed up linearly. Jobs beyond what the cluster holds are
            chosen by the reduction of their least size for each GPU, those without reports
            first. A job keeps the GPUs it has when it grows or shrinks; where a change of size
            restarts per job, the policy does not count that cost, unless `pause` sets it. A
            job's worst kind of GPU counts as its best.
"""

from __future__ import annotations

import heapq

import numpy as np

from weft.core.knowledge.knowledge import LossSoFar
from weft.core.plan.about import About, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.pieces.order.equals import put_holders_first
from weft.pieces.parts import Sizes
from weft.pieces.place.resize import resize_all
from weft.pieces.size.plain import choose_kinds

FLAT = 1e-9
WHERE = classify(
    Objective.QUALITY,
    NeededKnowledge.LOSSES,
    Preemption.STOPS | Preemption.RESIZES,
    Elasticity.GPUS,
)


@frozen
class Slaq:
    """Every `epoch` seconds, give one GPU after the other to the job whose loss it lowers most.

    `pause` is what a change of size costs a job, in seconds of the epoch.
    """

    epoch: float = 3.0
    pause: float = 0.0

    @property
    def about(self) -> About:
        waits = "more jobs than GPUs, and others' losses fall faster"
        return sizes_in_rounds("slaq", "Zhang et al. 2017", self.epoch, WHERE, starves=waits)

    stops = True  # jobs beyond what the cluster holds are chosen by the fall of their loss

    def decide(self, view: View) -> Plan:
        if not view.cluster.nodes or not len(view.table):
            return Plan()
        return resize_all(view, self._count(view))

    def choose_sizes(self, view: View) -> Sizes:
        """Reductions and sizes; a newcomer goes to the kind with most room."""
        return Sizes(choose_kinds(view, self._count(view)))

    def _count(self, view: View) -> dict[int, int]:
        return sizes(view, reductions(view, self.epoch, self.pause))


def reductions(view: View, epoch: float, pause: float = 0.0) -> list[Floats | None]:
    """For each row, its normalised loss reduction on 0, 1, 2, ... GPUs; None where unknown."""
    reductions: list[Floats | None] = []
    for row, job in enumerate(view.table.jobs):
        learned = view.training.learned(job) if view.training is not None else None
        known = None if learned is None else reduction(learned, job.demand.max, epoch)
        if known is not None and pause > 0.0 and (on := view.allocation(row)) is not None:
            stays, known = known[min(on.gpus, len(known) - 1)], known * (1.0 - pause / epoch)
            known[min(on.gpus, len(known) - 1)] = stays
        reductions.append(known)
    return reductions


def reduction(learned: LossSoFar, most: int, epoch: float) -> Floats | None:
    """Return the fall of the loss in an epoch on up to `most` GPUs, in largest changes, or None.

    Before there is a law, every iteration is taken to lower it as the last one did.
    """
    if learned.gpu_s <= 0.0 or learned.largest <= 0.0:
        return None
    done = epoch * np.arange(most + 1) / learned.gpu_s
    if learned.law is None:
        return np.asarray(learned.recent * done / learned.largest)
    k = learned.iteration
    fall = np.asarray(learned.law(k) - learned.law(k + done))
    return np.asarray(np.maximum(fall, 0.0) / learned.largest)


def sizes(view: View, known: list[Floats | None]) -> dict[int, int]:
    """GPUs of each row that gets any."""
    bound = view.running() & ~view.preemptible()
    left = float(view.cluster.gpus)
    equal = view.cluster.gpus // len(view.table)
    sizes: dict[int, int] = {}
    for row in _order(view, known, bound):
        on, demand = view.allocation(row), view.job(row).demand
        least = on.gpus if bound[row] and on is not None else demand.min
        if known[row] is None and not bound[row]:
            least = max(least, min(demand.gpus, equal))
        if least * demand.share > left + 1e-9:
            least = demand.min
        if least * demand.share <= left + 1e-9:
            left -= least * demand.share
            sizes[row] = least
    free = {row for row in sizes if not bound[row]}
    grow_by_gain(
        sizes, {r: k for r, k in enumerate(known) if r in free and k is not None}, int(left)
    )
    left = view.cluster.gpus - sum(n * view.job(r).demand.share for r, n in sizes.items())
    for row in sorted(sizes):
        demand = view.job(row).demand
        if known[row] is None and row in free and demand.gpus > sizes[row]:
            more = min(demand.gpus - sizes[row], int(left))
            sizes[row], left = sizes[row] + more, left - more
    return sizes


def grow_by_gain(counts: dict[int, int], known: dict[int, Floats], left: int) -> list[float]:
    """One GPU after the other to the largest gain, while there are gains; those gains."""
    heap = [(-gain, row) for row in known for gain in _gain(known[row], counts[row])]
    heapq.heapify(heap)
    gains = []
    while heap and left > 0:
        loss, row = heapq.heappop(heap)
        counts[row] += 1
        left -= 1
        gains.append(-loss)
        for gain in _gain(known[row], counts[row]):
            heapq.heappush(heap, (-gain, row))
    return gains


def _gain(known: Floats, now: int) -> list[float]:
    """Return the gain by one GPU more: none at the most, or where the loss is flat."""
    if now + 1 >= len(known) or known[now + 1] - known[now] <= FLAT:
        return []
    return [float(known[now + 1] - known[now])]


def _order(view: View, known: list[Floats | None], bound: np.ndarray) -> list[int]:
    """Return rows in order of service if not all have room: the bound, newcomers, the steepest."""
    least = [job.demand.min for job in view.table.jobs]
    steep = np.array(
        [np.inf if falls is None else falls[n] / n for n, falls in zip(least, known, strict=True)]
    )
    rows = put_holders_first(view, np.lexsort((-steep, ~bound)), steep)
    return [int(row) for row in rows]
