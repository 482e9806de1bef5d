"""Findings of the judge by kind: drawn scenarios of a live service, or the built-in workloads.

    python -m benchmarks.judged_scenarios [--count 200] [--first 0] [--processes 2] [POLICY ...]
    python -m benchmarks.judged_scenarios --workloads [--count 300] [POLICY ...]

Every policy meets every stack of wrappers as the numbers go on. Of each workload the first
`--count` jobs are simulated by each policy that is named, `weft` if none is. Prints a row for each
kind of finding, and each that says that something is wrong with what plays it again; ends with 1 if
there was any.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.cheap import every_policy
from tests.scenarios.drawn import WRAPPERS
from tests.scenarios.judged import judge_scenario

import weft
from benchmarks.live_scenarios import conclude
from weft.core.errors import WeftError
from weft.core.spec.registry import names
from weft.frozen import frozen
from weft.judge.finding import Weight
from weft.judge.judge import Verdict, judge
from weft.judge.log_lines import read_log
from weft.judge.words import say_finding
from weft.traces.draft import Workload
from weft.traces.read import trace_part

EVERY = 50


@frozen
class Judged:
    """Findings in one log, by check, kind and weight, and the wrong ones in words."""

    what: str
    events: int
    counts: Counter[tuple[str, str, str]]
    wrong: tuple[str, ...]


def judge_drawn(policies: tuple[str, ...], seed: int) -> Judged:
    """A scenario: the policy and its wrappers go by the number."""
    policy = policies[seed % len(policies)]
    wrapper = WRAPPERS[seed // len(policies) % len(WRAPPERS)]
    return _judged(f"{wrapper}{policy} {seed}", partial(judge_scenario, policy, wrapper, seed))


def judge_workload(jobs: int, case: tuple[str, str]) -> Judged:
    """A simulation of a built-in workload."""
    workload, policy = case

    def simulated() -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            events = Path(folder) / "events.jsonl"
            weft.simulate(workload, policy, jobs=jobs, events=events)
            return judge(read_log(events))

    return _judged(f"{workload} {policy}", simulated)


def _judged(what: str, play: Callable[[], Verdict]) -> Judged:
    logging.disable(logging.CRITICAL)
    os.nice(10 - os.nice(0))
    try:
        verdict = play()
    except (AssertionError, WeftError) as error:
        return Judged(what, 0, Counter({("played", "not to the end", "wrong"): 1}), (str(error),))
    counts = Counter((f.check, f.what, f.weight.name.lower()) for f in verdict.findings)
    wrong = [say_finding(f) for f in verdict.findings if f.weight is Weight.WRONG]
    return Judged(what, verdict.lines, counts, tuple(wrong))


def print_table(results: Iterable[Judged]) -> int:
    """A row for each kind of finding; how many are wrong."""
    counts: Counter[tuple[str, str, str]] = Counter()
    logs: Counter[tuple[str, str, str]] = Counter()
    for number, judged in enumerate(results, start=1):
        counts.update(judged.counts)
        logs.update(judged.counts.keys())
        for text in judged.wrong:
            print(f"{judged.what}: {text}", flush=True)
        if number % EVERY == 0:
            print(f"{number} judged", flush=True)
    print("| check | finding | weight | findings | logs |\n|---|---|---|---|---|")
    for row, count in sorted(counts.items(), key=lambda item: (item[0][2] != "wrong", item[0])):
        print(f"| {' | '.join(row)} | {count} | {logs[row]} |")
    return sum(count for (_, _, weight), count in counts.items() if weight == "wrong")


def main() -> int:
    """Play and judge them all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judged_scenarios")
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--workloads", action="store_true")
    asked = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(asked.processes) as pool:
        if asked.workloads:
            policies = asked.policies or ["weft"]
            built_in = [n for n in names("trace") if isinstance(trace_part(n), Workload)]
            cases = [(name, policy) for name in built_in for policy in policies]
            wrong = print_table(pool.map(partial(judge_workload, asked.count or 300), cases))
            return conclude(f"{len(cases)} simulations", "wrong findings", wrong, began)
        drawn = partial(judge_drawn, tuple(asked.policies) or every_policy())
        seeds = range(asked.first, asked.first + (asked.count or 200))
        wrong = print_table(pool.map(drawn, seeds))
    return conclude(f"{len(seeds)} scenarios", "wrong findings", wrong, began)


if __name__ == "__main__":
    sys.exit(main())
