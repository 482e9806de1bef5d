"""How well predictors do on public traces: `python -m benchmarks.predictions [TRACE ...]`.

Time-ordered and without looking ahead: a job is predicted when it is submitted, by what had ended
by then, and completion times come from a replay in which predictors learn from its own ends (one
pool of nodes with eight GPUs, shortest predicted service first, no job is stopped). `venus` is
September 2020 on 104 nodes, with the predictions that were published for it; `slice` two of its
virtual clusters with users and outcomes; `philly` the public subset; `log` is the log of a service
with commands that recur; `ten` are ten workloads, on which `alike` is compared with fifo alone; any
other name is a workload or a file of `weft predict --replay`, such as your own service's log.
`--told` says what stops predictions on Venus: `alike:point=first` with the truth of some jobs.
`--trace-ends` lets predictors learn from Venus' own ends, as if no job had waited before.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.data import need
from benchmarks.recurring_log import write_log
from weft.app.evaluate import (
    PER_NODE,
    PREDICTORS,
    Evaluation,
    ended_as,
    evaluate,
    learn_trace,
    read_jobs,
    replay,
)
from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Truth
from weft.core.spec.registry import build
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, JobTable
from weft.predict.alike.predictor import Alike
from weft.predict.none import NoPredictor

VENUS_NODES, FEWER_NODES = 104, 96
NEGATIVE_S = 1_000.0  # what Lucid takes a negative prediction for
TEN = (*("venus", "earth", "saturn", "uranus", "philly", "itp", "pai", "seren", "kalos"), "pollux")
READS = {
    "venus": ("traces/helios/venus_gpu_jobs.csv.gz", "lucid/venus_sept_lgb.csv"),
    "slice": ("traces/helios/venus_2vc_sept_with_users.csv",),
    "philly": ("traces/normalized/philly_subset.csv.gz",),
}
QUICK_JOBS = 2_000
LARGE, DEAREST, DAY_S = 64, 100, 86_400.0  # jobs whose truth is told
Jobs = list[tuple[Job, Truth]]


def main() -> int:
    """Print a table per trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", default=["venus", "slice", "philly", "log", "ten"])
    parser.add_argument("--predictors", default=",".join(PREDICTORS))
    parser.add_argument("--jobs", type=int, default=5_000, help="at most, of workloads and files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=VENUS_NODES, help="of Venus")
    parser.add_argument("--told", action="store_true", help="the truth of some jobs, on Venus")
    parser.add_argument("--trace-ends", action="store_true", help="learn from the ends of Venus")
    parser.add_argument("--quick", action="store_true", help="few jobs: a minute")
    parser.add_argument("--json", type=Path, help="write all numbers here")
    asked = parser.parse_args()
    predictors = tuple(asked.predictors.split(","))
    traces = ["venus"] if asked.told or asked.trace_ends else asked.traces
    data = need(*(path for name in traces for path in READS.get(name, ())))
    done = {}
    most = min(asked.jobs, QUICK_JOBS) if asked.quick else asked.jobs
    if asked.told:
        _show_told(data, asked.nodes)
        return 0
    if asked.trace_ends:
        _show_trace_ends(data, predictors)
        return 0
    for name in asked.traces:
        if name == "ten":
            _show_ten(most, asked.seed)
            continue
        if name == "venus":
            done[name] = _measure_venus(data, predictors, asked.nodes, most, quick=asked.quick)
        else:
            done[name] = _measure(name, data, predictors, most, asked.seed)
        _show(name, done[name])
    if asked.json is not None:
        asked.json.write_text(json.dumps({name: asdict(result) for name, result in done.items()}))
    return 0


def _measure_venus(
    data: Path, predictors: tuple[str, ...], nodes: int, most: int, *, quick: bool
) -> Evaluation:
    jobs, warm_up, shipped = read_venus(data)
    if quick:
        jobs = jobs[: warm_up + most]
        shipped = {name: seconds[:most] for name, seconds in shipped.items()}
    return evaluate(jobs, predictors, nodes, warm_up, shipped)


def _measure(
    name: str, data: Path, predictors: tuple[str, ...], most: int, seed: int
) -> Evaluation:
    if name == "slice":
        return evaluate(read_slice(data), predictors, warm_up=300)
    if name == "philly":
        subset = data / "traces" / "normalized" / "philly_subset.csv.gz"
        return evaluate(read_jobs(str(subset), most, seed), predictors)
    if name == "log":
        with TemporaryDirectory() as folder:
            path = Path(folder) / "events.jsonl"
            write_log(path, most, seed)
            return evaluate(read_jobs(str(path), most, seed), predictors)
    return evaluate(read_jobs(name, most, seed), predictors)


def read_venus(data: Path) -> tuple[Jobs, int, dict[str, Floats]]:
    """All GPU jobs of Venus before September, then those with both published predictions."""
    lucid, qssf = (
        {row["job_id"]: float(row["priority"]) for row in _rows(data / "lucid" / name)}
        for name in ("venus_sept_ebm_weekly.csv", "venus_sept_lgb.csv")
    )
    rows = [
        (_seconds(row["submit_time"]), row["job_id"], int(row["gpu_num"]), float(row["duration"]))
        for row in _rows(data / "traces" / "helios" / "venus_gpu_jobs.csv.gz")
    ]
    rows.sort()
    both = lucid.keys() & qssf.keys()
    first = next(at for at, name, *_ in rows if name in both)
    before = [row for row in rows if row[0] < first]
    after = [row for row in rows if row[1] in both]
    jobs = [_job(name, at, gpus, length) for at, name, gpus, length in (*before, *after)]
    ebm = np.array([lucid[name] for _, name, *_ in after])
    shipped = {
        "Lucid's, as shipped": np.where(ebm > 0.0, ebm, NEGATIVE_S),
        "QSSF's, as shipped": np.array([qssf[name] for _, name, *_ in after]),
    }
    return jobs, len(before), shipped


def read_slice(data: Path) -> Jobs:
    """Two virtual clusters of Venus with users and how each job ended."""
    rows = list(_rows(data / "traces" / "helios" / "venus_2vc_sept_with_users.csv"))
    rows.sort(key=lambda row: (row["submit_time"], row["job_id"]))
    states = {"COMPLETED": "completed", "CANCELLED": "cancelled"}
    return [
        _job(
            row["job_id"],
            _seconds(row["submit_time"]),
            int(row["gpu_num"]),
            float(row["duration"]),
            row["vc"],
            row["user"],
            states.get(row["state"], "failed"),
        )
        for row in rows
        if int(row["gpu_num"]) > 0
    ]


def _job(
    name: str,
    at: float,
    gpus: int,
    length: float,
    tenant: str = "",
    user: str = "",
    state: str = "completed",
) -> tuple[Job, Truth]:
    job = Job(JobId(name), at, Demand(gpus), tenant=tenant, user=user)
    return job, Truth(max(length, 1.0), state=state)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _show_ten(most: int, seed: int) -> None:
    """Mean completion times of `alike` against fifo's, and the truth's."""
    print("\n| workload | fifo, mean JCT s | alike, of fifo | truth, of fifo |\n|---|--:|--:|--:|")
    for name in TEN:
        done = evaluate(read_jobs(name, min(most, QUICK_JOBS), seed), ("alike",))
        jct = {row.name: row.jct_s for row in done.rows}
        parts = (jct[predictor] / jct["fifo"] for predictor in ("alike", "oracle"))
        cells = " | ".join(f"{part:.3f}" for part in parts)
        print(f"| {name} | {jct['fifo']:,.0f} | {cells} |", flush=True)


class Told(Alike):
    """`alike:point=first`, except for jobs that say how long they take."""

    def __init__(self, lengths: Floats, known: Bools) -> None:
        super().__init__(point="first")
        self._lengths = np.where(known, lengths, np.nan)

    def remaining(self, table: JobTable, now: float) -> Floats:
        """The truth where it is told."""
        lengths = self._lengths[table.seq.astype(np.intp)]
        return np.where(np.isnan(lengths), super().remaining(table, now), lengths)


def _show_told(data: Path, nodes: int) -> None:
    """Mean completion times against those with all truth, by whose truth is told."""
    jobs, warm_up, _ = read_venus(data)
    before, after = jobs[:warm_up], jobs[warm_up:]
    lengths = np.array([truth.length for _, truth in after])
    gpus = np.array([job.demand.gpus for job, _ in after])
    dear = lengths * gpus >= np.sort(lengths * gpus)[-DEAREST]
    masks = {
        "all": gpus > 0,
        "nobody": gpus < 0,
        "no end of the size in the last day": _find_unseen(jobs)[warm_up:],
        f"{LARGE} GPUs or more": gpus >= LARGE,
        f"the {DEAREST} with most GPU time": dear,
        "all others": ~dear,
    }
    print("\n| whose truth is told | jobs | mean JCT, x truth |\n|---|--:|--:|")
    truth = 0.0
    for name, mask in masks.items():
        predictor = Told(lengths, mask)
        learn_trace(predictor, before, after[0][0].submitted)
        mean = float(replay(after, predictor, nodes, PER_NODE).jct_s.mean())
        truth = truth or mean
        print(f"| {name} | {int(mask.sum()):,} | {mean / truth:.3f} |", flush=True)


def _show_trace_ends(data: Path, predictors: tuple[str, ...]) -> None:
    """Mean completion times against the truth's by medians that are fixed at submission.

    A job is predicted from what had ended when it came to the cluster that wrote the trace. In the
    replay it may then wait for jobs whose ends it was predicted from: this looks ahead.
    """
    jobs, warm_up, _ = read_venus(data)
    after = jobs[warm_up:]
    lengths = np.array([truth.length for _, truth in after])
    pools = (VENUS_NODES, FEWER_NODES)
    truths = [_mean_jct(after, lengths, nodes) for nodes in pools]
    print("\n| predictor | " + " | ".join(f"{nodes} nodes" for nodes in pools) + " |")
    print("|---|--:|--:|")
    for name in predictors:
        medians = _predict_by_trace(build("predictor", name), jobs, warm_up)
        parts = (
            _mean_jct(after, medians, nodes) / truth
            for nodes, truth in zip(pools, truths, strict=True)
        )
        print(f"| {name} | " + " | ".join(f"{part:.3f}" for part in parts) + " |", flush=True)


def _predict_by_trace(predictor: Predictor, jobs: Jobs, warm_up: int) -> Floats:
    """The median of each job after the first ones, when it came."""
    learn_trace(predictor, jobs[:warm_up], jobs[warm_up][0].submitted)
    begun = jobs[warm_up][0].submitted
    ends = sorted((job.submitted + truth.length, i) for i, (job, truth) in enumerate(jobs))
    coming = deque(end for end in ends if end[0] > begun)
    medians = np.zeros(len(jobs) - warm_up)
    for seq, (job, _) in enumerate(jobs[warm_up:]):
        while coming and coming[0][0] <= job.submitted:
            at, i = coming.popleft()
            predictor.learn(ended_as(*jobs[i], at))
        table = JobTable(1)
        table.add(job, seq)
        medians[seq] = predictor.quantiles(table, job.submitted, (0.5,))[0, 0]
        predictor.note_submitted(job, job.submitted)
    return medians


def _mean_jct(jobs: Jobs, seconds: Floats, nodes: int) -> float:
    service = seconds * np.array([job.demand.gpus for job, _ in jobs])
    done = replay(
        jobs, NoPredictor(), nodes, PER_NODE, lambda table, _now: service[table.seq.astype(np.intp)]
    )
    return float(done.jct_s.mean())


def _find_unseen(jobs: Jobs) -> Bools:
    """Jobs of a number of GPUs of which none had ended for a day when they came, in the trace."""
    last: dict[int, float] = {}
    ends = sorted((job.submitted + truth.length, job.demand.gpus) for job, truth in jobs)
    unseen = np.zeros(len(jobs), dtype=bool)
    ended = 0
    for i, (job, _) in enumerate(jobs):
        while ends[ended][0] <= job.submitted:
            last[ends[ended][1]] = ends[ended][0]
            ended += 1
        unseen[i] = job.submitted - last.get(job.demand.gpus, -np.inf) > DAY_S
    return unseen


def _show(name: str, done: Evaluation) -> None:
    print(
        f"\n{name}: {done.jobs} jobs, {done.warm_up} of them learnt from only; {done.nodes} nodes,"
    )
    print(f"load {done.load:.2f}. Errors in powers of ten; JCT against the truth's.\n")
    print(
        "| predictor | mean JCT s | x truth | error p50 | p90 | within 2x | pinball | 80 % range |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    truth = done.rows[-1].jct_s
    for row in done.rows:
        numbers = (row.error_p50, row.error_p90, row.within_2x, row.pinball, row.coverage)
        cells = " | ".join("" if np.isnan(number) else f"{number:.3f}" for number in numbers)
        print(f"| {row.name} | {row.jct_s:,.0f} | {row.jct_s / truth:.3f} | {cells} |", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
