"""From what jobs do alone to what they do to each other: the models of sharing a device."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Job
from weft.core.paths import expand
from weft.core.protocols import Resident
from weft.frozen import frozen
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import read_hinted
from weft.perf.sharing.interference import TIMESLICING, Features, load_shipped
from weft.perf.throughputs import Throughputs

WAITS = 0.2  # of an iteration, for the host: more than any of the pairs that ship did


@frozen
class Unordered:
    """Speeds of a group without an order, under the driver's time slicing or MPS.

    Pairs are as they were measured, in `pairs` or in what ships; all else is by the model. What
    ships was measured on jobs that hardly waited for their hosts, and holds for such alone.
    """

    discipline: str = TIMESLICING
    pairs: DevicePairs | None = None

    def __call__(self, group: Sequence[Profile]) -> Sequence[float]:
        """The speed of each as a part of its speed alone."""
        if len(group) == 2:
            first, other = group
            waits = max(first.cpu_part, other.cpu_part) > WAITS
            shipped = None if waits else load_shipped_pairs(self.discipline)
            for table in (self.pairs, shipped):
                known = None if table is None else table.measured_speeds(first.tag, other.tag)
                if known is not None:
                    return known
        rates = load_shipped().rates([_features(profile) for profile in group], self.discipline)
        return [float(rate) for rate in rates]


def unordered(discipline: str, pairs: str = "") -> Unordered:
    """Speeds under a discipline, with a person's own table of pairs where one is named."""
    return Unordered(discipline, read_measured(expand(pairs)) if pairs else None)


def profile_of(job: Job) -> Profile:
    """Return the job's own profile, else its model's, else one that is never idle.

    Models were measured on data that was on the GPU already. The hint `cpu_s` is the seconds of an
    iteration in which a job's GPU waits for its host.
    """
    known = read_hinted(job)
    if known is not None:
        return known
    batch = job.hints.get("batch")
    name = load_shipped().nearest_workload(job.model, None if batch is None else int(batch))
    if name is None:
        return Profile(tag=job.model)
    measured = load_shipped().known[name]
    busy = 1.0 if measured.busy is None else measured.busy
    alone = Profile(measured.step_s, (), measured.mem_gb, busy, measured.bandwidth, name)
    cpu_s = max(job.hints.get("cpu_s", 0.0), 0.0)
    return alone.with_cpu_part(cpu_s / (cpu_s + measured.step_s))


def _features(profile: Profile) -> Features:
    """Return a measured program's features, but for how busy it keeps the GPU in this job.

    Its kernels are the same whatever the host does between them.
    """
    measured = load_shipped().known.get(profile.tag)
    if measured is not None:
        return replace(measured, busy=min(profile.gpu_use, 1.0)) if profile.cpu_part else measured
    return Features(
        busy=min(profile.gpu_use, 1.0),
        bandwidth=min(profile.bandwidth_use, 1.0),
        step_s=profile.step_s,
        mem_gb=profile.mem_gb or inf,
    )


@dataclass(frozen=True)
class MeasuredPairs(Colocated):
    """Pairs of jobs at the speeds of a table; whatever it does not have, by the model."""

    table: Throughputs | None = None

    def _beside(self, resident: Resident, beside: Sequence[Resident]) -> float:
        """The measured speed of `resident` beside its only neighbour."""
        if self.table is not None and len(beside) == 1:
            together, _ = self.table.pair(resident.job, beside[0].job, resident.kind)
            alone = self.table.rate(resident.job.model, resident.on.gpus, resident.kind)
            if together > 0.0 and alone > 0.0:
                return together / alone
        return super()._beside(resident, beside)


# What `weft profile` measured: the tables that ship, and a person's own.
#
# `h200.json` has twelve training jobs in all pairs on an NVIDIA H200, under the driver's time
# slicing and under MPS, nine models over batch sizes alone, and the gradient noise of two tasks
# as they are learnt; `python -m benchmarks.gpu_profiles` measures them again.

Row = tuple[str, str, float, float]


@cache
def load_shipped_pairs(sharing: str) -> DevicePairs:
    """Speeds of pairs of workloads `MODEL:BATCH`, under time slicing or MPS."""
    whole = json.loads(files("weft.perf").joinpath("data/h200.json").read_text())
    return _pairs((first, other, a, b) for first, other, a, b in whole["pairs"].get(sharing, ()))


