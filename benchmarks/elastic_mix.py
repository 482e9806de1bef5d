"""The same twelve elastic trainings on a real service with four CPU slots, policy by policy.

    python -m benchmarks.elastic_mix [POLICY ...] [--jobs N] [--scale S] [--json FILE]

Perceptrons (`elastic_mix_job.py`): six short, four middling and two long ones, that take 1 to 4
slots each, one every two seconds. Who decides in rounds does so every 5 s here.
`--jobs` takes the first N alone, `--scale` multiplies their lengths. A first job that does not
count warms every service up. Completion times are of this machine: compare them in one run.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.any_job.ways import call, wait_ready
from benchmarks.elastic_mix_job import BATCH, MOST
from weft.cli.connect.own_service import free_port

POLICIES = ("weft:wake_s=5", "sia:interval=5", "gandiva", "fifo")
SHORT, MIDDLE, LONG = ("short", 96), ("middle", 288), ("long", 768)  # model and steps
JOBS = (LONG, SHORT, MIDDLE, SHORT, SHORT, MIDDLE, LONG, SHORT, MIDDLE, SHORT, MIDDLE, SHORT)
APART_S, LIMIT_S, LEAVE_S = 2.0, 900.0, 60.0
LOOK_S = 0.5
OVER = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the jobs under a policy; `live` changes are those without a restart.

    `loss` is the mean over jobs, of what each had learnt.
    """

    average_s: float
    makespan_s: float
    restarts: int
    live: int
    loss: float


def main() -> int:
    """Run the policies that were named and compare them with the last; 1 if one of them failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic_mix", description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--jobs", type=int, default=len(JOBS), help="only the first so many")
    parser.add_argument("--scale", type=float, default=1.0, help="how much longer they train")
    parser.add_argument("--json", type=Path, default=None, help="write the numbers here too")
    asked = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for policy in asked.policies:
        began = time.monotonic()
        try:
            outcomes[policy] = run(policy, JOBS[: asked.jobs], asked.scale)
        except (OSError, RuntimeError) as error:
            print(f"{policy}: {error}", flush=True)
            continue
        print(f"{policy}: {outcomes[policy]}, {time.monotonic() - began:.0f} s in all", flush=True)
    if outcomes:
        show(outcomes)
    if asked.json is not None:
        asked.json.write_text(
            json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()})
        )
    return int(len(outcomes) < len(asked.policies))


def show(outcomes: dict[str, Outcome]) -> None:
    """A row a policy; ratios are to the last one."""
    table = Table("policy", "average completion", "makespan", "loss", "restarts", "live changes")
    last = [*outcomes.values()][-1]
    for policy, outcome in outcomes.items():
        table.add_row(
            policy,
            f"{outcome.average_s:.1f} s ({outcome.average_s / last.average_s:.2f})",
            f"{outcome.makespan_s:.1f} s ({outcome.makespan_s / last.makespan_s:.2f})",
            f"{outcome.loss:.3f} ({outcome.loss / last.loss:.2f})",
            str(outcome.restarts),
            str(outcome.live),
        )
    Console(width=110).print(table)


def run(policy: str, jobs: tuple[tuple[str, int], ...], scale: float) -> Outcome:
    """One service, its jobs, and what became of them."""
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        state, log = Path(folder) / "state", Path(folder) / "service.log"
        command = [sys.executable, "-m", "weft", "serve", "--slots", "4", "--policy", policy]
        command += ["--state", str(state), "--port", str(port)]
        with log.open("w") as out:
            service = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_ready(port, service, log)
            wait(port, [submit(port, "warm-up", 1, Path(folder) / "warm-up")])
            return watch(port, jobs, scale, Path(folder))
        finally:
            end(port, service)


def watch(port: int, jobs: tuple[tuple[str, int], ...], scale: float, folder: Path) -> Outcome:
    """Submit one after the other, and wait for the end of all."""
    state, ids, losses = folder / "state", [], []
    before = count_live(state)
    for number, (model, steps) in enumerate(jobs):
        losses.append(folder / f"loss-{number}")
        ids.append(submit(port, model, max(int(scale * steps), 1), losses[-1]))
        time.sleep(APART_S)
    ended = wait(port, ids)
    return Outcome(
        average_s=statistics.mean(job["ended"] - job["submitted"] for job in ended),
        makespan_s=max(j["ended"] for j in ended) - min(j["submitted"] for j in ended),
        restarts=sum(job["restarts"] for job in ended),
        live=count_live(state) - before,
        loss=statistics.mean(float(path.read_text()) for path in losses),
    )


def wait(port: int, ids: list[str]) -> list[Any]:
    """What became of these jobs once all of them have succeeded."""
    until = time.monotonic() + LIMIT_S
    while True:
        jobs = [call(port, f"/jobs/{name}") for name in ids]
        left = [job["id"] for job in jobs if job["state"] not in OVER]
        if not left:
            break
        if time.monotonic() > until:
            raise RuntimeError(f"{', '.join(left)} did not end in {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)
    if bad := [f"{job['id']}: {job['reason']}" for job in jobs if job["state"] != "succeeded"]:
        raise RuntimeError("; ".join(bad))
    return jobs


def submit(port: int, model: str, steps: int, loss: Path) -> str:
    """One training, and where its loss goes; its id."""
    body: dict[str, Any] = {
        "name": model,
        "command": [sys.executable, "elastic_mix_job.py", str(steps), str(loss)],
        "workdir": str(Path(__file__).parent),
        "gpus": {"min": 1, "max": 4},
        "batch": {"init": BATCH, "max": MOST, "max_per_gpu": MOST},
        "model": f"perceptron-{model}",
    }
    return str(call(port, "/jobs", body)["id"])


def count_live(state: Path) -> int:
    """Changes of devices that jobs made as they trained."""
    logs = (state / "jobs").glob("*/*/events.jsonl")
    return sum(log.read_text().count('"event":"resized"') for log in logs)


def end(port: int, service: subprocess.Popen[bytes]) -> None:
    """Nothing is left behind: jobs outlive a service that is only ended."""
    try:
        left = [job["id"] for job in call(port, "/jobs?limit=100")["jobs"]]
        left = [name for name in left if call(port, f"/jobs/{name}")["state"] not in OVER]
        for name in left:
            cancel(port, name)
        until = time.monotonic() + LEAVE_S
        while left and time.monotonic() < until:
            time.sleep(LOOK_S)
            left = [name for name in left if call(port, f"/jobs/{name}")["state"] not in OVER]
    except OSError as error:
        print(f"the service does not answer any more: {error}", flush=True)
    service.send_signal(signal.SIGTERM)
    service.wait(timeout=LEAVE_S)


def cancel(port: int, name: str) -> None:
    """End a job."""
    url = f"http://127.0.0.1:{port}/api/v1/jobs/{name}"
    urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=30).close()


if __name__ == "__main__":
    sys.exit(main())
