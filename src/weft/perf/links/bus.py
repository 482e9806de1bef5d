"""Measured times of jobs that share a socket, by the authors of topology-aware scheduling.

A folder has `solo_times.csv` and `colocated_times.csv`: the time of a job beside another one, whose
columns are `other_model`, `other_batch` and `other_gpus`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.formulas.training.solo_times import FILE as SOLO
from weft.formulas.training.solo_times import Described, describe, read_solo_times
from weft.frozen import frozen

COLOCATED = "colocated_times.csv"
# Of the published pairs some hold the other job's time, or next to none: no job is faster beside
# another, and no two that were meant to disturb each other took twice as long.
MOST_SLOWER = 2.0


@frozen
class MeasuredBus:
    """Speeds beside another job on the same socket; 1 for a pair without measurements.

    `refused` are the pairs whose times cannot be: shorter than alone, or more than twice as long.
    """

    speeds: Mapping[tuple[Described, Described], float]
    refused: int = 0

    def speed(self, job: Job, beside: Job) -> float:
        """Speed of `job`, as a part of its speed alone."""
        pair = (job.model, job.demand.gpus), (beside.model, beside.demand.gpus)
        return self.speeds.get(pair, 1.0)


def read_bus(folder: Path) -> MeasuredBus:
    """The tables of a folder; InvalidConfig naming the line that cannot be read."""
    alone = read_solo_times(folder / SOLO).near
    path, line = folder / COLOCATED, 1
    speeds: dict[tuple[Described, Described], float] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for line, row in enumerate(csv.DictReader(stream), 2):  # noqa: B007 - named in errors
                run = describe(row["model"], row["batch"]), int(row["gpus"])
                other = describe(row["other_model"], row["other_batch"]), int(row["other_gpus"])
                speeds[run, other] = alone[run] / float(row["time_s"])
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidConfig(
            f"{path}, line {line}: {error!r} is missing or no number", hint=f"see {SOLO} as well"
        ) from error
    kept = {pair: speed for pair, speed in speeds.items() if 1.0 / MOST_SLOWER <= speed <= 1.0}
    return MeasuredBus(kept, len(speeds) - len(kept))
