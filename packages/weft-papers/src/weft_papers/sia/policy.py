"""Sia: GPU kind and count for every job, by an integer program on goodput.

Paper       Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster
            scheduling", SOSP 2023.
Objective   a power mean of normalised goodputs, tempered for fairness by `p`.
Needs       beliefs about goodput, which adaptive jobs report; a job that has never run gets
            the smallest size first.
Controls    how many GPUs of which kind, and where. The job tunes its own batch size.
Cost        O(jobs x sizes) for goodput and prices, then O(jobs log jobs) for placement.
Deviations  the program is solved by prices with a certified gap of at most 0.1 %, closed
            exactly where it is larger. A job that must make room on its node pays a restart;
            the authors' simulator moves such jobs for free.
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Config, Demand
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.parts import Sizes
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.size.configs import (
    find_acceptable,
    find_held,
    find_smallest,
    gpus_of,
    kinds_of,
    rigid_configs,
    valid_configs,
)
from weft.pieces.size.levels import fill_levels
from weft.solve.few_jobs import NONE, ChoiceProblem
from weft.solve.multiple_choice import choose

HEAVIEST = 3000.0
WHERE = tax.classify(
    tax.Objective.THROUGHPUT | tax.Objective.FAIRNESS,
    tax.NeededKnowledge.SPEEDS,
    tax.Preemption.STOPS | tax.Preemption.RESIZES | tax.Preemption.MOVES,
    tax.Heterogeneity.SPEEDS,
    tax.Elasticity.GPUS,
    tax.TopologyKnowledge.CONSOLIDATED,
    tax.Fairness.JOBS,
)


@frozen
class LastProgram:
    """The last round's program and its answer: the same again needs no solving."""

    worth: Floats
    pinned: Floats
    capacity: Floats
    pick: Floats
    prices: Floats

    def answers(self, worth: Floats, pinned: Floats, capacity: Floats) -> bool:
        return (
            np.array_equal(self.worth, worth)
            and np.array_equal(self.pinned, pinned)
            and np.array_equal(self.capacity, capacity)
        )


