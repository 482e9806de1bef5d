"""Steps per second measured by job type, number of GPUs and kind, as in Gavel's tables.

Without a file the truth is what Narayanan et al. (OSDI 2020) published for 26 job types alone on
V100, P100 and K80.
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.events.report import Report
from weft.core.knowledge.learning import NothingLearnt
from weft.core.model.job import Allocation, Config, Job
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import JobTable, Rows
from weft.frozen import frozen
from weft.perf.restart import restart_s
from weft.plural import say_gpus

Key = tuple[str, int]  # job type, GPUs
SHIPPED = Path(__file__).parent / "data" / "gavel_throughputs.json"
COUNTS = (1, 2, 4, 8)
ALONE = "null"
COLUMNS = ("model", "kind", "gpus", "steps_per_s")


@frozen
class Throughputs:
    """A table of steps per second: the truth of a simulation.

    `alone` is by kind, then by job type and GPUs; 0 means that the job does not fit there.
    `together` is by kind and then by two such keys: the speed of each on the same devices. A
    job that knows its `steps` runs them at that speed; any other job's recorded length is its
    time on the `reference` kind. `restart_cost` None lets each job's model say.
    """

    alone: Mapping[str, Mapping[Key, float]]
    together: Mapping[str, Mapping[tuple[Key, Key], tuple[float, float]]] = field(
        default_factory=dict
    )
    restart_cost: float | None = 0.0
    reference: str = "v100"
    source: str = "the published table"

    steady = True

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """A job that runs at the measured speed of what it holds."""
        reference = self.rate(job.model, job.demand.gpus, self.reference)
        steps = job.hints.get("steps", truth.length * reference)
        return Stepping(self, job, truth.length / steps if steps > 0.0 else 1.0)

    def restart(self, job: Job, *, first: bool) -> float:
        """Return the seconds of a restart, none at the first start."""
        if first:
            return 0.0
        return restart_s(job.model) if self.restart_cost is None else self.restart_cost

    def rate(self, model: str, gpus: int, kind: str) -> float:
        """Steps per second of a gang alone; between measured sizes that of the next smaller."""
        table = self.alone.get(kind)
        if table is None:
            raise InvalidConfig(
                f"{self.source} has no throughputs on GPU kind {kind!r}"
                f"{did_you_mean(kind, self.alone)}",
                hint=f"it has {', '.join(self.alone)}",
            )
        exact = table.get((model, gpus))
        if exact is not None:
            return exact
        below = [count for name, count in table if name == model and count <= gpus]
        if not below:
            raise self._unknown(model, gpus)
        return table[model, max(below)]

    def pair(self, job: Job, other: Job, kind: str) -> tuple[float, float]:
        """Steps per second of two jobs on the same devices; 0 where that was not measured."""
        keys = ((job.model, job.demand.gpus), (other.model, other.demand.gpus))
        return self.together.get(kind, {}).get(keys, (0.0, 0.0))

    def covers(self, trace: Trace, kinds: Sequence[str]) -> bool:
        """Return true if every job of a trace was measured on every kind."""
        if not set(kinds) <= set(self.alone):
            return False
        known = [{name for name, _ in self.alone[kind]} for kind in kinds]
        models = {job.model for job, _ in trace}
        return all(models <= names for names in known)

    def with_fitting_kinds(self, trace: Trace, kinds: Sequence[str]) -> Trace:
        """The trace with every job asking only for kinds it fits on.

        For policies that read no speeds; a job that fits nowhere is left as it is.
        """
        return replace(trace, jobs=tuple((self._fit(j, kinds), t) for j, t in trace))

    def _fit(self, job: Job, kinds: Sequence[str]) -> Job:
        wanted = job.demand.kinds or tuple(kinds)
        fits = tuple(k for k in wanted if self.rate(job.model, job.demand.gpus, k) > 0.0)
        if fits == wanted or not fits:
            return job
        return replace(job, demand=replace(job.demand, kinds=fits))

    def _unknown(self, model: str, gpus: int) -> InvalidConfig:
        known = {name for table in self.alone.values() for name, _ in table}
        return InvalidConfig(
            f"{self.source} has no throughputs of job type {model!r} on {say_gpus(gpus)}"
            f"{did_you_mean(model, known)}",
            hint=f"it has {len(known)} types; a job's model must be one of them",
        )


class Stepping:
    """Runs at the measured speed of the kind and number of GPUs it holds."""

    __slots__ = ("_job", "_pace", "_seconds_a_step", "_table")

    def __init__(self, table: Throughputs, job: Job, seconds_a_step: float) -> None:
        self._table = table
        self._job = job
        self._seconds_a_step = seconds_a_step
        self._pace = Pace(0.0)

    def begin(self, on: Allocation, kind: str) -> None:
        rate = self._table.rate(self._job.model, on.gpus, kind)
        self._pace = Pace(rate * self._seconds_a_step)

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return self._pace


class ThroughputBeliefs(NothingLearnt):
    """The table itself as what the scheduler believes: Gavel's simulator knows all speeds."""

    def __init__(self, table: Throughputs) -> None:
        self._table = table
        self._rows: dict[tuple[str, int, tuple[str, ...]], Floats] = {}
        self._pairs: dict[tuple[Key, Key, tuple[str, ...]], list[tuple[float, float]]] = {}

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Nothing to learn."""

    def forget(self, job: Job) -> None:
        """Nothing was learned."""

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: steps per second on as many GPUs as asked for."""
        names = tuple(kinds)
        rows = [self._row(job.model, job.demand.gpus, names) for job in table.jobs]
        return np.array(rows).reshape(len(table), len(names))

    def pairs(self, table: JobTable, kinds: Sequence[str], first: Rows, second: Rows) -> Floats:
        """Pairs x kinds x 2: steps per second of two rows that share devices."""
        jobs, names = table.jobs, tuple(kinds)
        both = zip(first.tolist(), second.tolist(), strict=True)
        cells = [self._pair(jobs[a], jobs[b], names) for a, b in both]
        return np.array(cells, dtype=float).reshape(len(first), len(kinds), 2)

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Rows x configurations: steps per second."""
        cells = [
            [self._table.rate(job.model, config.gpus, config.kind) for config in configs]
            for job in table.jobs
        ]
        return np.array(cells, dtype=float).reshape(len(table), len(configs))

    def blind_goodputs(
        self,
        table: JobTable,
        kinds: Sequence[str],
        nodes: Floats,  # noqa: ARG002 - the tables do not tell nodes apart
        replicas: Floats,
    ) -> Floats:
        """Rows x shapes: steps per second, the mean of all kinds."""
        shapes = [[Config(kind, 1, int(count)) for kind in kinds] for count in replicas]
        return np.column_stack([self.goodputs(table, same).mean(axis=1) for same in shapes])

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """One GPU a replica, where a job can run at all."""
        return (self.rates(table, kinds) > 0.0).astype(float)

    def most_run(self, table: JobTable) -> Floats:
        """Every size is known: as many as the largest that a job takes."""
        return table.column(TableColumns.MAX).copy()

    def restart_s(self, table: JobTable) -> Floats:
        """Return the restart costs that the truth charges."""
        return np.array([self._table.restart(job, first=False) for job in table.jobs])

    def _pair(self, job: Job, other: Job, kinds: tuple[str, ...]) -> list[tuple[float, float]]:
        key = ((job.model, job.demand.gpus), (other.model, other.demand.gpus), kinds)
        if key not in self._pairs:
            self._pairs[key] = [self._table.pair(job, other, kind) for kind in kinds]
        return self._pairs[key]

    def _row(self, model: str, gpus: int, kinds: tuple[str, ...]) -> Floats:
        key = (model, gpus, kinds)
        if key not in self._rows:
            rates = [self._table.rate(model, gpus, kind) for kind in kinds]
            self._rows[key] = np.array(rates)
        return self._rows[key]


@cache
def load_published(table: str = "simulation") -> Throughputs:
    """The throughputs of jobs alone that ship with the package: `simulation` or `physical`."""
    tables = json.loads(SHIPPED.read_text())
    if table not in tables or table == "about":
        raise InvalidConfig(
            f"no table {table!r} of throughputs is shipped", hint="choose simulation or physical"
        )
    alone: dict[str, dict[Key, float]] = {}
    for model, kinds in tables[table].items():
        for kind, rates in kinds.items():
            for count, rate in zip(COUNTS, rates, strict=False):
                alone.setdefault(kind, {})[model, count] = float(rate)
    return Throughputs(alone, source=f"the published {table} table")


def read_throughputs(path: Path, *, restart_cost: float | None = 0.0) -> Throughputs:
    """A table of one's own (`.csv`), or a file of Gavel.

    Gavel's has kind, then `('job type', GPUs)`, then `null` or another such key.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".csv":
            return _read_rows(path, text, restart_cost)
        content = json.loads(text)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not JSON: {error}") from error
    alone: dict[str, dict[Key, float]] = {}
    together: dict[str, dict[tuple[Key, Key], tuple[float, float]]] = {}
    for kind, jobs in _mapping(f"{path}", content).items():
        alone[kind], together[kind] = {}, {}
        for text, cells in _mapping(f"{path}, {kind}", jobs).items():
            where = f"{path}, {kind}, {text}"
            key = _key(where, text)
            for other, value in _mapping(where, cells).items():
                if other == ALONE:
                    alone[kind][key] = _number(f"{where}, {other}", value)
                else:
                    pair = _pair(f"{where}, {other}", value)
                    together[kind][key, _key(where, other)] = pair
    return Throughputs(alone, together, restart_cost, source=str(path))


