"""SIGTERM at random moments: the service ends soon, frees its log, and jobs go on under the next.

    python -m benchmarks.clean_ends slurm|ray|resize|simulated|... [--times 100] [--slow 3]

Every time jobs are submitted, of which some are short, and the service is asked to end a random
moment later. Clients of Slurm take up to `--slow` seconds for an answer; Ray's head stands still
every other time; with `simulated` the log is in PostgreSQL, whose sessions do, and with `resize`
the job that runs through it all is a training that makes room for others or grows again. Fails
unless every end came within 10 s and left the log free, and that job was started once; a simulated
one is started by every service.
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

from benchmarks.live_resize_faults import BEGINS, ChangeLog
from weft.app.state.folder import LOG
from weft.service.responses.answers import Made
from weft.store.sqlite import own
from weft.wire.attempt import EVENTS, folder_of

WITHIN_S = 10.0
AS_A_CRASH = "ending as a crash would"  # what the service logs when it gives up closing
LATEST_S = 6.0  # of the signal, after jobs were submitted
CLIENTS = ("squeue", "sinfo", "sbatch", "scancel", "scontrol")
SIMULATED = "simulated:cluster=2x4:a100,speed=1"
RESIZED = "local:cpu=true,slots=2,pin=false"
RESIZING = "steady:min_run_s=0,margin=0|sia:interval=1"
MOVE_S, SWITCH_S = 60.0, 1.0  # what a move may take to begin, and of it until the signal
THROUGH = "through"
ENDED = ("succeeded", "failed", "cancelled")
Break = Callable[[Random], Callable[[], None]]


def nothing_breaks(_random: Random) -> Callable[[], None]:
    """Nothing to break, and nothing to mend."""
    return lambda: None


def end_often(
    service: Service,
    times: int,
    random: Random,
    break_it: Break,
    through: dict[str, object] | None = None,
) -> list[str]:
    """What went wrong, in lines; `through` is the job that runs through it all, if none sleeps."""
    wrong, took, crashes, log = [], [], 0, service.state / "service.log"
    simulated = SIMULATED in service.options
    service.start()
    service.client.post(Made, "/jobs", through or job(THROUGH, 100_000, service.state))
    for number in range(times):
        for short in range(0 if through else random.randrange(4)):
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
        now = service.job(THROUGH)
        if now.state in ENDED or (now.attempt > 1 and not simulated):
            wrong.append(f"after end {number}: {now.state}, attempt {now.attempt}")
    took.sort()
    print(
        f"{len(took)} ends: median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s, "
        f"{sum(each <= WITHIN_S for each in took)} within {WITHIN_S:g} s, {crashes} "
        "as a crash would"
    )
    service.client.delete(f"/jobs/{THROUGH}")
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

        def mend() -> None:
            for pid in sessions:
                os.kill(pid, signal.SIGCONT)

        return mend

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


def training(state: Path) -> dict[str, object]:
    """A job that trains for ever, and can change its devices meanwhile."""
    steps = state / "steps"
    steps.mkdir(parents=True)
    script = Path(__file__).with_name("live_resize_job.py")
    more = {"env": {"OMP_NUM_THREADS": "1"}, "gpus": {"min": 1, "max": 2}}
    command = [sys.executable, str(script), str(steps), "1", "1000000", "2.0", "cpu"]
    return {**job(THROUGH, 0.0, state), **more, "hints": {}, "command": command}


def moving(service: Service, counted: list[bool]) -> Break:
    """The signal comes in a change of the job; `counted` says for each whether it was so."""

    def break_it(random: Random) -> Callable[[], None]:
        path = folder_of(service.state, THROUGH, 1) / EVENTS
        log, until = ChangeLog(path), time.monotonic() + MOVE_S
        known = len(log.read()) if path.exists() else 0
        guest = job(f"guest-{len(counted)}", random.random() * 8.0, service.state)
        service.client.post(Made, "/jobs", guest)
        while time.monotonic() < until and not (path.exists() and log.read()[known:]):
            time.sleep(0.01)
        time.sleep(random.random() * SWITCH_S)
        counted.append(path.exists() and log.read()[known:][-1:] == [BEGINS])
        return lambda: None

    return break_it


def main() -> None:
    """Exit code 1 with what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["simulated", "resize", *TESTBEDS])
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
    elif given.engine == "resize":
        counted: list[bool] = []
        service = Service(state, ("--engine", RESIZED, "--policy", RESIZING))
        body = training(state)
        wrong = end_often(service, given.times, random, moving(service, counted), body)
        print(f"{sum(counted)} of them came in a change of the job's ranks")
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
