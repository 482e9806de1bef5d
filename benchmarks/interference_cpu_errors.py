"""How well pairs of jobs with CPU stages are predicted.

    python -m benchmarks.interference_cpu_errors

Against `interference_cpu_stages.csv`, measured on one H200 by the file of that name: each job has
a model whose features ship, and waits for its host in part of every step. Printed are relative
errors of the rates of jobs with such a stage: by features as they ship, and by what the scheduler
makes of them once a job told its CPU seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from benchmarks.interference_data import Row, rows
from weft.core.model.job import Discipline, Job, JobId
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import Unordered, profile_of
from weft.perf.sharing.interference import MPS, TIMESLICING, load_shipped, rates

MEASURED = Path(__file__).with_suffix("").with_name("interference_cpu_stages.csv")


def main() -> None:
    """Print both errors under both disciplines."""
    print("median (one in ten) error of jobs with CPU stages")
    for discipline in (TIMESLICING, MPS):
        with_stage, shipped = (
            errors(discipline, with_stage=True),
            errors(discipline, with_stage=False),
        )
        print(f"{discipline}: as shipped {_say(shipped)}, CPU stage told {_say(with_stage)}")


def errors(discipline: str, *, with_stage: bool) -> list[float]:
    """Relative error of every measured rate of a job with a CPU stage."""
    off = []
    for pair in read_pairs(discipline):
        predicted = predict(pair, discipline) if with_stage else _rates_as_shipped(pair, discipline)
        for row, rate in zip(pair, predicted, strict=True):
            if cpu_part(row) > 0.01:
                off.append(abs(rate / float(row["norm"]) - 1.0))
    return off


def read_pairs(discipline: str) -> Iterator[list[Row]]:
    """Both rows of every pair."""
    under = [row for row in rows(MEASURED) if row["discipline"] == discipline]
    for _, pair in groupby(under, key=lambda row: row["pair"]):
        yield list(pair)


def predict(pair: list[Row], discipline: str) -> list[float]:
    """What the simulator and the service say of two jobs."""
    together = Colocated(profile_of, Unordered(discipline))
    jobs = [_job(row, at) for at, row in enumerate(pair)]
    return list(together.speeds(jobs, "h200", Discipline.NONE))


def cpu_part(row: Row) -> float:
    """The part of a step alone that was spent on the host."""
    return float(row["cpu"])


def _rates_as_shipped(pair: list[Row], discipline: str) -> list[float]:
    known = load_shipped().known
    return [float(r) for r in rates([known[_workload(row)] for row in pair], discipline)]


def _job(row: Row, at: int) -> Job:
    """A job that says of itself what a person knows: model, batch, seconds of its CPU stage."""
    model, _, batch = _workload(row).partition(":")
    step_s = load_shipped().known[_workload(row)].step_s
    cpu_s = step_s * cpu_part(row) / (1.0 - cpu_part(row))
    return Job(JobId(str(at)), model=model, hints={"batch": float(batch), "cpu_s": cpu_s})


def _workload(row: Row) -> str:
    return row["workload"].partition("+")[0]


def _say(off: list[float]) -> str:
    return f"{statistics.median(off):.1%} ({statistics.quantiles(off, n=10)[-1]:.1%})"


if __name__ == "__main__":
    main()
