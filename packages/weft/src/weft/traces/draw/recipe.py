"""Common parts of all generators: a request with its defaults, columns of jobs, their assembly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from weft.core.knowledge.traffic import Traffic
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import BatchRange, Demand, Job, JobId, Tier
from weft.core.model.trace import Detail, LoadReport, Trace, Truth
from weft.formulas.training.convergence import Curve
from weft.frozen import frozen
from weft.traces.draft import Workload
from weft.traces.draw.arrivals import Ints
from weft.traces.draw.params import Floats
from weft.traces.options import DrawRequest

T = TypeVar("T")

LOAD = 0.8


@frozen
class DrawSettings:
    """A request with every default filled in; `limit` is the largest job, in GPUs."""

    seed: int
    jobs: int
    load: float
    gpus: int
    limit: int
    kinds: tuple[str, ...] = ()

    def streams(self, count: int) -> list[np.random.Generator]:
        """Independent child streams of the seed."""
        return np.random.Generator(np.random.PCG64(self.seed)).spawn(count)

    def span(self, work: Floats) -> float:
        """Seconds of arrivals over which `work` GPU-seconds offer the wanted load."""
        return float(work.sum()) / (self.load * self.gpus)


@dataclass(slots=True)
class Drawn:
    """Jobs as columns, in any order; a column left empty takes the job's default."""

    when: Floats
    lengths: Floats
    demands: Sequence[Demand]
    states: Sequence[str] = ()
    users: Sequence[str] = ()
    tenants: Sequence[str] = ()
    models: Sequence[str] = ()
    tiers: Sequence[Tier] = ()
    priorities: Sequence[float] = ()
    batches: Sequence[BatchRange] = ()
    hints: Sequence[dict[str, float]] = ()
    curves: Sequence[Curve | None] = ()
    schedules: Sequence[tuple[tuple[int, int], ...]] = ()
    traffics: Sequence[Traffic | None] = ()


@frozen
class WorkloadRecipe:
    """A named workload: how to draw it, how many jobs, on which cluster, at which load."""

    name: str
    about: str
    cluster: str
    draw: Callable[[DrawSettings], Drawn]
    jobs: int = 1_000
    load: float = LOAD
    max_gpus: int | None = None
    detail: Detail = Detail.NOTHING

    def workload(self) -> Workload:
        """The object to register."""
        return Workload(self.name, self.about, self.cluster, self.generate)

    def generate(self, request: DrawRequest) -> Trace:
        """Draw the jobs that `request` asks for."""
        pairs = assemble(self.name, self.draw(self.settle(request)))
        report = LoadReport(len(pairs), len(pairs))
        return Trace(self.name, pairs, self.cluster, report=report, detail=self.detail)

    def settle(self, request: DrawRequest) -> DrawSettings:
        """Fill in what the request leaves open; a gang must fit the GPUs of one kind."""
        own = parse_cluster(self.cluster)
        gpus = request.gpus or own.gpus
        largest = gpus if request.gpus else max(own.gpus_by_kind.values())
        limits = (largest, request.max_gpus, self.max_gpus)
        return DrawSettings(
            seed=request.seed,
            jobs=request.jobs or self.jobs,
            load=request.load or self.load,
            gpus=gpus,
            limit=min(limit for limit in limits if limit is not None),
            kinds=request.kinds if request.gpus else own.kinds,
        )


def assemble(name: str, drawn: Drawn) -> tuple[tuple[Job, Truth], ...]:
    """Jobs and truths from columns, sorted by arrival and numbered."""
    order = np.argsort(drawn.when, kind="stable")
    when = np.round(drawn.when[order], 3).tolist()
    lengths = drawn.lengths[order].tolist()
    width = len(str(max(len(when) - 1, 0)))
    rows = order.tolist()
    columns = zip(
        when,
        lengths,
        _order(drawn.demands, rows, Demand()),
        _order(drawn.states, rows, "completed"),
        _order(drawn.users, rows, ""),
        _order(drawn.tenants, rows, ""),
        _order(drawn.models, rows, ""),
        _order(drawn.batches, rows, None),
        _order(drawn.priorities, rows, 0.0),
        _order(drawn.tiers, rows, Tier.GUARANTEED),
        _order(drawn.hints, rows, {}),
        _order(drawn.curves, rows, None),
        _order(drawn.schedules, rows, ()),
        _order(drawn.traffics, rows, None),
        strict=True,
    )
    return tuple(
        (
            Job(
                JobId(f"{name}-{i:0{width}d}"),
                at,
                ask,
                tenant,
                user,
                model,
                batch,
                priority,
                tier=tier,
                hints=hints,
                traffic=traffic,
            ),
            Truth(length, (), state, curve=curve, schedule=schedule),
        )
        for i, (
            at,
            length,
            ask,
            state,
            user,
            tenant,
            model,
            batch,
            priority,
            tier,
            hints,
            curve,
            schedule,
            traffic,
        ) in enumerate(columns)
    )


def number_names(prefix: str, numbers: Ints) -> list[str]:
    """Numbers as names such as `u007`, each made once."""
    plain = numbers.tolist()
    known = {n: f"{prefix}{n:03d}" for n in set(plain)}
    return [known[n] for n in plain]


def _order(column: Sequence[T], rows: list[int], default: T) -> list[T]:
    return [column[row] for row in rows] if len(column) else [default] * len(rows)
