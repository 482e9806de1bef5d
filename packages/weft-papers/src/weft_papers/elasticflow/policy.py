"""ElasticFlow: promise deadlines, keep them with the fewest GPUs, and grow jobs on spare ones.

Paper       Gu et al., "ElasticFlow: An elastic serverless training platform for distributed deep
            learning", ASPLOS 2023.
Objective   the number of jobs that end by their deadlines; then GPU time spent well.
Needs       how long each job still takes, and beliefs about goodput; a job without beliefs is
            assumed to speed up linearly.
Controls    which jobs are admitted, and how many GPUs each gets.
Cost        O(jobs x levels x changes to come) to fill; the same again for each level that a job
            grows.
Deviations  the paper's simulator judges deadlines by planned ends, without what restarts cost: here
            restarts are planned for, and time for two more is kept in reserve. Spare GPUs go to the
            job that needs the fewest additional GPU-seconds, as the paper says; its code does the
            opposite (`worst_first`). Arrivals are admitted one by one, the earliest deadline first,
            not all or none. A job that would be late gets what others leave. Lengths are as
            predicted, `quantile` of a range. Several kinds of GPU: each job is promised GPUs of one
            kind, the fastest where it fits. Jobs move only when their size changes or they are in
            the way, one without time for a restart only for another such. A job with `or: warn`
            whose deadline cannot be promised runs like those without a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite

import numpy as np

from weft.core.model.job import Allocation, Config
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.taxonomy import (
    Elasticity,
    NeededKnowledge,
    Objective,
    Preemption,
    TopologyKnowledge,
    classify,
)
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.order.equals import put_holders_first
from weft.pieces.place.gangs import acceptable
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.size.min_share import DeadlineDemand, ShareSchedule, end_of, grow_shares
from weft.pieces.size.promised import (
    Promise,
    PromiseLedger,
    PromiseMemory,
    SlotTerms,
    check_terms,
    config_of,
)

ABOUT = About(
    "elasticflow",
    "Gu et al. 2023",
    needs=Needs.REMAINING,
    controls=Controls.COUNT,
    starves="jobs without a deadline get only the GPUs that jobs with deadlines leave",
    idles="no job gets a size that is not a level, or that would make it late",
    taxonomy=classify(
        Objective.DEADLINES | Objective.GUARANTEES,
        NeededKnowledge.DURATIONS | NeededKnowledge.SPEEDS,
        Preemption.STOPS | Preemption.RESIZES | Preemption.MOVES,
        Elasticity.GPUS,
        TopologyKnowledge.CONSOLIDATED,
    ),
)
NO_WORK = 1.0  # of a job that nothing is known about


@frozen
class ElasticFlow:
    """Promise deadlines, keep them with the fewest GPUs, and let jobs grow on spare ones.

    `slot` is the length of a time slot of promises in seconds, `quantile` the quantile of predicted
    lengths that is used, and `restarts` how many unplanned restarts a promise survives.
    """

    slot: float = 60.0
    quantile: float = 0.9
    restarts: int = 2
    worst_first: bool = False

    about = ABOUT

    def __post_init__(self) -> None:
        check_terms("elasticflow", self.slot, self.quantile, self.restarts)

    def decide(self, view: View) -> Plan:
        if view.empty:
            return Plan(memory=view.memory)
        terms = SlotTerms(self.slot, self.quantile, self.restarts)
        book = PromiseLedger(view, recall(view, PromiseMemory), terms)
        book.admit(book.newcomers())
        wanted = self._grow(view, book)
        changes, homeless = _place(view, wanted, _tight(view, book))
        soon = min(book.due() or inf, view.now + self.slot if homeless else inf)
        return Plan(
            {view.job(row).id: on for row, on in changes.items()},
            rejected=book.declined,
            wake_at=soon if soon < inf else None,
            reasons=book.warned,
            memory=book.memory(),
            promised=book.promised(),
        )

    def _grow(self, view: View, book: PromiseLedger) -> dict[int, Config]:
        """Sizes of all, with what is spare handed out."""
        wanted: dict[int, Config] = {}
        open_rows: dict[str, list[int]] = {kind: [] for kind in view.cluster.kinds}
        for row in put_holders_first(view, np.arange(len(view.table))).tolist():
            job = view.job(row)
            if row in book.kept or job.id in book.declined:
                continue
            on = view.allocation(row)
            if on is not None and not job.stoppable:
                wanted[row] = config_of(view.cluster, view.cluster.kind_of(on), on.gpus)
            elif (kind := _kind(view, row, book)) is not None:
                open_rows[kind].append(row)
        for kind, rows in open_rows.items():
            table = book.tables[kind]
            kept = [row for row, promise in book.kept.items() if promise.kind == kind]
            asks = [book.asks.of(row, kind, book.room[kind]) for row in kept]
            asks += [_open(book.asks.of(row, kind, book.room[kind])) for row in rows]
            idle = ShareSchedule(((view.now, 0),), view.now, view.now, met=True)
            begin = [*(book.kept[row].schedule for row in kept), *(idle for _ in rows)]
            grown = grow_shares(table, asks, begin, worst_first=self.worst_first)
            for row, schedule in zip((*kept, *rows), grown, strict=True):
                if row in book.kept:
                    book.kept[row] = Promise(kind, schedule)
                if gpus := schedule.at(view.now):
                    wanted[row] = config_of(view.cluster, kind, gpus)
        return wanted


def _tight(view: View, book: PromiseLedger) -> set[int]:
    """Rows with a promise that is broken if they lose the time of one more restart."""
    tight = set()
    for row, promise in book.kept.items():
        ask = book.asks.of(row, promise.kind, book.room[promise.kind])
        end = end_of(ask, promise.schedule, view.now)
        if end + book.asks.restart_s(row) > ask.deadline:
            tight.add(row)
    return tight


def _place(
    view: View, wanted: Mapping[int, Config], tight: set[int]
) -> tuple[dict[int, Allocation | None], set[int]]:
    """Changes of places, and rows that find none; a tight one is moved only for another such."""
    fixed = {row for row in wanted if not view.job(row).preemptible}
    for firm in (fixed | tight, fixed):
        changes = place_configs(view, wanted, firm=firm)
        after = {row: changes.get(row, view.allocation(row)) for row in wanted}
        homeless = {r for r, on in after.items() if on is None or on.gpus != wanted[r].gpus}
        if not homeless & tight:
            break
    return changes, homeless


def _open(ask: DeadlineDemand) -> DeadlineDemand:
    work = ask.work if isfinite(ask.work) else NO_WORK
    return DeadlineDemand(work, inf, ask.levels, ask.rates, ask.held, ask.restart_s)


def _kind(view: View, row: int, book: PromiseLedger) -> str | None:
    """Return the kind of a job without a promise: its own if it runs, else the one most spare."""
    if (on := view.allocation(row)) is not None:
        return view.cluster.kind_of(on)
    kinds = acceptable(view.job(row), view.free)
    return max(kinds, key=lambda kind: book.tables[kind].free[0], default=None)