@frozen
class Sia:
    """The best kind and number of GPUs for all jobs together, once per round.

    `p` tempers fairness, `lambda` is what leaving a job without GPUs costs, `interval` the
    length of a round, `max_gpus` the most one job may get. `pooled` asks for beliefs from all jobs
    of a model, running and ended, instead of each job's own reports.

    A job of one size counts as all its GPUs, as the paper says: a gang goes before as many jobs of
    one GPU, so where GPUs are few short jobs may wait for long behind it.
    """

    p: float = -0.5
    penalty: float = field(default=1.1, metadata={"name": "lambda"})
    interval: float = 60.0
    max_gpus: int = 64
    pooled: bool = False

    @property
    def about(self) -> About:
        about = sizes_in_rounds("sia", "Jayaram Subramanya et al. 2023", self.interval, WHERE)
        return replace(about, pools=self.pooled)

    def __post_init__(self) -> None:
        if self.p == 0 or (self.p < 0) != (self.penalty > 0):
            raise InvalidConfig(
                f"sia: p={self.p:g} with lambda={self.penalty:g} has no meaning",
                hint="use lambda above 0 with p below 0, for example p=-0.5,lambda=1.1",
            )

    stops = True  # the program may leave any job without GPUs
    _gap, _step = 1e-3, 0.0  # how far from the best, and in which steps, the program is solved

    def decide(self, view: View) -> Plan:
        if view.empty:
            return Plan()
        sizes = self.choose_sizes(view)
        changes = place_configs(view, sizes.wanted)
        return Plan({view.job(row).id: on for row, on in changes.items()}, memory=sizes.memory)

    def choose_sizes(self, view: View) -> Sizes:
        valid = valid_configs(view.cluster, self.max_gpus)
        configs = (*valid, *rigid_configs(view, valid))
        held = find_held(view, configs)
        pinned = (view.restoring() | ~view.preemptible()) & (held >= 0) & (held < len(configs))
        worth = self._worth(view, configs, held)
        last = self._choose(view, configs, worth, np.where(pinned, held, float(NONE)))
        pick = [int(size) for size in last.pick]
        return Sizes({row: configs[size] for row, size in enumerate(pick) if size >= 0}, last)

    def _worth(self, view: View, configs: tuple[Config, ...], held: Floats) -> Floats:
        """Return the worth of each size to each row: lambda less its weight, or -inf."""
        units = self._units(view, configs)
        goodput = self._goodputs(view, configs, units)
        least = np.array([job.demand.min for job in view.table.jobs], dtype=float)[:, None]
        level = np.empty_like(goodput)
        fill_levels(goodput, np.maximum(units, least), level, held, self._restart_factor(view))
        weight = self._weigh(level)
        worth = self.penalty - weight if self.p < 0 else weight - self.penalty
        return np.where(goodput > 0.0, worth, -np.inf)

    def _weigh(self, level: Floats) -> Floats:
        return np.minimum(np.maximum(level, 1e-12) ** self.p, HEAVIEST)

    def _goodputs(self, view: View, configs: tuple[Config, ...], units: Floats) -> Floats:
        """Beliefs; a job that has never run may have its smallest size of any kind it takes."""
        goodput = view.believed(pooled=self.pooled).goodputs(view.table, configs)
        known = (~np.isnan(goodput[:, 0])).tolist()
        gpus = gpus_of(configs)
        unfit: dict[Demand, Bools | None] = {}
        smallest: dict[tuple[Demand, bytes], Floats] = {}  # of jobs alike, of which many wait
        for row, job in enumerate(view.table.jobs):
            demand = job.demand
            if known[row]:
                if demand not in unfit:
                    mask = ~find_acceptable(demand, configs, gpus)
                    unfit[demand] = mask if mask.any() else None
                if (barred := unfit[demand]) is not None:
                    goodput[row][barred] = 0.0
                continue
            alike = demand, units[row].tobytes()
            if alike not in smallest:
                fits = find_acceptable(demand, configs, gpus)
                smallest[alike] = find_smallest(configs, fits, units[row]) * units[row]
            goodput[row] = smallest[alike]
        return goodput

    def _units(self, view: View, configs: tuple[Config, ...]) -> Floats:
        """GPUs of one replica of each row in each configuration."""
        kinds = view.cluster.kinds
        by_kind = view.believed(pooled=self.pooled).units(view.table, kinds)
        return by_kind.take(kinds_of(configs, kinds), 1)

    def _restart_factor(self, view: View) -> Floats:
        age = view.now - view.table.submitted
        restarts = np.maximum(view.table.column(TableColumns.ATTEMPT) - 1.0, 0.0)
        seconds = view.believed(pooled=self.pooled).restart_s(view.table)
        return restart_factor(age, restarts, seconds)

    def _choose(
        self, view: View, configs: tuple[Config, ...], worth: Floats, pinned: Floats
    ) -> LastProgram:
        """Solve for the rows that may change; the pinned keep what they have."""
        last = view.memory if isinstance(view.memory, LastProgram) else None
        capacity = np.array([float(view.cluster.gpus_by_kind[k]) for k in view.cluster.kinds])
        if last is not None and last.answers(worth, pinned, capacity):
            return last
        kind, count = kinds_of(configs, view.cluster.kinds), gpus_of(configs)
        room, pick = capacity.copy(), pinned.astype(np.intp)
        np.subtract.at(room, kind[pick[pick >= 0]], count[pick[pick >= 0]])
        open_rows = np.flatnonzero(pick < 0)
        answer = choose(
            ChoiceProblem(worth[open_rows], kind, count, room),
            gap=self._gap,
            step=self._step,
            start=None if last is None else last.prices,
        )
        pick[open_rows] = answer.pick
        return LastProgram(worth, pinned, capacity, pick.astype(float), answer.prices)


def restart_factor(age: Floats, restarts: Floats, seconds: Floats) -> Floats:
    """Return the part of a life that a restart now would leave for work; 1 for the very young."""
    factor = np.maximum(age - restarts * seconds, 0.0) / (age + seconds)
    return np.where(age < seconds, 1.0, factor)
