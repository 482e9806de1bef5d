"""AlloX: which job starts on which kind, by matching jobs to places in queues.

Paper       Le, Sun, Chowdhury and Liu, "AlloX: Compute Allocation in Hybrid Clusters",
            EuroSys 2020.
Objective   mean completion time on kinds of different speed, with `alpha` below 1 among the
            users who hold least.
Needs       an estimate of each job's remaining time, and its speed on each kind, from
            beliefs; without any, all kinds count as equally fast.
Controls    which jobs start, and on which kind. No job is stopped unless `preempt` is set.
Cost        one assignment problem when a GPU is free and a job waits: O(c^2 G) for c
            candidates on G GPUs.
Deviations  the paper's jobs hold one machine; here a gang counts as its length times its GPUs on
            each of them, and starts where it heads the queue of one of its GPUs and the gang fits.
            That, and `preempt`, are extensions: with single GPUs and the defaults the paper's
            matching is solved as it is. Estimates come from the predictor, not from sample runs
            that take resources: two of a minute on each of three kinds before every job would make
            the 23.0 h of 120 of Gavel's jobs on 36 GPUs 24.8 h (`python -m
            weft_papers.allox.published`). The authors' code keeps 50 candidates, ours `cap`, the
            shortest on each kind in turn. Where a gang at the head of a line does not fit, others
            start that were matched to its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, JobId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.admit.starting import Backfill
from weft.pieces.order.keys import RestingOrder
from weft.pieces.pack import backfill
from weft.pieces.parts import Ranking
from weft.pieces.place.gangs import Placer, fewest_nodes
from weft_papers.allox.assignment import line_up

UNKNOWN_S = 3600.0  # length of a job that nothing is known about
EPS = 1e-9
WHERE = tax.classify(
    tax.Objective.COMPLETION_TIME,
    tax.NeededKnowledge.DURATIONS | tax.NeededKnowledge.SPEEDS,
    tax.Preemption.NEVER,
    tax.Heterogeneity.SPEEDS,
)


@frozen
class Allox:
    """Start jobs so that they end earliest on average, whichever kind they start on.

    `alpha` is the fraction of users, those with the least share first, whose jobs take part; it is
    doubled while none of them can start. `preempt` also matches running jobs again, and charges
    each move the predicted cost of a restart.
    """

    alpha: float = 1.0
    cap: int = 200
    preempt: bool = False

    about = About(
        "allox",
        "Le et al. 2020",
        needs=Needs.REMAINING,
        starves="a stream of shorter jobs",
        idles="a job waits for a kind on which it would still end sooner",
        taxonomy=WHERE,
    )

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise InvalidConfig(
                f"allox: alpha={self.alpha:g} is not a part of the users",
                hint="above 0 (one user at a time) and at most 1 (all users)",
            )
        if self.cap < 1:
            raise InvalidConfig(f"allox: cap={self.cap} must be at least 1 job")

    def decide(self, view: View) -> Plan:
        """Match the waiting jobs of the worst-off users to places in line; start the heads."""
        if self.preempt:
            return self._rematch(view)
        waiting = view.waiting()
        if not waiting.any() or not view.free.idle():
            return Plan()
        lengths = lengths_by_kind(view)
        alpha = self.alpha
        while True:
            rows = self._candidates(view, waiting, lengths, alpha)
            changes = dict[JobId, Allocation | None](_place_heads(view, rows, lengths, keep={}))
            if changes or alpha >= 1.0:
                return Plan(changes)
            alpha = min(2.0 * alpha, 1.0)

    def _candidates(self, view: View, eligible: Bools, lengths: Floats, alpha: float) -> Rows:
        """Rows of the worst-off users, at most `cap` of them: the shortest on each kind in turn."""
        jobs = view.table.jobs
        rows = np.flatnonzero(eligible)
        rows = rows[np.isfinite(lengths[rows]).any(axis=1)]
        if alpha < 1.0:
            users = [jobs[row].owner for row in rows.tolist()]
            admitted = worst_off(shares(view, lengths), users, alpha)
            rows = rows[[user in admitted for user in users]]
        cap = max(self.cap, 2 * view.free.idle())
        return rows if len(rows) <= cap else _shortest_in_turn(rows, lengths, cap)

    def _rematch(self, view: View) -> Plan:
        """All jobs again, as if all GPUs were free; those that stay pay no restart."""
        movable = view.waiting() | view.preemptible()
        lengths = lengths_by_kind(view)
        restart = np.zeros(len(view.table))
        if view.beliefs is not None:
            restart = np.nan_to_num(view.beliefs.restart_s(view.table))
        kinds = view.cluster.kinds
        held = view.held()
        for row in np.flatnonzero(movable & view.running()).tolist():
            on = held[view.job(row).id]
            stays = kinds.index(view.cluster.kind_of(on))
            lengths[row] += np.where(np.arange(len(kinds)) == stays, 0.0, restart[row])
            view.free.give(on)
        rows = self._candidates(view, movable, lengths, self.alpha)
        target = dict(_place_heads(view, rows, lengths, keep=held))
        fixed = {job: on for job, on in held.items() if not movable[view.table.row(job)]}
        rest = view.ranked(lengths.min(axis=1, initial=np.inf), among=movable)
        target.update(_fill(view, [row for row in rest if view.job(row).id not in target], held))
        return Plan.target(view, {**fixed, **target})


@frozen
class BestLength(RestingOrder):
    """The least predicted time left first, on the kind of GPU that suits each job best."""

    about = About(
        "allox",
        "Le et al. 2020",
        needs=Needs.REMAINING,
        starves="a stream of shorter jobs",
        taxonomy=tax.declare(
            tax.Objective.COMPLETION_TIME,
            tax.NeededKnowledge.DURATIONS | tax.NeededKnowledge.SPEEDS,
        ),
    )
    admits = "backfill"

    def rank(self, view: View) -> Ranking:
        """Rank jobs by their shortest length on any kind."""
        key = lengths_by_kind(view).min(axis=1, initial=np.inf)
        return Ranking(key=key)


@frozen
class WorstOff:
    """Jobs that fit, of the fraction `alpha` of users that hold least; none is stopped.

    The part is doubled while none of theirs can start.
    """

    alpha: float = 0.3

    about = About(
        "worst-off",
        "Le et al. 2020",
        starves="users who hold more than others",
        idles="users who hold more wait while a user who holds less starts",
        taxonomy=tax.declare(tax.Fairness.USERS, tax.Preemption.NEVER),
    )
    stops = False
    overtakes = True

    def __post_init__(self) -> None:
        Allox(self.alpha)

    def start(self, view: View, ranking: Ranking, place: Placer) -> Plan:
        """Pass over those that do not fit, and users who are better off."""
        rows, alpha = ranking.rows, self.alpha
        while True:
            plan = backfill(view, rows[self._take_part(view, rows, alpha)], place)
            if plan.changes or alpha >= 1.0:
                return plan
            alpha = min(2.0 * alpha, 1.0)

    def among(self, view: View, rows: Rows) -> Bools:
        """Running jobs, and waiting ones of users that hold least, if their least sizes fit."""
        chosen = rows[self._take_part(view, rows, self.alpha)]
        return Backfill().among(view, chosen)

    def _take_part(self, view: View, rows: Rows, alpha: float) -> Bools:
        held: dict[str, float] = {}
        for job, gpus in zip(view.table.jobs, view.table.held.tolist(), strict=True):
            held[job.owner] = held.get(job.owner, 0.0) + gpus
        owners = [view.job(row).owner for row in rows.tolist()]
        waiting = [view.job(row).owner for row in rows[view.waiting()[rows]].tolist()]
        admitted = worst_off(held, waiting, alpha)
        theirs = np.array([owner in admitted for owner in owners], dtype=bool)
        return np.asarray(view.running()[rows] | theirs)


def lengths_by_kind(view: View) -> Floats:
    """Rows x kinds: seconds each job still needs there, infinite where it cannot run.

    The estimate of a job's length is for the kind that suits it best.
    """
    kinds = view.cluster.kinds
    rates = np.ones((len(view.table), len(kinds)))
    if view.beliefs is not None:
        rates = np.array(view.beliefs.rates(view.table, kinds), dtype=float)
        rates[np.isnan(rates)] = 1.0
    for row, job in enumerate(view.table.jobs):
        if job.demand.kinds:
            rates[row, [kind not in job.demand.kinds for kind in kinds]] = 0.0
    gpus = np.array([view.cluster.gpus_by_kind[kind] for kind in kinds], dtype=float)
    rates[view.table.need[:, None] > gpus + EPS] = 0.0
    left = np.nan_to_num(view.remaining(), posinf=UNKNOWN_S)
    best = rates.max(axis=1, initial=0.0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lengths = np.maximum(left, 1.0)[:, None] * best / rates
    return np.where(rates > 0.0, lengths, np.inf)


def shares(view: View, lengths: Floats) -> dict[str, float]:
    """Return each user's dominant part: its GPUs over those of the kinds that suit its jobs best.

    A job on a slower kind counts as much less as it is slower there.
    """
    kinds = view.cluster.kinds
    held: dict[str, float] = {}
    for row in np.flatnonzero(view.running()).tolist():
        on = view.allocation(row)
        assert on is not None
        best = int(lengths[row].argmin())
        here = lengths[row, kinds.index(view.cluster.kind_of(on))]
        part = view.table.need[row] / view.cluster.gpus_by_kind[kinds[best]]
        slower = lengths[row, best] / here if np.isfinite(here) else 1.0
        user = view.job(row).owner
        held[user] = held.get(user, 0.0) + float(part * slower)
    return held


def worst_off(held: Mapping[str, float], users: Sequence[str], alpha: float) -> set[str]:
    """The part `alpha` of the users in question that hold least, rounded up."""
    ranked = sorted(dict.fromkeys(users), key=lambda user: held.get(user, 0.0))
    return set(ranked[: ceil(alpha * len(ranked) - EPS)])


def _place_heads(
    view: View, rows: Rows, lengths: Floats, keep: Mapping[JobId, Allocation]
) -> Iterator[tuple[JobId, Allocation]]:
    """The heads of lines on free GPUs, as far as their gangs fit."""
    kind_of, ready = _machines(view, lengths)
    area = lengths[rows][:, kind_of] * np.maximum(view.table.need[rows], EPS)[:, None]
    lines = line_up(area, ready)
    seen: set[int] = set()
    for machine, index in lines.heads():
        row = int(rows[index])
        if row in seen or ready[machine] > 0.0 or not np.isfinite(area[index, machine]):
            continue
        seen.add(row)
        on = _place(view, row, view.cluster.kinds[kind_of[machine]], keep)
        if on is not None:
            yield view.job(row).id, on
    # A gang that does not fit leaves its GPUs to others that were matched to their kind.
    for index in np.argsort(area[np.arange(len(rows)), lines.machine], kind="stable").tolist():
        row, machine = int(rows[index]), int(lines.machine[index])
        if row not in seen and np.isfinite(area[index, machine]) and view.free.idle():
            on = _place(view, row, view.cluster.kinds[kind_of[machine]], keep)
            if on is not None:
                yield view.job(row).id, on


def _machines(view: View, lengths: Floats) -> tuple[Rows, Floats]:
    """Every GPU: its kind, and in how many seconds the job on it ends."""
    kinds = view.cluster.kinds
    kind_of = [kind for kind, idle in enumerate(view.free.idle_by_kind()) for _ in range(idle)]
    ready = [0.0] * len(kind_of)
    for row, on in enumerate(view.table.allocations):
        if on is None or view.free.fits(on):  # given back: it counts among the free
            continue
        kind = kinds.index(view.cluster.kind_of(on))
        left = lengths[row, kind]
        kind_of += [kind] * on.gpus
        ready += [float(left) if np.isfinite(left) else UNKNOWN_S] * on.gpus
    return np.array(kind_of, np.intp), np.array(ready)


def _place(view: View, row: int, kind: str, keep: Mapping[JobId, Allocation]) -> Allocation | None:
    job = view.job(row)
    on = keep.get(job.id)
    if on is None or view.cluster.kind_of(on) != kind or not view.free.fits(on):
        on = fewest_nodes(replace(job, demand=replace(job.demand, kinds=(kind,))), view.free)
    if on is not None:
        view.free.take(on)
    return on


def _fill(
    view: View, rows: Sequence[int], keep: Mapping[JobId, Allocation]
) -> Iterator[tuple[JobId, Allocation]]:
    """Start other jobs, in any order, on devices that the heads of lines left; jobs there stay."""
    for row in rows:
        job = view.job(row)
        on = keep.get(job.id)
        if on is None or not view.free.fits(on):
            on = fewest_nodes(job, view.free)
        if on is not None:
            view.free.take(on)
            yield job.id, on


def _shortest_in_turn(rows: Rows, lengths: Floats, cap: int) -> Rows:
    """The `cap` rows that come first when each kind names its shortest in turn."""
    kinds = lengths.shape[1]
    rank = np.empty((len(rows), kinds))
    for kind in range(kinds):
        order = np.argsort(lengths[rows, kind], kind="stable")
        rank[order, kind] = np.arange(len(rows)) * kinds + kind
        rank[~np.isfinite(lengths[rows, kind]), kind] = np.inf
    chosen = np.argsort(rank.min(axis=1), kind="stable")[:cap]
    return np.sort(rows[chosen])
