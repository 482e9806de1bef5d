"""Backfilling with a reservation: jobs that cannot be stopped do not keep a larger one waiting.

A job that may not be stopped holds its devices to its end. Where small ones of that kind keep
coming, the devices that a large one needs are never free together, whatever the policy thinks of
it. As in EASY (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995) the job that came first among
those that wait for long gets a reservation: the devices that the fewest such jobs are on. Others of
the kind that came later start there only if they are predicted to end before those; and not at all
once it has waited so long that predictions must have been wrong. So reserved devices empty,
whatever is predicted. Jobs that can be stopped are not in the way, and use it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import Job, NodeId
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.releasing import devices_of
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.restart_costs import seconds_left
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper

TRIES = 4
TRUSTED = 6.0  # times the patience: after that no job, however short, starts on what is kept
Device = tuple[str, int]


@frozen
class Reservation:
    """Devices for the job of a row; a job that ends in `within_s` seconds is not in its way."""

    row: int
    devices: frozenset[Device]
    within_s: float


@frozen
class Easy(Wrapper):
    """Keep devices for the first job that cannot be stopped and has waited `patience_s` seconds.

    They are taken to be free when the time left of their jobs has reached its quantile `reserve`;
    another job may start there if its quantile `backfill` is before that: 0.8 is careful, 0.5 bold.
    """

    patience_s: float = 600.0
    reserve: float = 0.5
    backfill: float = 0.8

    adds = declare(Objective.GUARANTEES)
    idles = "GPUs are kept for a job that has waited long"

    def __post_init__(self) -> None:
        if self.patience_s < 0.0:
            raise bad_values("easy", self, "patience_s", "it is 0 or more")
        if not (0.0 < self.reserve < 1.0 and 0.0 < self.backfill < 1.0):
            raise bad_values("easy", self, "reserve backfill", "both are quantiles between 0 and 1")

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, without jobs that would be in the way for long."""
        late = view.waiting() & ~view.preemptible() & (view.waited() >= self.patience_s)
        late &= (view.table.gpus >= 1.0) & (view.table.need >= view.table.gpus)
        if not late.any():
            return ask(self.inner, view)
        mark = view.free.mark()
        plan = ask(self.inner, view)
        view.free.rollback(mark)
        kept = self._reserve(view, plan, late)
        if kept is None:
            return plan
        hidden = np.zeros(len(view.table), dtype=bool)
        for _ in range(TRIES):
            in_the_way = _find_in_the_way(view, plan, kept, self.backfill)
            if not in_the_way.any():
                return plan
            hidden |= in_the_way
            plan = decide_among(self.inner, view.without(hidden))
        return decide_among(self.inner, view.without(hidden | _find_behind(view, kept)))

    def _reserve(self, view: View, plan: Plan, late: Bools) -> Reservation | None:
        """For the first of these that the plan does not start and that preemption cannot start.

        Where only jobs that can be stopped are in its way, whether they are is for the policy to
        say. Devices kept for it would be idle until then; they are kept once it waits far too long.
        """
        waiting = np.flatnonzero(late).tolist()
        rows = [row for row in waiting if not plan.changes.get(view.job(row).id)]
        busy_s = _seconds_until_free(view, self.reserve) if rows else {}
        for row in rows[:TRIES]:
            nodes = sorted(_nodes_for(view.job(row), view, busy_s))
            trusted = view.waited()[row] < TRUSTED * self.patience_s
            kept = _keep(view, row, nodes, trusted=trusted)
            if kept is None or kept.within_s > 0.0 or not trusted:
                return kept
            if all(device not in busy_s for device in kept.devices):
                return kept
        return None


def _keep(
    view: View, row: int, nodes: list[tuple[int, float, NodeId, list[int]]], *, trusted: bool
) -> Reservation | None:
    """The first of these nodes that are enough for a row; None where all are too few."""
    demand = view.job(row).demand
    largest = max((len(gpus) for *_, gpus in nodes), default=1)
    chosen = nodes[: max(ceil(demand.min / largest), demand.nodes)]
    if sum(len(gpus) for *_, gpus in chosen) < demand.min:
        return None
    devices = frozenset((name, gpu) for *_, name, gpus in chosen for gpu in gpus)
    within_s = max(choice[1] for choice in chosen) if trusted else 0.0
    return Reservation(row, devices, within_s)


