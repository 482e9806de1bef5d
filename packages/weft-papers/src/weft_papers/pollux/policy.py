"""Pollux: how many GPUs on which nodes for every job, by a genetic search on goodput.

Paper       Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep
            learning", OSDI 2021.
Objective   the power mean of speed-ups over a fair share, tempered for fairness by `p`.
Needs       beliefs about goodput, which adaptive jobs report; a job without reports is assumed to
            scale linearly, and gets the smallest size first.
Controls    how many GPUs on which nodes. The job tunes its own batch size.
Cost        O(generations x population x jobs x nodes), after O(jobs x GPUs) for goodput.
Deviations  one objective, not a Pareto set: only fitness decides in the end. The search ends after
            `patience` generations without gain. The current allocation is always among the states
            to start from, so that a search never makes fitness worse, and so is the state with all
            jobs at the smallest size. Kinds of GPUs are not distinguished, as in the simulator of
            Sia (SOSP 2023): machines are shown in parts of the size of the smallest, a job is given
            at most the GPUs of the smallest kind, and one that spans kinds keeps the kind with
            most. A job that asks for a part of a GPU has one for itself. Without beliefs, sizes are
            bounded by what jobs ask for. The cluster is not resized.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from weft.core.errors import bad_values
from weft.core.knowledge.knowledge import Beliefs
from weft.core.model.job import JobId
from weft.core.plan.about import About, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import (
    Elasticity,
    Fairness,
    NeededKnowledge,
    Objective,
    Preemption,
    classify,
)
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable, Rows
from weft.frozen import frozen
from weft.pieces.parts import Sizes
from weft_papers.pollux.genetic import Counts, Matrix, evolve
from weft_papers.pollux.machines import MachineParts

# ---- What allocations are worth to jobs: speed-ups over a fair share, restarts, the power mean


RESTART_S = 30.0
FLOOR = 1e-3
TIE = 1e-9


@frozen
class Speedups:
    """Rows x (one node, several nodes) x replicas, and bounds on the replicas of each row."""

    values: Floats
    least: Counts
    most: Counts


def speedups(table: JobTable, beliefs: Beliefs | None, machines: MachineParts) -> Speedups:
    """Goodput over that of a fair share, taken on one node even where it would not fit.

    A job may have twice what it has run with, but not more than it asks for, nor than there
    are GPUs of the rarest kind.
    """
    gpus = int(machines.capacity.sum())
    fair = ceil(gpus / len(table))
    least = table.column(TableColumns.MIN)
    most = table.column(TableColumns.MAX) if beliefs is None else 2.0 * beliefs.most_run(table)
    most = np.minimum(np.clip(most, 1.0, max(machines.smallest, 1)), table.column(TableColumns.MAX))
    size = int(max(most.max(), least.max()))
    values = np.empty((len(table), 2, size + 1))
    values[:] = np.arange(size + 1) / fair
    if beliefs is not None:
        useful = _read_beliefs(table, beliefs, machines.kinds, fair, values)
        most = np.minimum(most, useful)
    most = np.maximum(most, least)
    return Speedups(values, least.astype(np.float32), most.astype(np.float32))


def _read_beliefs(
    table: JobTable, beliefs: Beliefs, kinds: tuple[str, ...], fair: int, values: Floats
) -> Floats:
    """Fill in the rows of known jobs; return the most replicas that are of any use to each."""
    size = values.shape[2] - 1
    counts = np.arange(1.0, size + 1.0)
    nodes = np.concatenate([np.ones(size), np.full(size, 2.0), [1.0]])
    replicas = np.concatenate([counts, counts, [float(fair)]])
    goodput = beliefs.blind_goodputs(table, kinds, nodes, replicas)
    known = ~np.isnan(goodput[:, 0])
    curves = goodput[known, :-1].reshape(-1, 2, size)
    base = goodput[known, -1]
    # A fair share too large for the largest batch: the best there is stands for it.
    base = np.where(base > 0.0, base, curves.max(axis=(1, 2), initial=1e-12))
    values[known, :, 1:] = curves / base[:, None, None]
    useful = np.full(len(table), np.inf)
    useful[known] = ((curves > 0.0).any(axis=1) * counts).max(axis=1)
    return useful


def restart_factor(age: Floats, restarts: Floats, seconds: float = RESTART_S) -> Floats:
    """Return the part of a job's life that a restart now would leave for work."""
    return np.maximum(age - restarts * seconds, 0.0) / (age + seconds)