@cache
def read_measured(path: Path) -> DevicePairs:
    """A file that `weft profile --beside … --out` wrote; its names are models of jobs.

    A pair is found by `MODEL:BATCH` and by the models alone, where the first one measured counts.
    """
    try:
        return _pairs(_rows(json.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise InvalidConfig(f"cannot read pairs from {path}: {error.strerror}") from error
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise InvalidConfig(
            f"{path} is not a table of pairs: {error!r}",
            hint="`weft profile --beside COMMAND --out FILE -- COMMAND` writes one",
        ) from error


def _rows(table: Any) -> Iterable[Row]:
    for pair in table["together"]:
        ends = [table["alone"][pair[which]] for which in ("one", "other")]
        # Above its speed alone a job is only by chance.
        speeds = [min(float(pair[f"speed_{which}"]), 1.0) for which in ("one", "other")]
        if min(speeds) <= 0.0:
            raise ValueError(f"a speed of {min(speeds)}")
        tags = [f"{end['model']}:{end['batch']}" for end in ends]
        yield tags[0], tags[1], speeds[0], speeds[1]
        yield str(ends[0]["model"]), str(ends[1]["model"]), speeds[0], speeds[1]


def _pairs(rows: Iterable[Row]) -> DevicePairs:
    speeds: dict[tuple[str, str], tuple[float, float]] = {}
    for first, other, a, b in rows:
        if (other, first) not in speeds:
            speeds.setdefault((first, other), (a, b))
    return DevicePairs(speeds)


# ---- Measured speeds of pairs on one GPU, from a table in the layout of Lucid's artifact
#
# Columns `model1, dataset1, batchsize1, amp1, speed1` and the same with 2: each member's
# throughput as a part of its throughput alone (Hu et al., ASPLOS 2023).


COLUMNS = tuple(f"{name}{i}" for i in (1, 2) for name in ("model", "dataset", "batchsize", "amp"))


def tag_of(model: str, dataset: str, batch: str, amp: str) -> str:
    """Return a workload's name in the table: a job of it has this as its model."""
    return f"{model}/{dataset}/{batch}/{amp}"


@frozen
class DevicePairs:
    """Speeds of two workloads beside each other, found in either order.

    Called with the profiles of a group it is what `Colocated.interfering` needs. Pairs that
    were not measured run at full speed, as in the authors' simulator; of larger groups, which
    were not measured either, each member has the product of its speeds beside the others.
    """

    speeds: Mapping[tuple[str, str], tuple[float, float]]

    def __call__(self, group: Sequence[Profile]) -> list[float]:
        """Speed of each member as a part of its speed alone."""
        speeds = [1.0] * len(group)
        for i, profile in enumerate(group):
            for j, other in enumerate(group):
                if i != j:
                    speeds[i] *= self.pair_speeds(profile.tag, other.tag)[0]
        return speeds

    def pair_speeds(self, tag: str, other: str) -> tuple[float, float]:
        """Speeds of two workloads beside each other; full ones of a pair without measurements."""
        return self.measured_speeds(tag, other) or (1.0, 1.0)

    def measured_speeds(self, tag: str, other: str) -> tuple[float, float] | None:
        """Measured speeds of two workloads beside each other; None without measurements."""
        if (speeds := self.speeds.get((tag, other))) is not None:
            return speeds
        back = self.speeds.get((other, tag))
        return None if back is None else (back[1], back[0])

    def average(self, tag: str) -> float | None:
        """Mean speed of a workload over all its measured partners; None where there are none."""
        own = [a for (first, _), (a, _) in self.speeds.items() if first == tag]
        own += [b for (_, other), (_, b) in self.speeds.items() if other == tag]
        return sum(own) / len(own) if own else None


def read_pairs(path: Path) -> DevicePairs:
    """The table at `path`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidConfig(
            f"cannot read pairs from {path}: {error.strerror}", hint="name a CSV file"
        ) from error
    speeds: dict[tuple[str, str], tuple[float, float]] = {}
    for number, row in enumerate(rows, start=2):
        missing = [name for name in (*COLUMNS, "speed1", "speed2") if not row.get(name)]
        if missing:
            raise InvalidConfig(
                f"{path}, line {number}: no {', '.join(missing)}",
                hint="columns are model, dataset, batchsize, amp and speed, each with 1 and 2",
            )
        try:
            pair = float(row["speed1"]), float(row["speed2"])
        except ValueError as error:
            raise InvalidConfig(f"{path}, line {number}: {error}") from error
        names = [row[name] for name in COLUMNS]
        speeds[tag_of(*names[:4]), tag_of(*names[4:])] = pair
    return DevicePairs(speeds)
