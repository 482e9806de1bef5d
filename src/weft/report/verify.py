"""Whether a comparison is honest: what any result, ours or another simulator's, must stand up to.

A run is rows of (job, submit, start, end, GPUs), one per stretch of time in which a job held the
same number of GPUs. Findings say with numbers what is wrong, and what cannot be told.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from math import inf, isfinite
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

EPS = 1e-6
COLUMNS = ("job", "submit_s", "start_s", "end_s", "gpus")
TRUTH = ("oracle", "truth", "durations", "future")
NAMED = 3


class Level(IntEnum):
    """How much a finding matters."""

    OK = 0
    UNKNOWN = 1  # the result does not say
    WRONG = 2


@frozen
class Finding:
    """What one check found in a run, or in all of them."""

    check: str
    level: Level
    text: str
    run: str = ""


@frozen
class Stretch:
    """A job on so many GPUs for a while, and what starting took of it; None: it is not said."""

    start: float
    end: float
    gpus: float
    startup_s: float | None = None


@frozen
class JobRun:
    """One job: when it was submitted and ended (None: it did not), and what it held."""

    submit: float
    end: float | None
    held: tuple[Stretch, ...] = ()


@frozen
class SimRun:
    """One run: its jobs, and what its author says of it; None where nothing is said."""

    name: str
    gpus: float | None
    jobs: Mapping[str, JobRun]
    avg_jct_s: float | None = None
    finished: int | None = None
    knows: str | None = None
    seeds: int | None = None
    intervals: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)


def verify(runs: Sequence[SimRun]) -> list[Finding]:
    """All findings, run by run, then over all of them."""
    if not runs:
        raise InvalidConfig("there is no run in it", hint="a result has at least one policy")
    findings: list[Finding] = []
    for run in runs:
        findings += [_capacity(run), _twice(run), _times(run), _counted(run), _mean(run)]
        findings += [_future(run), _seeds(run)]
    findings += [_same_jobs(runs), _costs(runs)]
    return findings


# ---- checks


def _capacity(run: SimRun) -> Finding:
    if run.gpus is None:
        return Finding("capacity", Level.UNKNOWN, "the number of GPUs is not told", run.name)
    changes = sorted(
        change
        for job in run.jobs.values()
        for stretch in job.held
        for change in ((stretch.start, stretch.gpus), (stretch.end, -stretch.gpus))
        if isfinite(change[0])
    )
    if not changes:
        return Finding("capacity", Level.UNKNOWN, "nothing says who held which GPUs", run.name)
    used = most = above_s = above = busy = 0.0
    for (at, change), (until, _) in zip(changes, [*changes[1:], (changes[-1][0], 0)], strict=True):
        used += change
        span = until - at
        busy += used * span
        if span > EPS and used > run.gpus + EPS:
            most = max(most, used)
            above_s += span
            above += (used - run.gpus) * span
    if not most:
        return Finding("capacity", Level.OK, f"never above {run.gpus:g} GPUs", run.name)
    text = (
        f"{most:g} of {run.gpus:g} GPUs in use at once; above it for {above_s:.0f} s, "
        f"{above / busy:.1%} of all GPU time is on GPUs that are not there"
    )
    return Finding("capacity", Level.WRONG, text, run.name)


def _twice(run: SimRun) -> Finding:
    bad = []
    for name, job in run.jobs.items():
        ends = -inf
        for stretch in sorted(job.held, key=lambda stretch: stretch.start):
            if stretch.start < ends - EPS:
                bad.append(name)
                break
            ends = max(ends, stretch.end)
    text = f"in two places at once: {_some(bad)}" if bad else "one at a time"
    return Finding("overlap", Level.WRONG if bad else Level.OK, text, run.name)


def _times(run: SimRun) -> Finding:
    bad = [
        name
        for name, job in run.jobs.items()
        if any(not job.submit - EPS <= stretch.start <= stretch.end + EPS for stretch in job.held)
        or (job.end is not None and any(stretch.end > job.end + EPS for stretch in job.held))
    ]
    text = f"run before they were submitted or after their end: {_some(bad)}"
    ok = Finding("times", Level.OK, "submitted, then run, then ended", run.name)
    return Finding("times", Level.WRONG, text, run.name) if bad else ok


def _counted(run: SimRun) -> Finding:
    done = sum(job.end is not None for job in run.jobs.values())
    left = len(run.jobs) - done
    if run.finished is not None and run.finished != done:
        text = f"it reports {run.finished} finished jobs, and {done} of its rows have an end"
        return Finding("all jobs", Level.WRONG, text, run.name)
    if left and run.finished is None:
        text = f"{left} of {len(run.jobs)} jobs have no end, and nothing says so"
        return Finding("all jobs", Level.WRONG, text, run.name)
    unfinished = f"; {left} did not finish, and it says so" if left else ""
    return Finding(
        "all jobs", Level.OK, f"{done} of {len(run.jobs)} finished{unfinished}", run.name
    )


def _mean(run: SimRun) -> Finding:
    """The mean that is reported against that of the rows."""
    times = [job.end - job.submit for job in run.jobs.values() if job.end is not None]
    if run.avg_jct_s is None or not times:
        return Finding("mean", Level.UNKNOWN, "no mean completion time is reported", run.name)
    ours = sum(times) / len(times)
    if abs(ours - run.avg_jct_s) > 1e-3 * max(ours, 1.0):
        text = (
            f"it reports a mean completion time of {run.avg_jct_s:.1f} s; its rows say {ours:.1f}"
        )
        return Finding("mean", Level.WRONG, text, run.name)
    if len(times) < len(run.jobs):
        last = max(job.end or job.submit for job in run.jobs.values())
        least = sum((job.end or last) - job.submit for job in run.jobs.values()) / len(run.jobs)
        text = f"of the finished alone: {ours:.0f} s; with the others it is at least {least:.0f} s"
        return Finding("mean", Level.UNKNOWN, text, run.name)
    return Finding("mean", Level.OK, f"{ours:.1f} s, as reported", run.name)


def _future(run: SimRun) -> Finding:
    if run.knows is None:
        return Finding("future", Level.UNKNOWN, "not told what it knows beforehand", run.name)
    if run.knows in TRUTH:
        return Finding("future", Level.OK, f"knows the future, and says so: {run.knows}", run.name)
    return Finding("future", Level.OK, f"what it knows beforehand: {run.knows}", run.name)


def _seeds(run: SimRun) -> Finding:
    if run.seeds is None:
        return Finding("seeds", Level.UNKNOWN, "no seed is told", run.name)
    if run.seeds < 2:
        return Finding("seeds", Level.UNKNOWN, "one seed: nothing says how sure it is", run.name)
    level = Level.OK if run.intervals else Level.UNKNOWN
    intervals = "with intervals" if run.intervals else "without intervals"
    return Finding("seeds", level, f"{run.seeds} seeds, {intervals}", run.name)


def _same_jobs(runs: Sequence[SimRun]) -> Finding:
    first = {name: job.submit for name, job in runs[0].jobs.items()}
    for run in runs[1:]:
        other = {name: job.submit for name, job in run.jobs.items()}
        lacks, more = sorted(first.keys() - other.keys()), sorted(other.keys() - first.keys())
        if lacks or more:
            words = [f"lacks {_some(lacks)}"] * bool(lacks) + [f"adds {_some(more)}"] * bool(more)
            text = f"{run.name} was given other jobs than {runs[0].name}: it {' and '.join(words)}"
            return Finding("same jobs", Level.WRONG, text)
        if moved := [name for name, at in first.items() if abs(at - other[name]) > EPS]:
            text = f"{run.name} has jobs that came at other times than in {runs[0].name}"
            return Finding("same jobs", Level.WRONG, f"{text}: {_some(moved)}")
    return Finding("same jobs", Level.OK, f"{len(first)} jobs in each of {len(runs)} runs")


def _costs(runs: Sequence[SimRun]) -> Finding:
    """What a start costs, in the mean of each run."""
    means: dict[str, float] = {}
    for run in runs:
        costs = [stretch.startup_s for job in run.jobs.values() for stretch in job.held]
        known = [cost for cost in costs if cost is not None]
        if not known or len(known) < len(costs):
            told_facts = {run.facts.get("costs") for run in runs}
            if len(told_facts) == 1 and None not in told_facts:
                return Finding("costs", Level.OK, f"the same for all: {told_facts.pop()}")
            return Finding("costs", Level.UNKNOWN, f"{run.name} does not say what a start costs")
        means[run.name] = sum(known) / len(known)
    low, high = min(means.values()), max(means.values())
    text = ", ".join(f"{name} {mean:.1f} s" for name, mean in means.items())
    if not high and any(len(job.held) > 1 for run in runs for job in run.jobs.values()):
        text = "jobs stop and start again, and no start costs anything"
        return Finding("costs", Level.UNKNOWN, text)
    unlike = high > 1.5 * low + 1.0
    return Finding("costs", Level.WRONG if unlike else Level.OK, f"of a start: {text}")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


# ---- reading


def read_runs(path: Path, gpus: float | None = None) -> list[SimRun]:
    """The runs of a file: JSON of `weft compare --per-job`, or CSV."""
    try:
        text = path.read_text()
        if text.lstrip().startswith("{"):
            return list(_read_json(json.loads(text), gpus))
        return list(_read_csv(text.splitlines(), gpus))
    except (OSError, KeyError, TypeError, ValueError) as error:
        hint = f"JSON with --per-job, or CSV with the columns {', '.join(COLUMNS)}"
        raise InvalidConfig(f"{path} cannot be read: {error!r}", hint=hint) from error


def _read_json(result: Mapping[str, Any], gpus: float | None) -> Iterator[SimRun]:
    seeds = len(result.get("seeds", (0,)))
    for policy, whole in result["policies"].items():
        several = whole.get("by_seed")
        for number, one_result in enumerate(several or [whole]):
            jobs = {
                row["id"]: JobRun(
                    row["submit_s"],
                    row["end_s"],
                    tuple(Stretch(*stretch) for stretch in row.get("held", ())),
                )
                for row in one_result["per_job"]
            }
            yield SimRun(
                f"{policy} seed {number}" if several else policy,
                gpus or result["gpus"],
                jobs,
                3600.0 * one_result["avg_jct_h"],
                one_result["finished"],
                one_result["predictor"],
                seeds,
                intervals="interval95" in whole,
                facts={"costs": "one simulation, one model of costs"},
            )


def _read_csv(lines: Sequence[str], gpus: float | None) -> Iterator[SimRun]:
    facts: dict[str, str] = {}
    rows = []
    for line in lines:
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            facts[key.strip()] = value.strip()
        elif line.strip():
            rows.append(line)
    runs: dict[str, dict[str, JobRun]] = {}
    for row in csv.DictReader(rows):
        jobs = runs.setdefault(row.get("run") or "run", {})
        was = jobs.get(row["job"], JobRun(float(row["submit_s"]), None))
        held, end = was.held, _number(row["end_s"])
        if (start := _number(row["start_s"])) is not None:
            until = inf if end is None else end
            part = Stretch(start, until, float(row["gpus"]), _number(row.get("startup_s")))
            held = (*held, part)
        ended = (row.get("finished") or "yes") == "yes"
        jobs[row["job"]] = JobRun(was.submit, end if ended else None, held)
    seeds = facts.get("seeds")
    mean, done = _number(facts.get("avg_jct_s")), _number(facts.get("finished"))
    for name, jobs in runs.items():
        yield SimRun(
            name,
            gpus or _number(facts.get("gpus")),
            jobs,
            mean,
            None if done is None else int(done),
            facts.get("knows"),
            None if seeds is None else int(seeds),
            intervals=facts.get("intervals") == "yes",
        )


def _number(text: str | None) -> float | None:
    return float(text) if text and text.strip() else None
