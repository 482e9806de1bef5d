"""Many short jobs through a real service on a throw-away cluster whose controller is restarted.

    python -m benchmarks.engine_soak kubernetes [--jobs 200] [--away 5]

A third of the jobs has two devices, every tenth is a gang over two nodes where there are two,
the last fifth are one array. When a third of them has
ended the controller is killed, left away for a while and started again; after two thirds the
service itself is killed and started again. Fails unless every job succeeded and ran to its end
exactly once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.clusters.testbed import TESTBEDS, Testbed
from tests.engines.elastic_scenario import Service

from weft.cli.connect.client import every_job
from weft.service.responses.answers import JobAnswer, Made, Nodes

LIMIT_S = 3600.0
ENDED = ("succeeded", "failed", "cancelled")


def soak(bed: Testbed, state: Path, count: int, away_s: float) -> list[str]:
    """What went wrong, in lines; nothing if every job was run once and none was lost."""
    service = Service(state, ("--engine", bed.engine, "--policy", "fifo"))
    service.start()
    began = time.monotonic()
    try:
        names = {n: f"soak-{n}" for n in range(count - count // 5)}
        gangs = len(service.client.get(Nodes, "/nodes").nodes) > 1
        for number in names:
            service.client.post(Made, "/jobs", job_of(number, state, gangs=gangs))
        rest = range(len(names), count)
        names |= zip(
            rest, service.client.post(Made, "/jobs", array_of(rest, state)).jobs, strict=True
        )
        restart_controller(service, bed, count, away_s)
        wait_for(lambda: ended(service) >= 2 * count // 3)
        service.end(signal.SIGKILL)
        service.start()
        wait_for(lambda: ended(service) >= count)
        jobs = {job.id: job for job in every_job(service.client)}
    finally:
        service.end()
    print(f"{count} jobs in {time.monotonic() - began:.0f} s; attempts: {attempts_of(jobs)}")
    return complaints(jobs, names, state)


def restart_controller(service: Service, bed: Testbed, count: int, away_s: float) -> None:
    """Kill it in the middle, and wait until the service has heard from it again."""
    if bed.stop_controller is None or bed.start_controller is None:
        return
    wait_for(lambda: ended(service) >= count // 3)
    print(f"the controller is killed after {ended(service)} jobs", flush=True)
    bed.stop_controller()
    time.sleep(away_s)
    bed.start_controller()
    print(f"it is back; {ended(service)} jobs have ended", flush=True)


def job_of(number: int | str, state: Path, *, gangs: bool = False) -> dict[str, object]:
    """A job that leaves a mark when it begins and when it has come to its end."""
    marks = state / "marks"
    marks.mkdir(exist_ok=True)
    file = marks / f"{number}"
    text = f"echo begin $WEFT_ATTEMPT >>{file}; sleep 0.5; echo end $WEFT_ATTEMPT >>{file}"
    nth = number if isinstance(number, int) else 1
    gang = {"nodes": 2} if gangs and nth % 10 == 0 else {}
    return {
        "id": f"soak-{number}",
        "command": ["sh", "-c", f'[ "${{RANK:-0}}" != 0 ] || {{ {text}; }}'],
        "processes": 1,
        "workdir": str(state),
        "gpus": 2 if gang or nth % 3 == 0 else 1,
        **gang,
    }


def array_of(numbers: range, state: Path) -> dict[str, object]:
    """The same, of one device each, as an array."""
    sweep = {"list": [{"number": number} for number in numbers]}
    return {**job_of("${number}", state), "id": "soak-array", "sweep": sweep, "gpus": 1}


def ended(service: Service) -> int:
    return sum(job.state in ENDED for job in every_job(service.client))


def attempts_of(jobs: dict[str, JobAnswer]) -> str:
    """How many jobs took how many attempts."""
    counted = Counter(job.attempt for job in jobs.values())
    return ", ".join(f"{times} x {attempts}" for attempts, times in sorted(counted.items()))


def complaints(jobs: dict[str, JobAnswer], names: dict[int, str], state: Path) -> list[str]:
    """Jobs that are not there, did not succeed, or came to their end other than once."""
    wrong = []
    for number, name in names.items():
        job = jobs.get(name)
        if job is None:
            wrong.append(f"{name} is not there")
        elif job.state != "succeeded":
            wrong.append(f"{job.id} is {job.state}: {job.reason}")
        file = state / "marks" / f"{number}"
        ends = file.read_text().count("end") if file.exists() else 0
        if ends != 1:
            wrong.append(f"{name} came to its end {ends} times")
    return wrong


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.5)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("engine", choices=sorted(TESTBEDS))
    parse.add_argument("--jobs", type=int, default=200)
    parse.add_argument("--away", type=float, default=5.0, help="seconds without a controller")
    options = parse.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clusters are torn down all the same
    with (
        tempfile.TemporaryDirectory(prefix="weft-soak-") as folder,
        TESTBEDS[options.engine]() as bed,
    ):
        wrong = soak(bed, Path(folder) / "state", options.jobs, options.away)
    print("\n".join(wrong) or "none lost, none run twice")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