def _read_rows(path: Path, text: str, restart_cost: float | None) -> Throughputs:
    """A row for each model, kind and number of GPUs; lengths are on the first row's kind."""
    alone: dict[str, dict[Key, float]] = {}
    try:
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise InvalidConfig(f"{path} is not CSV: {error}") from error
    if not rows or not set(rows[0]) >= set(COLUMNS):
        raise InvalidConfig(
            f"{path} is not a table of speeds", hint=f"its first line is {','.join(COLUMNS)}"
        )
    for line, row in enumerate(rows, 2):
        model, kind, gpus, rate = (row[name] or "" for name in COLUMNS)
        try:
            count, steps = int(gpus), float(rate)
        except ValueError:
            count, steps = 0, 0.0
        if not model or not kind or count < 1 or not 0.0 < steps < float("inf"):
            raise InvalidConfig(
                f"{path}, line {line}: {','.join(filter(None, (model, kind, gpus, rate)))!r} is "
                "not a model, a kind, GPUs and steps per second"
            )
        alone.setdefault(kind, {})[model, count] = steps
    return Throughputs(alone, {}, restart_cost, next(iter(alone)), source=str(path))


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return value
    raise InvalidConfig(
        f"{where}: expected a mapping, found {str(value)[:40]!r}",
        hint="the layout is {kind: {\"('job type', GPUs)\": {null: steps per second}}}",
    )


@cache
def _key(where: str, text: str) -> Key:
    try:
        model, gpus = ast.literal_eval(text)
    except (SyntaxError, TypeError, ValueError) as error:
        raise _not_a_key(where, text) from error
    if not isinstance(model, str) or not isinstance(gpus, int):
        raise _not_a_key(where, text)
    return model, gpus


def _not_a_key(where: str, text: str) -> InvalidConfig:
    return InvalidConfig(
        f"{where}: {text!r} is not a job type and a number of GPUs",
        hint="for example \"('LM (batch size 10)', 1)\"",
    )


def _number(where: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0.0:
        return float(value)
    raise InvalidConfig(f"{where}: {value!r} is not a number of steps per second")


def _pair(where: str, value: Any) -> tuple[float, float]:
    if isinstance(value, list) and len(value) == 2:
        return _number(where, value[0]), _number(where, value[1])
    raise InvalidConfig(f"{where}: {value!r} is not the speeds of two jobs")
