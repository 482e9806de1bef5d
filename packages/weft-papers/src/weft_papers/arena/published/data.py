"""Profiles and traces of Arena's authors: step times of the best plan, memory, jobs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import log2
from pathlib import Path

from benchmarks.plan_tables import Measured, PlanTable

from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Config, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth

PER_NODE = {"a100": 4, "v100": 16, "a40": 2, "a10": 2}
GPU_GB = {"a40": 48.0, "a10": 24.0, "a100": 40.0, "v100": 32.0}
COUNTS = (1, 2, 4, 8, 16)
FEWER = 5  # the authors' simulator runs a fifth of each trace's iterations
LONGEST_S = 300.0  # of an iteration: above it, it counts as infeasible
WORSE, LARGER = 0.9, 1.8  # speed for half the GPUs of a node, seconds for a model one size larger
RESTART_S = 60.0  # of any start after the first, whoever decides: ours
SIZES = {
    "wide_resnet": ("500M", "1B", "2B", "4B", "6.8B"),
    "bert": ("760M", "1.3B", "2.6B", "6.7B", "15B"),
    "moe": ("690M", "1.3B", "2.4B", "10B", "27B"),
}
Profiled = dict[tuple[str, str, int], dict[tuple[str, int, int], float]]


@cache
def read_profiled(folder: Path) -> Profiled:
    """Seconds of an iteration by (model, size, batch), then by (kind, nodes, GPUs of each)."""
    times: Profiled = {}
    with (folder / "optimal_iter_time.csv").open() as file:
        for row in csv.DictReader(file):
            model = row["model"], row["params"], int(row["global_batch"])
            place = row["gpu_type"], int(row["nodes"]), int(row["gpus_per_node"])
            times.setdefault(model, {})[place] = float(row["iter_time_s"])
    return times


def find_speed(
    folder: Path, model: str, size: str, batch: int, kind: str, nodes: int, per_node: int
) -> float:
    """Samples per second as the authors look them up; 0 where it does not run.

    A placement that was not profiled is the best of as many GPUs, slower by a tenth for each time
    that a node has half of those; a model size that was not is a larger one, 1.8 times as fast for
    each size between.
    """
    known, sizes = read_profiled(folder), SIZES[model]
    for steps, larger in enumerate(sizes[sizes.index(size) :]):
        places = known.get((model, larger, batch))
        if places is not None:
            return LARGER**steps * _speed(places, batch, kind, nodes, per_node)
    return 0.0


def _speed(
    places: dict[tuple[str, int, int], float], batch: int, kind: str, nodes: int, per_node: int
) -> float:
    took = places.get((kind, nodes, per_node))
    if took is not None:
        return batch / took if took <= LONGEST_S else 0.0
    others = {
        place: seconds
        for place, seconds in places.items()
        if place[0] == kind and place[1] * place[2] == nodes * per_node and seconds <= LONGEST_S
    }
    if not others:
        return 0.0
    best = min(others, key=lambda place: others[place])
    return float(batch / others[best] * WORSE ** log2(best[2] / per_node))


def fits_plain(folder: Path, model: str, size: str, batch: int, kind: str, gpus: int) -> bool:
    """Return true if plain data parallelism fits, for baselines without plans."""
    needs = _read_memory(folder).get(f"{model}_{size}_{batch}")
    if needs is None or gpus not in COUNTS:
        return False
    need = needs[COUNTS.index(gpus)]
    return bool(need >= 0.0 and 1.2 * need <= 0.8 * GPU_GB[kind])


@cache
def _read_memory(folder: Path) -> dict[str, list[float]]:
    """GB of each GPU by data parallelism on 1 to 16 GPUs; below 0 where it does not fit."""
    (table,) = json.loads((folder / "dp_mem_gb.json").read_text())
    memory: dict[str, list[float]] = table
    return memory


def name_of(model: str, size: str, batch: int) -> str:
    """Return the name of a job's model."""
    return f"{model}-{size}-{batch}"


@cache
def read_table(folder: Path) -> PlanTable:
    """Every model that was profiled, on whole nodes and powers of two inside one."""
    rows = [
        Measured(name_of(*model), kind, None, nodes, nodes * each, model[2] / speed)
        for model in read_profiled(folder)
        for kind, most in PER_NODE.items()
        for nodes, each in _places(most)
        if (speed := find_speed(folder, *model, kind, nodes, each)) > 0.0
    ]
    batches = {name_of(*model): model[2] for model in read_profiled(folder)}
    return PlanTable(rows, batches, RESTART_S, at_first=False)


def _places(most: int) -> Iterator[tuple[int, int]]:
    for gpus in COUNTS:
        yield (1, gpus) if gpus <= most else (gpus // most, most)


def read_trace(path: Path, jobs: int | None = None) -> Trace:
    """Jobs that ask for a kind and a number of GPUs, and take others."""
    table, pairs = read_table(path.parent), []
    with path.open() as file:
        rows = list(csv.DictReader(file))[:jobs]
    first = min(float(row["submission_time"]) for row in rows)
    for row in rows:
        model, _, size = row["model_name"].partition("__")
        name = name_of(model, size, int(row["batch_size"]))
        steps = max(int(row["num_iteration"]) // FEWER, 1)
        gpus, kind = int(row["num_gpu"]), row["gpu_type"]
        job = Job(
            JobId(row["job_id"]),
            float(row["submission_time"]) - first,
            Demand(gpus, 1, COUNTS[-1]),
            model=name,
            hints={"steps": float(steps)},
        )
        own = Config(kind, -(-gpus // PER_NODE[kind]), gpus)
        seconds = table.seconds(job, own, None)
        if seconds == float("inf"):  # it cannot run as asked for: as its fastest size does
            seconds = min(_all_seconds(table, job), default=0.0)
        if seconds:
            pairs.append((job, Truth(steps * seconds)))
    return Trace(path.stem, tuple(sorted(pairs, key=lambda pair: pair[0].submitted)))


def _all_seconds(table: PlanTable, job: Job) -> Iterator[float]:
    for kind, most in PER_NODE.items():
        for nodes, each in _places(most):
            seconds = table.seconds(job, Config(kind, nodes, nodes * each), None)
            if seconds < float("inf"):
                yield seconds


def only_plain(folder: Path) -> Callable[[Job, Config], bool]:
    """Return a rule for policies without plans: sizes where plain data parallelism fits."""

    @cache
    def sizes(name: str) -> set[tuple[str, int]]:
        model, size, batch = name.rsplit("-", 2)
        every = ((kind, gpus) for kind in PER_NODE for gpus in COUNTS)
        return {shape for shape in every if fits_plain(folder, model, size, int(batch), *shape)}

    def fits(job: Job, config: Config) -> bool:
        return not sizes(job.model) or (config.kind, config.gpus) in sizes(job.model)

    return fits


def cluster(part: int = 1) -> Cluster:
    """The authors' 1,280 GPUs, or one in so many of each kind."""
    counts = {"a100": 80, "v100": 20, "a40": 160, "a10": 160}
    text = "+".join(f"{max(n // part, 1)}x{PER_NODE[kind]}:{kind}" for kind, n in counts.items())
    return replace(parse_cluster(text), name="arena")