def power_mean_terms(
    values: Floats, factor: Floats, scale: float, p: float, tie: float = TIE
) -> Floats:
    """Return what each row adds to the power mean with exponent `p`, kept and changed.

    Between states of equal fitness the faster counts for a little more: a job of age 0 is
    worth nothing wherever it starts, but should.
    """
    scaled = values[:, None] * scale
    scaled = np.concatenate([scaled, scaled * factor[:, None, None, None]], axis=1)
    each = np.sign(p) * (scaled + FLOOR) ** p if p else np.log(np.maximum(scaled, FLOOR))
    sums: Floats = each + tie * values[:, None]
    return sums


# ---- Pollux


FASTEST_FIRST = ("a100", "v100", "quad", "rtx", "t4")
WHERE = classify(
    Objective.THROUGHPUT | Objective.FAIRNESS,
    NeededKnowledge.SPEEDS,
    Preemption.STOPS | Preemption.RESIZES | Preemption.MOVES,
    Elasticity.GPUS,
    Fairness.JOBS,
)


@frozen
class PolluxMemory:
    """The last population: jobs x states x parts of machines."""

    jobs: tuple[JobId, ...]
    parts: tuple[str, ...]
    states: Floats


@frozen
class Pollux:
    """The fairest speed-ups for all jobs together, once per round.

    `p` tempers fairness (more negative is fairer), `interval` is the length of a round.
    `population` and `generations` bound the search, which ends after `patience` generations without
    gain. A job that can do with fewer uses at most `max_nodes` nodes. `kinds` decides which kind a
    job keeps if it was given equally many GPUs of several. `pooled` asks for beliefs from all jobs
    of a model, running and ended.
    """

    p: float = -1.0
    interval: float = 60.0
    population: int = 100
    generations: int = 100
    patience: int = 20
    max_nodes: int = 16
    kinds: tuple[str, ...] = FASTEST_FIRST
    pooled: bool = False

    @property
    def about(self) -> About:
        waits = "a gang waits while its GPUs are worth more to several smaller jobs"
        about = sizes_in_rounds("pollux", "Qiao et al. 2021", self.interval, WHERE, starves=waits)
        return replace(about, pools=self.pooled)

    def __post_init__(self) -> None:
        if min(self.population, self.generations, self.max_nodes) < 1:
            raise bad_values(
                "pollux", self, "population generations max_nodes", "all of them are at least 1"
            )

    def decide(self, view: View) -> Plan:
        """Speed-ups, search, one kind a job, devices."""
        if not len(view.table) or not view.cluster.gpus:
            return Plan()
        machines = MachineParts.of(view)
        if not machines.capacity.any():
            return Plan(memory=view.memory)  # all of it is in others' hands
        wanted, memory = self._best(view, machines)
        placed = machines.place(view, machines.held(view), wanted)
        return Plan({view.job(row).id: on for row, on in placed.items()}, memory=memory)

    stops = True  # a job's GPUs may be worth more to others
    _tie, _clear = TIE, False  # what a replica is worth at equal speed; see `Matrix`

    def choose_sizes(self, view: View) -> Sizes:
        """Search as for a decision, and keep only sizes and kinds of the result."""
        machines = MachineParts.of(view)
        if not machines.capacity.any():
            return Sizes(memory=view.memory)
        wanted, memory = self._best(view, machines)
        return Sizes(machines.count_kinds(view.cluster, wanted), memory)

    def _best(self, view: View, machines: MachineParts) -> tuple[Counts, PolluxMemory]:
        """Jobs x parts of machines: the best state found, and the population it is from."""
        held = machines.held(view)
        pinned = ~view.preemptible() & view.running()
        order = np.lexsort((view.service(), ~pinned))
        beliefs = view.believed(pooled=True) if self.pooled else view.beliefs
        known = speedups(view.table, beliefs, machines)
        matrix = self._matrix(view, machines, known, order)
        names = tuple(part.name for part in machines.parts)
        jobs = tuple(view.job(row).id for row in order)
        last = self._recall(view.memory, jobs, names)
        states, best = self._search(matrix, machines, last, view.rng, known.values[order])
        wanted = np.empty_like(held)
        wanted[order] = self._on_one_kind(machines, matrix, states[:, best])
        return wanted, PolluxMemory(jobs, names, states.astype(float))

    def _recall(
        self, memory: object, jobs: tuple[JobId, ...], parts: tuple[str, ...]
    ) -> Counts | None:
        """The last population in terms of the jobs and machines there are now."""
        return _translate(memory, jobs, parts) if isinstance(memory, PolluxMemory) else None

    def _search(
        self,
        matrix: Matrix,
        machines: MachineParts,
        last: Counts | None,
        rng: np.random.Generator,
        values: Floats,  # noqa: ARG002 - for searches with a second objective
    ) -> tuple[Counts, int]:
        """The last population, and which of it is best."""
        evolved = evolve(
            matrix,
            _seeds(matrix, machines, last),
            rng,
            population=self.population,
            generations=self.generations,
            patience=self.patience,
        )
        return evolved.states, int(evolved.score.argmax())

    def _matrix(self, view: View, machines: MachineParts, known: Speedups, order: Rows) -> Matrix:
        """The problem of this round, jobs in order of precedence."""
        table, held = view.table, machines.held(view)
        restarts = np.maximum(table.column(TableColumns.ATTEMPT) - 1.0, 0.0)
        factor = restart_factor(view.now - table.submitted, restarts)
        pinned = ~view.preemptible() & view.running()
        scale = len(machines.parts) / float(machines.capacity.sum())
        return Matrix(
            held[order],
            machines.capacity,
            np.where(pinned, 0, known.least)[order],
            np.where(pinned, held.sum(axis=1), known.most)[order],
            machines.allowed(view)[order],
            pinned[order],
            power_mean_terms(known.values, factor, scale, self.p, self._tie)[order],
            max(self.max_nodes, int(known.least.max())),
            clear=self._clear,
        )

    def _on_one_kind(self, machines: MachineParts, matrix: Matrix, state: Counts) -> Counts:
        """Trim jobs that span kinds; one that is then too small may start elsewhere."""
        wanted = machines.one_kind(state, self.kinds)
        short = wanted.sum(axis=1) < matrix.least
        wanted[short] = 0
        for row in np.flatnonzero(short & (state.sum(axis=1) > 0)).tolist():
            machines.first_fit(wanted, row, int(matrix.least[row]), matrix.allowed)
        return wanted


