"""Measured step times and gradient statistics, in the layout of the Sia artifact.

A folder per model with `placements-GPU.csv`, `scalability-GPU.csv` and `validation-BATCH.csv`, and
`models.json` beside the folders. Missing cells are interpolated.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.perf.goodput.model import Floats

# Our kinds and the names of the machines they were measured on.
MACHINES = {"t4": "aws", "rtx": "rtx", "a100": "dgx-ext", "quad": "quad", "v100": "azure"}

MICRO_BATCHES = 48  # of one sample each, in every replica of a pipeline (Sia, section 5)

TIMED = ("local_bsz", "step_time", "sync_time")
TRAINED = ("progress", "grad_sqr", "grad_var")
Curve = tuple[Sequence[float], Sequence[float], Sequence[float]]  # batch, step and sync seconds


class Source(Protocol):
    """The kind that a model of step times was fitted on: limits of the batch of a replica.

    `unit` is the GPUs of a replica: 1, or the stages of a pipeline.
    """

    @property
    def min_local(self) -> int: ...
    @property
    def max_local(self) -> int: ...
    @property
    def node_gpus(self) -> int: ...
    @property
    def unit(self) -> int: ...


class KindFacts(Source, Protocol):
    """One job on one GPU kind; `bootstrap` is the speed on one GPU, to compare kinds by."""

    @property
    def bootstrap(self) -> float: ...
    @property
    def max_nodes(self) -> float: ...


class KindModel(KindFacts, Protocol):
    """One model on one GPU kind: how long a step takes."""

    @property
    def max_nodes(self) -> int: ...

    def times(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        """Seconds of a step and of its synchronisation."""
        ...

    def largest_local(self, placement: Sequence[int]) -> int:
        """The largest batch per GPU for a placement."""
        ...


@frozen
class KindTable:
    """One model on one GPU kind: step and sync seconds by placement and batch per GPU."""

    min_local: int
    max_local: int
    bootstrap: float
    node_gpus: int
    max_nodes: int
    placements: Mapping[str, Curve]
    shapes: Mapping[tuple[int, int], Curve]
    unit: int = 1
    _known: dict[tuple[Sequence[int], float], tuple[float, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def times(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        """Seconds of a step and of its synchronisation; looked up once for all jobs."""
        at = (tuple(placement), local)
        if at not in self._known:
            pipelined = self.unit > 1
            times = self._pipelined(placement) if pipelined else self._look_up(placement, local)
            self._known[at] = times
        return self._known[at]

    def _pipelined(self, placement: Sequence[int]) -> tuple[float, float]:
        """GPipe: the forward pass of a stage, three times over micro-batches and the ramp."""
        forward, sync = self._look_up(placement, 1.0)
        compute = 3.0 * (self.unit - 1 + MICRO_BATCHES) * forward
        sync = sync if sum(placement) > self.unit else 0.0
        return compute + sync, sync

    def _look_up(self, placement: Sequence[int], local: float) -> tuple[float, float]:
        curve = self.placements.get(_key(placement))
        if curve is None:
            curve = self.shapes.get((len(placement), sum(placement)))
        if curve is not None:
            return _at(curve, local)
        return self._between(len(placement), sum(placement), local)

    def largest_local(self, placement: Sequence[int]) -> int:
        """The largest batch per GPU measured for a placement, or for a larger one."""
        if self.unit > 1:
            return MICRO_BATCHES
        exact = self.placements.get(_key(placement)) or self.shapes.get(
            (len(placement), sum(placement))
        )
        if exact is not None:
            return int(exact[0][-1])
        nodes, gpus = len(placement), sum(placement)
        wider = [int(c[0][-1]) for (n, k), c in self.shapes.items() if n >= nodes and k >= gpus]
        return max(wider, default=self.max_local)

    def _between(self, nodes: int, gpus: int, local: float) -> tuple[float, float]:
        """Linear in the number of nodes, at the same GPUs per node."""
        known = sorted({n for n, _ in self.shapes})
        nodes = min(nodes, known[-1])
        above = min(bisect_left(known, nodes), len(known) - 1)
        below = max(above - 1, 0) if known[above] != nodes else above
        ends = [self._on_nodes(known[i], gpus * known[i] / nodes, local) for i in (below, above)]
        if below == above:
            return ends[0]
        part = (nodes - known[below]) / (known[above] - known[below])
        (a, b), (c, d) = ends
        return a + part * (c - a), b + part * (d - b)

    def _on_nodes(self, nodes: int, gpus: float, local: float) -> tuple[float, float]:
        counts = sorted(k for n, k in self.shapes if n == nodes)
        at = [_at(self.shapes[nodes, k], local) for k in counts]
        step, sync = zip(*at, strict=True)
        return float(np.interp(gpus, counts, step)), float(np.interp(gpus, counts, sync))


@frozen
class ModelTable:
    """One model: how it trains and how fast, on every kind it was measured on.

    `ends` is the progress at the end of every epoch; `stats[epoch][i]` are squared norm and
    variance of the gradient at `batches[i]`.
    """

    name: str
    init_batch: int
    max_batch: int
    epochs: int
    restart_s: float
    assumed_restart_s: float
    slowdown: float
    kinds: Mapping[str, KindModel]
    batches: tuple[float, ...]
    ends: tuple[float, ...]
    stats: tuple[tuple[tuple[float, float], ...], ...]

    @property
    def total(self) -> float:
        """Progress of a whole job, in iterations of the initial batch size."""
        return self.ends[-1]

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """Gradient statistics at a batch size in an epoch, between the measured ones."""
        return noise_between(self.batches, self.stats[epoch], batch)


def noise_between(
    sizes: tuple[float, ...], at: tuple[tuple[float, float], ...], batch: float
) -> tuple[float, float]:
    """Squared norm and variance at a batch size, by those `at` the measured `sizes`."""
    above = bisect_left(sizes, batch)
    if above == 0:
        return at[0]
    if above == len(sizes):
        above, part = above - 1, 1.0
    else:
        low, high = sizes[above - 1], sizes[above]
        part = (batch - low) / (high - low)
    (s0, v0), (s1, v1) = at[above - 1], at[above]
    return s0 + part * (s1 - s0), v0 + part * (v1 - v0)


def read_tables(
    folder: Path, models: Collection[str] = (), kinds: Collection[str] = ()
) -> dict[str, ModelTable]:
    """The models of a profiles folder, on the kinds asked for; all of them by default."""
    facts_file = folder.parent / "models.json"
    try:
        facts = json.loads(facts_file.read_text())["models"]
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise InvalidConfig(
            f"cannot read {facts_file}: {error}",
            hint="--profiles names a folder of measured profiles with models.json beside it",
        ) from error
    wanted = set(models) & set(facts) or set(facts)
    tables = {
        p.name: _check(p, facts[p.name], kinds or MACHINES, facts_file)
        for p in sorted(folder.iterdir())
        if p.name in wanted
    }
    if not tables:
        raise InvalidConfig(f"{folder} holds no profiles", hint="one folder a model is expected")
    return tables


def _check(
    folder: Path, facts: Mapping[str, Any], kinds: Collection[str], facts_file: Path
) -> ModelTable:
    try:
        return _model(folder, facts, kinds)
    except KeyError as error:
        raise InvalidConfig(
            f"{facts_file}: model {folder.name!r} lacks {error}",
            hint="see docs/how-to/measured-profiles.md for the fields that are needed",
        ) from error


def _model(folder: Path, facts: Mapping[str, Any], kinds: Collection[str]) -> ModelTable:
    runs = {
        int(p.stem.split("-")[1]): _columns(p, TRAINED) for p in folder.glob("validation-*.csv")
    }
    if not runs:
        raise InvalidConfig(
            f"{folder} has no validation-BATCH.csv", hint="one file a batch size that was trained"
        )
    batches = sorted(runs)
    epochs = min(len(runs[b]["progress"]) for b in batches)
    stacked = {name: np.stack([runs[b][name][:epochs] for b in batches]) for name in TRAINED}
    return ModelTable(
        folder.name,
        facts["init_batch_size"],
        facts["max_batch_size"],
        epochs,
        facts["checkpoint_restart_s_simulated"],
        facts["restart_penalty_s_assumed_by_sia_policy"],
        facts["slowdown_divisor"],
        _kinds(folder, facts["per_gpu_type"], kinds),
        tuple(float(b) for b in batches),
        tuple(stacked["progress"].min(axis=0).tolist()),
        _statistics(stacked["grad_sqr"], stacked["grad_var"]),
    )


def _statistics(sqr: Floats, var: Floats) -> tuple[tuple[tuple[float, float], ...], ...]:
    """(squared norm, variance) by epoch and batch size."""
    by_epoch = zip(sqr.T.tolist(), var.T.tolist(), strict=True)
    return tuple(tuple(zip(s, v, strict=True)) for s, v in by_epoch)


def _kinds(folder: Path, facts: Mapping[str, Any], kinds: Collection[str]) -> dict[str, KindTable]:
    tables = {}
    for kind, machine in MACHINES.items():
        path = folder / f"placements-{machine}.csv"
        if kind not in kinds or machine not in facts or not path.is_file():
            continue
        placements = _columns(path, ("placement", *TIMED), ("placement",))
        shapes = _by_shape(
            placements,
            _columns(folder / f"scalability-{machine}.csv", ("num_nodes", "num_replicas", *TIMED)),
        )
        fact = facts[machine]
        unit = int(fact.get("pipeline_stages", 1))
        tables[kind] = KindTable(
            fact["min_local_bsz"] if unit == 1 else MICRO_BATCHES,
            fact["max_local_bsz"] if unit == 1 else MICRO_BATCHES,
            fact.get("bootstrap_xput_examples_per_s") or 1.0,
            max(int(d) for name in set(placements["placement"]) for d in name),
            max(nodes for nodes, _ in shapes),
            _curves(placements["placement"], placements),
            shapes,
            unit,
        )
    return tables


def _by_shape(
    placements: Mapping[str, Any], scalability: Mapping[str, Any]
) -> dict[tuple[int, int], Curve]:
    """Curves by (nodes, GPUs): placements averaged, then the rows measured at scale."""
    shape_of = {p: (len(p), sum(map(int, p))) for p in set(placements["placement"])}
    near = _curves([shape_of[p] for p in placements["placement"]], placements)
    wide = zip(scalability["num_nodes"], scalability["num_replicas"], strict=True)
    far = _curves([(int(n), int(k)) for n, k in wide], scalability)
    return {**far, **near}


def _curves(keys: Sequence[Any], rows: Mapping[str, Any]) -> dict[Any, Curve]:
    """The rows of each key as a curve over the batch on one GPU; means where there are several."""
    cells: dict[Any, dict[float, list[float]]] = {}
    for key, local, step, sync in zip(keys, *(rows[c] for c in TIMED), strict=True):
        by_local = cells.get(key)
        if by_local is None:
            by_local = cells[key] = {}
        cell = by_local.get(local)
        if cell is None:
            by_local[local] = [1.0, step, sync]
        else:
            cell[0] += 1.0
            cell[1] += step
            cell[2] += sync
    return {key: _curve(by_local) for key, by_local in cells.items()}


def _curve(by_local: Mapping[float, Sequence[float]]) -> Curve:
    sizes = sorted(by_local)
    cells = [by_local[size] for size in sizes]
    return sizes, [step / n for n, step, _ in cells], [sync / n for n, _, sync in cells]


def _at(curve: Curve, local: float) -> tuple[float, float]:
    sizes, step, sync = curve
    return float(np.interp(local, sizes, step)), float(np.interp(local, sizes, sync))


def _key(placement: Sequence[int]) -> str:
    digits = "".join(map(str, placement))
    return min(digits[i:] + digits[:i] for i in range(len(digits)))


def _columns(path: Path, needed: tuple[str, ...], text: tuple[str, ...] = ()) -> dict[str, Any]:
    try:
        with path.open(newline="") as lines:
            header, *rows = csv.reader(lines)
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfig(f"{path} is empty") from error
    if missing := [name for name in needed if name not in header]:
        raise InvalidConfig(f"{path} has no column {missing[0]!r}; it has {', '.join(header)}")
    try:
        columns = dict(zip(header, zip(*rows, strict=True), strict=True))
        return {
            name: list(columns[name]) if name in text else list(map(float, columns[name]))
            for name in needed
        }
    except ValueError as error:
        raise InvalidConfig(f"{path} holds something that is not a number: {error}") from error
