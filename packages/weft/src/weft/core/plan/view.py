"""The view: everything that a policy may know when it decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType

import numpy as np

from weft.core.asleep.sleeping import Sleeping
from weft.core.errors import PlanError
from weft.core.knowledge.costs import RESTART_S
from weft.core.knowledge.knowledge import (
    Beliefs,
    BusSharing,
    Colocation,
    Knowledge,
    Pooled,
    TrainingKnowledge,
)
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools, JobTable, Rows
from weft.frozen import frozen

LEAST_LEFT_S = 1.0  # of a job that counts to its end, and is a little late
NOTHING: Mapping[JobId, Allocation | None] = MappingProxyType({})


@frozen
class OutOfSight:
    """Rows that a part of a view does not show, and what was `decided` about some of them."""

    table: JobTable
    rows: Bools
    cluster: Cluster
    decided: Mapping[JobId, Allocation | None]

    def holdings(self) -> Iterator[tuple[Job, str, Allocation]]:
        """Jobs with the kind and the devices that they hold, or are to hold."""
        for row in np.flatnonzero(self.rows).tolist():
            job = self.table.jobs[row]
            on = self.decided.get(job.id, self.table.allocations[row])
            if on is not None:
                yield job, self.cluster.kind_of(on), on


@frozen
class PromiseTerms:
    """The terms on which deadlines are promised: see `weft.pieces.wrap.promise`."""

    slot_s: float = 60.0
    quantile: float = 0.9
    restarts: int = 2


@frozen
class View:
    """The cluster at one instant; valid during one decision.

    `free` may be used for trials: whatever a policy does to it is undone after the decision.
    `knowledge` is what is predicted and believed about jobs. `history` holds the GPU-seconds of
    finished jobs, oldest first. `weights` are what users and tenants are entitled to against each
    other; who is not named has 1. As many of the loaned nodes as `recalled` are wanted back now:
    those that the plan leaves empty go first, others go with whatever runs on them. Someone asks
    about the jobs of `asked`: a plan may give reasons for them although nothing changes. A part of
    a view knows the jobs `out_of_sight`: they hold devices, and count for their tenants. Jobs
    that are `asleep` wait like others, and go on at once where they sleep; `savers` have
    checkpoints. `promises` tells a policy that must be shown all jobs to promise deadlines itself.
    """

    now: float
    table: JobTable
    cluster: Cluster
    free: Capacity
    knowledge: Knowledge = field(default_factory=Knowledge)
    memory: object = None
    history: Floats = field(default_factory=lambda: np.zeros(0))
    seed: int = 0
    decision: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    recalled: int = 0
    asked: frozenset[JobId] = frozenset()
    out_of_sight: tuple[OutOfSight, ...] = ()
    asleep: Mapping[JobId, Sleeping] = field(default_factory=dict)
    savers: Container[JobId] = frozenset()
    promises: PromiseTerms | None = None
    _drawn_from: list[np.random.Generator] = field(default_factory=list, init=False, compare=False)

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of this decision: same run and decision, same numbers."""
        if not self._drawn_from:
            self._drawn_from.append(np.random.default_rng([self.seed, self.decision]))
        return self._drawn_from[0]

    # ---- columns

    def waiting(self) -> Bools:
        """Rows that hold nothing."""
        mask: Bools = self.table.held == 0.0
        return mask

    def running(self) -> Bools:
        """Rows that hold devices, or have been promised them."""
        mask: Bools = self.table.held > 0.0
        return mask

    def remaining(self) -> Floats:
        """Estimated seconds left of each row: as its steps count, else from the predictor."""
        left = self.predictor().remaining(self.table, self.now)
        counted = self.knowledge.counted
        if not counted:
            return left
        left, ran = left.copy(), self.ran()
        for job, (left_s, had_run) in counted.items():
            if (row := self.table.find(job)) is not None:
                left[row] = max(left_s - (ran[row] - had_run), LEAST_LEFT_S)
        return left

    def predictor(self) -> Predictor:
        """The configured predictor, for policies that read distributions."""
        predictor = self.knowledge.predictor
        if predictor is None:
            raise PlanError(
                "the policy reads remaining times, but no predictor is configured",
                hint="choose one with --predictor; `weft list predictor` shows all",
            )
        return predictor

    def believed(self, *, pooled: bool = False) -> Beliefs:
        """Beliefs about speeds; if `pooled`, from all jobs of a model where that is kept."""
        if pooled and self.knowledge.pooled is not None:
            return self.knowledge.pooled
        if self.knowledge.beliefs is None:
            raise PlanError("the policy reads speeds, but there is no performance model")
        return self.knowledge.beliefs

    @property
    def empty(self) -> bool:
        """True if there is nothing to decide: no job, or nowhere to run one."""
        return not len(self.table) or not self.cluster.nodes

    @property
    def beliefs(self) -> Beliefs | None:
        """Beliefs about speeds, for policies that can do without; None where there are none."""
        return self.knowledge.beliefs

    @property
    def pooled(self) -> Pooled | None:
        """The reports of all jobs of a model together; None where that is not kept."""
        return self.knowledge.pooled

    def sharing(self) -> Colocation:
        """Beliefs about jobs that share devices."""
        if self.knowledge.colocation is None:
            raise PlanError("the policy lets jobs share devices, but there is no model of sharing")
        return self.knowledge.colocation

    @property
    def training(self) -> TrainingKnowledge | None:
        """Knowledge about workers, servers and losses; None where no job tells about any."""
        return self.knowledge.training

    @property
    def bus(self) -> BusSharing | None:
        """Knowledge about jobs that share a socket; None without measurements."""
        return self.knowledge.bus

    def preemptible(self) -> Bools:
        """Rows that may be stopped once they run."""
        mask: Bools = self.table.column(TableColumns.PREEMPTIBLE) > 0.0
        return mask

    def reported(self) -> Bools:
        """Running rows whose present attempt has reported."""
        same = self.table.column(TableColumns.REPORTED) == self.table.column(TableColumns.ATTEMPT)
        mask: Bools = self.running() & same
        return mask

    def restoring(self) -> Bools:
        """Rows that still load a checkpoint: they are being started, or were so lately.

        A start is over with the first report, or once it has taken as long as starts of such a job
        do: many jobs never report.
        """
        mask: Bools = self.running() & ~self.reported()
        if mask.any():
            runs, since = (
                self.table.column(c) for c in (TableColumns.RAN_RATE, TableColumns.RAN_SINCE)
            )
            mask &= (runs == 0.0) | (self.now - since < self._start_seconds(mask))
        return mask

    def restart_seconds(self) -> Floats:
        """Seconds that a restart is believed to cost each row."""
        if self.beliefs is None:
            return np.full(len(self.table), RESTART_S)
        cost = self.beliefs.restart_s(self.table)
        return np.where(np.isfinite(cost) & (cost > 0.0), cost, RESTART_S)

    def _start_seconds(self, running: Bools) -> Floats:
        """Seconds that the last start of these rows takes: as such starts were seen to."""
        costs = self.knowledge.costs
        if costs is None:
            return self.restart_seconds()
        seconds = np.zeros(len(self.table))
        for row in np.flatnonzero(running).tolist():
            on = self.table.allocations[row]
            assert on is not None
            known = costs.costs(self.table.jobs[row], self.cluster.kind_of(on))
            again = self.table.get(row, TableColumns.ATTEMPT) > 1.0
            seconds[row] = known.restart_s if again else known.first_start_s
        return seconds

    def ran(self) -> Floats:
        """Seconds each row has executed."""
        return self.table.ran(self.now)

    def service(self) -> Floats:
        """GPU-seconds each row has attained."""
        return self.table.service(self.now)

    def waited(self) -> Floats:
        """Seconds each row has spent not executing since it was submitted."""
        return (self.now - self.table.submitted) - self.ran()

    def ranked(self, *keys: Floats, among: Bools | None = None) -> Rows:
        """Rows by the first key, then the next; ties go to the earlier job."""
        rows = None if among is None else np.flatnonzero(among)
        columns = keys if rows is None else tuple(key[rows] for key in keys)
        if len(columns) == 1:
            order: Rows = columns[0].argsort(kind="stable")
        else:
            order = np.lexsort(columns[::-1])
        return order if rows is None else rows[order]

    # ---- single jobs

    def job(self, row: int) -> Job:
        """The job of a row."""
        return self.table.jobs[row]

    def allocation(self, row: int) -> Allocation | None:
        return self.table.allocations[row]

    def release(self, jobs: Iterable[JobId]) -> None:
        """Give back in `free` what these jobs hold."""
        for job in jobs:
            if (was := self.holds(job)) is not None:
                self.free.give(was)

    def carry_out(self, changes: Mapping[JobId, Allocation | None]) -> None:
        """Give and take in `free` what a plan changes, as if it were done."""
        self.release(changes)
        for to in changes.values():
            if to is not None:
                self.free.take(to)

    def holds(self, job: JobId) -> Allocation | None:
        return self.table.allocations[self.table.row(job)]

    def held(self) -> dict[JobId, Allocation]:
        pairs = zip(self.table.jobs, self.table.allocations, strict=True)
        return {job.id: on for job, on in pairs if on is not None}

    def after(self, plan: Plan) -> dict[JobId, Allocation]:
        """The allocations of all jobs once the plan is carried out."""
        held = self.held()
        for job, on in plan.changes.items():
            if on is None:
                held.pop(job, None)
            else:
                held[job] = on
        return held

    def held_by_tenants(self) -> defaultdict[tuple[str, str], float]:
        """GPUs by tenant and kind that all jobs hold, those out of sight as well."""
        held: defaultdict[tuple[str, str], float] = defaultdict(float)
        for job, kind, on in self.held_out_of_sight():
            held[job.tenant, kind] += on.counted_gpus
        for job, has in zip(self.table.jobs, self.table.allocations, strict=True):
            if has is not None:
                held[job.tenant, self.cluster.kind_of(has)] += has.counted_gpus
        return held

    def held_out_of_sight(self) -> Iterator[tuple[Job, str, Allocation]]:
        """Jobs that are not shown, with the kind and the devices that they hold."""
        for part in self.out_of_sight:
            yield from part.holdings()

    # ---- shaping

    def restrict(self, keep: Bools, decided: Mapping[JobId, Allocation | None] = NOTHING) -> View:
        """The view of this instant with only some rows; what the others hold stays taken.

        `decided` is what others hold once that is carried out, where the ledger has it so already.
        """
        hidden = OutOfSight(self.table, ~keep, self.cluster, decided)
        out_of_sight = (*self.out_of_sight, hidden)
        return replace(self, table=self.table.pick(keep), out_of_sight=out_of_sight)

    def without(self, hidden: Bools, decided: Mapping[JobId, Allocation | None] = NOTHING) -> View:
        """The view of this instant without some rows."""
        return self.restrict(~hidden, decided)

    def released(self, rows: Rows) -> View:
        """The view of this instant with these rows waiting.

        The ledger is for the caller to change.
        """
        table = self.table.pick(np.ones(len(self.table), dtype=bool))
        for row in rows.tolist():
            table.release(row, self.now)
        return replace(self, table=table)
