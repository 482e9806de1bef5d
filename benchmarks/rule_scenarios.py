"""Drawn rules of tenants against a plain model of what they promise.

    python -m benchmarks.rule_scenarios [--count 2000] [--first 0] [--processes 2] [POLICY ...]

Each combination of limits, owned GPUs, groups, weights, priorities, reservations and drained GPUs
is drawn from its number, with jobs that come and go and rules that change. Prints every broken
promise with the number that plays it again, and ends with 1 if there was any.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.scenarios.rules_play import POLICIES, RuleViolation, draw, play

from benchmarks.live_scenarios import conclude, read_command

EVERY = 500


def played(policies: tuple[str, ...], seed: int) -> RuleViolation | None:
    """What went wrong in one scenario."""
    return play(draw(seed, policies))


def main() -> int:
    """Play them all."""
    policies, seeds, processes = read_command("rule_scenarios", 2000)
    problems, began = 0, time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        results = pool.map(partial(played, policies or POLICIES), seeds, chunksize=20)
        for number, problem in enumerate(results, start=1):
            if problem is not None:
                problems += 1
                print(problem, flush=True)
            if number % EVERY == 0:
                print(f"{number} played, {problems} broken promises so far", flush=True)
    return conclude(f"{len(seeds)} combinations of rules", "broken promises", problems, began)


if __name__ == "__main__":
    sys.exit(main())