def _nodes_for(
    job: Job, view: View, busy_s: dict[Device, float]
) -> Iterator[tuple[int, float, NodeId, list[int]]]:
    """Nodes of its kinds: devices for it that are held, seconds until they are free, which."""
    for node in view.cluster.nodes:
        if node.kind not in (job.demand.kinds or view.cluster.kinds) or not node.gpus:
            continue
        ends = sorted((busy_s.get((node.id, gpu), 0.0), gpu) for gpu in range(node.gpus))
        ends = ends[: min(job.demand.min, node.gpus)]
        if ends[-1][0] < inf:
            held = sum(end > 0.0 for end, _ in ends)
            yield held, ends[-1][0], node.id, [gpu for _, gpu in ends]


def _seconds_until_free(view: View, p: float) -> dict[Device, float]:
    """Of devices that are held: 0 where all on it can be stopped, inf where a job is not seen."""
    seconds_until_free: dict[Device, float] = {}
    for i, node in enumerate(view.cluster.nodes):
        idle = view.free.idle_mask(i)
        seconds_until_free |= {
            (node.id, gpu): inf for gpu in range(node.gpus) if not idle >> gpu & 1
        }
    firm = ~view.preemptible()
    left = np.where(
        _tells(view), seconds_left(view), _quantile_left(view, view.running() & firm, p)
    )
    for row, on in enumerate(view.table.allocations):
        if on is not None:
            seconds_until_free |= dict.fromkeys(
                devices_of(on), float(left[row]) if firm[row] else 0.0
            )
    return seconds_until_free


def _find_in_the_way(view: View, plan: Plan, kept: Reservation, p: float) -> Bools:
    """Waiting rows that the plan starts on kept devices, and that are not known to end in time.

    So are those that ask for the same as one of them and still wait: they would start there next.
    """
    behind, started = _find_behind(view, kept), dict(_started(view, plan))
    there = np.zeros(len(view.table), dtype=bool)
    there[[row for row, on in started.items() if kept.devices & on]] = True
    there &= behind & ~(_quantile_left(view, there & behind, p) <= kept.within_s)
    asked = {view.job(row).demand for row in np.flatnonzero(there).tolist()}
    if not asked:
        return there
    behind[[*started]] = False
    behind &= [job.demand in asked for job in view.table.jobs]
    return there | behind & ~(_quantile_left(view, behind, p) <= kept.within_s)


def _started(view: View, plan: Plan) -> Iterator[tuple[int, set[Device]]]:
    for job, to in plan.changes.items():
        row = view.table.row(job)
        if to is not None and view.allocation(row) is None:
            yield row, {*devices_of(to)}


def _find_behind(view: View, kept: Reservation) -> Bools:
    """Waiting rows that came later, cannot be stopped, and are no more important."""
    first = view.job(kept.row)
    meant = [job.priority <= first.priority and job.tier >= first.tier for job in view.table.jobs]
    mask: Bools = view.waiting() & ~view.preemptible() & np.array(meant, dtype=bool)
    mask[: kept.row + 1] = False
    return mask


def _quantile_left(view: View, rows: Bools, p: float) -> Floats:
    """A quantile of the predicted seconds left of some rows; inf of others and where unknown."""
    left = np.full(len(view.table), inf)
    if view.knowledge.predictor is not None and rows.any():
        part = view.table.pick(rows)
        known = np.isfinite(view.knowledge.predictor.remaining(part, view.now))
        predicted = view.knowledge.predictor.quantiles(part, view.now, (p,))[:, 0]
        left[rows] = np.where(known, predicted, inf)
    return left


def _tells(view: View) -> Bools:
    """Rows whose own progress says how much is left, or for which nothing is predicted."""
    work = np.full(len(view.table), np.nan)
    if view.knowledge.pooled is not None and len(view.table):
        work = view.knowledge.pooled.work_left(view.table, view.now)
    predictor = view.knowledge.predictor
    blind = np.ones(len(view.table), dtype=bool)
    if predictor is not None:
        left = predictor.remaining(view.table, view.now)
        blind = ~(np.isfinite(left) & (left > 0.0))
    mask: Bools = np.isfinite(work) | blind
    return mask
