"""Simulations of the league: what is missing or out of date runs, and nothing else."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import weft
from benchmarks.league.digests import digest
from benchmarks.league.matches import Entry, Match
from weft.app.policy_file import build_policy
from weft.core.errors import WeftError
from weft.sim.result import Result

RESULTS = Path(__file__).parent / "results.json"
MEASURES = (
    "avg_jct_h",
    "p99_jct_h",
    "avg_queue_h",
    "p95_queue_h",
    "short_queue_h",
    "slowdown_10s",
    "slowdown_10min",
    "worst_ftf",
    "gpu_hours_wasted",
    "restarts_per_job",
    "failed",
)
BASE, OTHER = Entry("fifo"), Entry("srtf")  # known by their results: the simulator as it is
Row = dict[str, Any]


class TooSlow(BaseException):  # no error of a policy: nothing may catch it on the way
    """A policy used up its CPU time on one workload."""


class Results:
    """The results file: rows by workload and policy, bounds and facts by workload."""

    def __init__(self, path: Path = RESULTS) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.is_file() else {}
        self.matches: dict[str, Row] = known.get("matches", {})
        self.rows: dict[str, dict[str, Row]] = known.get("rows", {})

    def write(self) -> None:
        """Write all of it, a line per workload and policy."""
        rows = ",\n".join(
            f'"{match}": {{\n'
            + ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in sorted(of.items()))
            + "\n}"
            for match, of in self.rows.items()
        )
        matches = ",\n".join(f'"{name}": {json.dumps(at)}' for name, at in self.matches.items())
        text = f'{{"matches": {{\n{matches}\n}},\n"rows": {{\n{rows}\n}}}}\n'
        part = self._path.with_suffix(".part")
        part.write_text(text)
        part.replace(self._path)


def play(
    match: Match,
    entries: Mapping[Entry, str],
    results: Results,
    seeds: tuple[int, ...],
    limit_s: float,
    processes: int = 1,
) -> Iterator[str]:
    """Run what is out of date on one workload; a line of text for each policy that ran.

    `entries` come with their digests.
    """
    began = time.process_time()
    base = run(match, BASE, seeds)
    base_s = time.process_time() - began
    seen = json.dumps([numbers(base), numbers(run(match, OTHER, seeds))])
    simulator = digest(repr(match), repr(seeds), seen)
    bounded = run(match, BASE, seeds, bound=True)
    results.matches[match.workload] = {
        **match._asdict(),
        "seeds": seeds,
        "bounds": {
            name: [tidy(bounds[name]) for bounds in bounded.bounds]
            for name in next(iter(bounded.bounds), ())
        },
        "no_bound": bounded.no_bound,
    }
    rows = results.rows.setdefault(match.workload, {})
    now = {entry: digest(simulator, code) for entry, code in entries.items()}
    old = [entry for entry in now if rows.get(entry.name, {}).get("digest") != now[entry]]
    task = partial(measure, match, seeds=seeds, base_s=base_s, limit=limit_s * len(seeds))
    with ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool:
        for entry, row in zip(old, pool.map(task, old) if pool else map(task, old), strict=True):
            rows[entry.name] = {"digest": now[entry], **row}
            results.write()
            shown = row.get("cannot") or f"{sum(row['avg_jct_h']) / len(seeds):.3f} h"
            yield f"{match.workload:<12} {entry.name:<24} {shown:.70}"
    results.write()


def measure(match: Match, entry: Entry, seeds: tuple[int, ...], base_s: float, limit: float) -> Row:
    """Numbers of a policy, seed by seed; why where it cannot play."""
    began = time.process_time()
    try:
        build_policy(entry.policy)  # an alarm may not ring while a module is imported
        with_alarm(limit)
        result = run(match, entry, seeds)
    except TooSlow:
        return {"cannot": f"took more than {limit:.0f} s of CPU time"}
    except WeftError as error:
        return {"cannot": error.what.splitlines()[0]}
    finally:
        with_alarm(0.0)
    took = (time.process_time() - began) / max(base_s, 1e-9)
    outcome = next(iter(result.outcomes.values()))[0]
    return {**numbers(result), "predictor": outcome.predictor, "cpu": tidy(took, 2)}


def with_alarm(seconds: float) -> None:
    """Raise TooSlow after that much CPU time; 0 takes the alarm back."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def run(match: Match, entry: Entry, seeds: tuple[int, ...], *, bound: bool = False) -> Result:
    """Simulate one policy on one workload."""
    return weft.compare(
        match.workload,
        entry.policy,
        match.cluster,
        seeds=seeds,
        jobs=match.jobs,
        load=match.load,
        predictor=entry.predictor,
        bound=bound,
    )


def numbers(result: Result) -> dict[str, list[float]]:
    """What people feel, by seed."""
    outcomes = next(iter(result.outcomes.values()))
    return {name: [tidy(o.metrics[name]) for o in outcomes] for name in MEASURES}


def tidy(value: float, digits: int = 5) -> float:
    """A number with fewer digits."""
    return float(f"{value:.{digits}g}")
