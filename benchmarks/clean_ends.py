"""SIGTERM at random moments: the service ends soon, frees its log, and jobs go on under the next.

    python -m benchmarks.clean_ends slurm [--times 100] [--seed 0] [--slow 3]

Every time jobs are submitted, of which some are short, and the service is asked to end a random
moment later. Clients of Slurm take up to `--slow` seconds for an answer; Ray's head stands still
every other time; with `simulated` the log is in PostgreSQL, whose sessions do. Fails unless every
end came within 10 s, left the log free, and the job that runs through it all was started once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.clusters.testbed import TESTBEDS, Testbed
from tests.engines.elastic_scenario import Service
from tests.postgres_server import running_server

from weft.app.state.folder import LOG
from weft.service.responses.answers import Made
from weft.store.sqlite import own

WITHIN_S = 10.0
AS_A_CRASH = "ending as a crash would"  # what the service logs when it gives up closing
LATEST_S = 6.0  # of the signal, after jobs were submitted
CLIENTS = ("squeue", "sinfo", "sbatch", "scancel", "scontrol")
SIMULATED = "simulated:cluster=2x4:a100,speed=1"
Break = Callable[[Random], Callable[[], None]]


def nothing_breaks(_random: Random) -> Callable[[], None]:
    """Nothing to break, and nothing to mend."""
    return lambda: None


def end_often(service: Service, times: int, random: Random, break_it: Break) -> list[str]:
    """What went wrong, in lines."""
    wrong, took, crashes, log = [], [], 0, service.state / "service.log"
    service.start()
    service.client.post(Made, "/jobs", job("through", 100_000, service.state))
    for number in range(times):
        for short in range(random.randrange(4)):
            body = job(f"short-{number}-{short}", random.random() * 3.0, service.state)
            service.client.post(Made, "/jobs", body)
        time.sleep(random.random() * LATEST_S)
        mend = break_it(random)
        began = time.monotonic()
        service.end(signal.SIGTERM)
        took.append(time.monotonic() - began)
        before, crashes = crashes, log.read_text().count(AS_A_CRASH)
        how = ", as a crash would" if crashes > before else ""
        print(f"end {number}: {took[-1]:.2f} s{how}", flush=True)
        mend()
        if took[-1] > WITHIN_S:
            wrong.append(f"end {number} took {took[-1]:.1f} s")
        if (service.state / LOG).exists():
            os.close(own(service.state / LOG))  # InvalidConfig if it is held
        service.start()
        through = service.job("through")
        if through.state not in ("running", "pending") or through.attempt > 1:
            wrong.append(f"after end {number}: {through.state}, attempt {through.attempt}")
    took.sort()
    print(
        f"{len(took)} ends: median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s, "
        f"{sum(each <= WITHIN_S for each in took)} within {WITHIN_S:g} s, {crashes} "
        "as a crash would"
    )
    service.client.delete("/jobs/through")
    service.end()
    return wrong


def job(name: str, seconds: float, state: Path) -> dict[str, object]:
    """A job that sleeps."""
    return {
        "id": name,
        "name": name,
        "command": ["sleep", f"{seconds:.2f}"],
        "workdir": str(state),
        "hints": {"duration_s": seconds},
    }


@contextmanager
def slow_clients(most_s: float) -> Iterator[None]:
    """Slurm's clients take a while for each answer."""
    folder, path = Path(tempfile.mkdtemp(prefix="weft-slow-")), os.environ["PATH"]
    for name in CLIENTS:
        real = shutil.which(name)
        script = folder / name
        seconds = f"$(awk 'BEGIN {{ srand('$$'); print rand() * {most_s} }}')"
        script.write_text(f'#!/bin/sh\nsleep "{seconds}"\nexec {real} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder}:{path}"
    try:
        yield
    finally:
        os.environ["PATH"] = path
        shutil.rmtree(folder)


def hanging(database: str) -> Break:
    """Every other time the server's sessions stand still until the service has ended."""

    def break_it(random: Random) -> Callable[[], None]:
        import psycopg

        if random.random() < 0.5:
            return lambda: None
        with psycopg.connect(database) as session:
            asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'weft'"
            sessions = [pid for (pid,) in session.execute(asked).fetchall()]
        for pid in sessions:
            os.kill(pid, signal.SIGSTOP)
        return lambda: [os.kill(pid, signal.SIGCONT) for pid in sessions] and None

    return break_it


def going_away(bed: Testbed) -> Break:
    """Every other time the controller stands still until the service has ended."""

    def break_it(random: Random) -> Callable[[], None]:
        if random.random() < 0.5:
            return lambda: None
        assert bed.stop_controller is not None and bed.start_controller is not None
        bed.stop_controller()
        return bed.start_controller

    return break_it


def main() -> None:
    """Exit code 1 with what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["simulated", *TESTBEDS])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=3.0)
    given = parser.parse_args()
    random, state = Random(given.seed), Path(tempfile.mkdtemp(prefix="weft-ends-"))
    if given.engine == "simulated":
        with running_server() as make:
            database = make()
            options = ("--engine", SIMULATED, "--policy", "fifo", "--database", database)
            wrong = end_often(Service(state, options), given.times, random, hanging(database))
    else:
        with TESTBEDS[given.engine]() as bed:
            service = Service(state, ("--engine", bed.engine, "--policy", "fifo"))
            if given.engine.startswith("slurm"):
                with slow_clients(given.slow):
                    wrong = end_often(service, given.times, random, nothing_breaks)
            else:
                break_it = going_away(bed) if given.engine == "ray" else nothing_breaks
                wrong = end_often(service, given.times, random, break_it)
    shutil.rmtree(state, ignore_errors=True)
    print("\n".join(wrong) or "every end was clean")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
