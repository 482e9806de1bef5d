"""Cost and error of what-ifs about the past: `python -m benchmarks.what_ifs [POLICY ...]`.

A service in virtual time lives through the jobs of `benchmarks.start_ranges`. When all have ended
it is asked, with the defaults of the API, what another policy would have done. A row says how many
jobs were simulated, the CPU time, and the error that the answer states of its own replay.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable

from tests.scenarios.live import run_virtually

from benchmarks.start_ranges import CLUSTER, draw, hide_lengths
from weft.app.insight.history import read_speeds
from weft.app.insight.what_if import MOST_JOBS, Compared, Variant, what_if
from weft.app.serve.live import Live, Settings
from weft.service.routes.cluster.what_if import MOST_CPU_S

POLICIES = ("weft", "las", "srtf", "fifo")
OTHER = "priority|firm|fifo:backfill=true"


def ask_after(policy: str, count: int, load: float, seed: int) -> tuple[Compared, float]:
    """The answer about the whole past of a service, and the CPU seconds that it took."""
    rows, answers = draw(count, load, seed), list[tuple[Compared, float]]()

    async def whole(seconds: Callable[[], float]) -> None:
        engine = f"simulated:cluster={CLUSTER},speed=1"
        live = Live(Settings(engine=engine, policy=policy, decide_in="service"), seconds)
        hide_lengths(live.driver.engine, {job.id: length for job, length in rows})
        await live.open()
        driver, began = live.driver, live.driver.now
        for job, _ in rows:
            await asyncio.sleep(max(began + job.submitted - driver.now, 0.0))
            await driver.submit(job)
        while any(not status.record.outcome for status in driver.jobs()):
            await asyncio.sleep(600.0)
        answers.append(_ask(live))
        await live.close()

    run_virtually(whole)
    return answers[0]


def _ask(live: Live) -> tuple[Compared, float]:
    driver = live.driver
    cluster = driver.scheduler.state.cluster
    variants = {"as decided": Variant(driver.policy, cluster), "other": Variant(OTHER, cluster)}
    records = driver.ledger.jobs.page_reader(MOST_JOBS)()
    began = time.process_time()
    speeds = read_speeds(live.store)
    answer = what_if(records, variants, driver.now, speeds=speeds, cpu_s=MOST_CPU_S)
    return answer, time.process_time() - began


def main() -> int:
    """Print a row for each policy; fail where jobs are left out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.what_ifs")
    parser.add_argument("policies", nargs="*", default=POLICIES)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| policy | jobs | simulated | CPU s | note |")
    print("|---|--:|--:|--:|---|")
    fewest = asked.jobs
    for policy in asked.policies:
        answer, cpu_s = ask_after(policy, asked.jobs, asked.load, asked.seed)
        fewest = min(fewest, answer.jobs)
        row = f"{policy} | {asked.jobs} | {answer.jobs} | {cpu_s:.1f}"
        print(f"| {row} | {answer.note} |", flush=True)
    return 0 if fewest == asked.jobs else 1


if __name__ == "__main__":
    sys.exit(main())