def _translate(memory: PolluxMemory, jobs: tuple[JobId, ...], parts: tuple[str, ...]) -> Counts:
    states = np.zeros((len(jobs), memory.states.shape[1], len(parts)), dtype=np.float32)
    job_at = {job: i for i, job in enumerate(memory.jobs)}
    part_at = {part: i for i, part in enumerate(memory.parts)}
    rows = [i for i, job in enumerate(jobs) if job in job_at]
    columns = [i for i, part in enumerate(parts) if part in part_at]
    old_rows = [job_at[jobs[i]] for i in rows]
    old_columns = [part_at[parts[i]] for i in columns]
    if rows and columns:
        kept = memory.states[old_rows][:, :, old_columns]
        states[np.ix_(rows, range(states.shape[1]), columns)] = kept
    return states


def _seeds(matrix: Matrix, machines: MachineParts, last: Counts | None) -> Counts:
    """Return first states: as held; with more jobs; all at the smallest size; the last ones."""
    besides, smallest = matrix.held.copy(), np.zeros_like(matrix.held)
    smallest[matrix.pinned] = matrix.held[matrix.pinned]
    for row, need in enumerate(matrix.least):
        for state in (besides, smallest):
            if not state[row].any():
                machines.first_fit(state, row, int(need), matrix.allowed)
    seeds = np.stack([matrix.held, besides, smallest], axis=1)
    return seeds if last is None else np.concatenate([seeds, last], axis=1)
