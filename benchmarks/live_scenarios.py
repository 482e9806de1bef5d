"""Random live scenarios: policies x rules x what people do, through the real driver.

    python -m benchmarks.live_scenarios [--count 1000] [--first 0] [--processes 2] [POLICY ...]

Each is drawn from its number and passes in virtual time. Prints every problem with the number that
plays it again, and ends with 1 if there was any: a policy that failed, a job left behind, or a
reason that is not true.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.scenarios.drawn import draw
from tests.scenarios.live import RuleViolation, play

SLOW_S = 60.0
EVERY = 100


def played(policies: tuple[str, ...], seed: int) -> tuple[RuleViolation | None, float, str]:
    """What went wrong in one scenario, its seconds, and its policy."""
    logging.disable(logging.CRITICAL)
    scenario, began = draw(seed, policies), time.perf_counter()
    try:
        problem = play(scenario)
    except Exception as error:  # one that cannot be played is told of like any other
        problem = RuleViolation(seed, scenario.policy, -1, f"it cannot be played: {error!r}")
    return problem, time.perf_counter() - began, scenario.policy


def read_command(name: str, count: int) -> tuple[tuple[str, ...], range, int]:
    """Policies, seeds and processes that were asked for; `count` seeds by default."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    return tuple(asked.policies), range(asked.first, asked.first + asked.count), asked.processes


def main() -> int:
    """Play them all."""
    chosen, seeds, processes = read_command("live_scenarios", 1000)
    problems, policies, began = 0, Counter[str](), time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        for problem, took, policy in pool.map(partial(played, chosen), seeds):
            policies[policy.rpartition("|")[2]] += 1
            if policies.total() % EVERY == 0:
                print(f"{policies.total()} played, {problems} problems so far", flush=True)
            if problem is not None:
                problems += 1
                print(problem, flush=True)
            if took > SLOW_S:
                print(f"slow: {policy} took {took:.0f} s", flush=True)
    return conclude(
        f"{len(seeds)} scenarios of {len(policies)} policies", "problems", problems, began
    )


def conclude(played: str, what: str, problems: int, began: float) -> int:
    """Print what was played and how many problems there were; the code to exit with."""
    print(f"{played}, {problems} {what}, {time.perf_counter() - began:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
