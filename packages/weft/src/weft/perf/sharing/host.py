"""Effect of CPU cores and host memory on a job, after Mohan et al. (Synergy, OSDI 2022).

Data is prepared by CPU cores, trained on by the GPU, and read from storage unless it is cached in
host memory by a cache that never evicts: it holds x % of a dataset and gives x % hits. The
slowest of the three sets the pace. `HostShareSpeed` states that with six numbers a model; the
numbers that ship were fitted by `python -m benchmarks.fit_host` to the tables published with the
paper, and the file states the error of every fit. `read_tables` reads the tables themselves.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Sensitivity
from weft.core.model.cluster import Cluster
from weft.core.model.job import Job
from weft.frozen import frozen

CPUS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0)
MEM_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
FAIR = (3.0, 62.5)
TABLES = "tput_matrix.csv"
STARVED = 0.1  # speed left where a job has less memory than it needs at all
# Other names of the models that were measured.
ALSO = {
    "resnet18": "res18",
    "resnet50": "res50",
    "imagenet": "res50",
    "shufflenet_v2_x1_0": "shufflenet",
    "mobilenet_v2": "mobilenet",
    "mobilenet_v3": "mobilenet",
    "deepspeech2": "deepspeech",
}


@frozen
class HostShareSpeed:
    """Speed with `c` cores and `m` GB for each GPU, 1 at the share in proportion.

    At most `top`, where the GPU sets the pace; at most `core` c^`power`, what cores prepare; at
    most `stream` / (1 - m / `data_gb`), what storage delivers beside the cache (`data_gb` 0:
    never the limit). Below `need_gb` hardly any.
    """

    top: float = 1.0
    core: float = 1.0
    power: float = 1.0
    stream: float = 0.0
    data_gb: float = 0.0
    need_gb: float = 0.0

    def at(self, cpus: float, mem_gb: float) -> float:
        if mem_gb < self.need_gb:
            return STARVED
        speed = min(self.top, self.core * float(cpus**self.power))
        if mem_gb < self.data_gb:
            speed = min(speed, self.stream / (1.0 - mem_gb / self.data_gb))
        return speed

    def sample_grid(self) -> Sensitivity:
        """Return the law's speeds on the grid of the published tables."""
        return Sensitivity(CPUS, MEM_GB, tuple(tuple(self.at(c, m) for m in MEM_GB) for c in CPUS))


@cache
def load_shipped() -> Mapping[str, Sensitivity]:
    """The tables of the fitted laws, by model; 1 at 3 cores and 62.5 GB for each GPU."""
    text = files("weft.perf").joinpath("data/host.json").read_text(encoding="utf-8")
    laws = {name: HostShareSpeed(**entry["law"]) for name, entry in json.loads(text).items()}
    return {name: law.sample_grid().relative_to(*FAIR) for name, law in laws.items()}


def read_tables(folder: Path) -> dict[str, Sensitivity]:
    """The published tables of one GPU on servers of 3 cores and 62.5 GB per GPU, by model."""
    path = folder / TABLES
    points: dict[str, dict[tuple[float, float], float]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name = row["model_profile"]
                if row["profile_set"] == "models" and name.endswith("_1"):
                    at = float(row["cpus_per_gpu"]), float(row["mem_gb_per_gpu"])
                    speed = float(row["tput_norm_to_fair"])
                    points.setdefault(name.removesuffix("_1"), {})[at] = speed
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise InvalidConfig(
            f"{path}: {error} is not as in a table of sensitivities",
            hint="columns are profile_set, model_profile, cpus_per_gpu, mem_gb_per_gpu, "
            "tput_norm_to_fair",
        ) from error
    return {name: _table(f"{path}, {name}", rows) for name, rows in points.items()}


@frozen
class ByModel:
    """Sensitivities of jobs by the name of their model."""

    tables: Mapping[str, Sensitivity]

    @classmethod
    def on(cls, cluster: Cluster, tables: Mapping[str, Sensitivity]) -> ByModel:
        """Tables of which 1 is the share in proportion to GPUs on the nodes of a cluster."""
        machine = min(cluster.nodes, key=lambda node: node.cpus / node.gpus)
        fair = machine.cpus / machine.gpus, machine.mem_gb / machine.gpus
        return cls({name: table.relative_to(*fair) for name, table in tables.items()})

    def __call__(self, job: Job) -> Sensitivity | None:
        """The table of the job's model; None if it was not measured."""
        name = job.model.lower()
        return self.tables.get(ALSO.get(name, name))


def _table(where: str, points: Mapping[tuple[float, float], float]) -> Sensitivity:
    cpus = tuple(sorted({c for c, _ in points}))
    mem_gb = tuple(sorted({m for _, m in points}))
    try:
        speeds = tuple(tuple(points[c, m] for m in mem_gb) for c in cpus)
    except KeyError as error:
        raise InvalidConfig(f"{where}: there is no speed at {error} cores and GB") from error
    steps = [pair for row in speeds for pair in pairwise(row)]
    steps += [pair for rows in pairwise(speeds) for pair in zip(*rows, strict=True)]
    if any(more < less for less, more in steps):
        raise InvalidConfig(f"{where}: speed falls where cores or memory grow")
    return Sensitivity(cpus, mem_gb, speeds)
