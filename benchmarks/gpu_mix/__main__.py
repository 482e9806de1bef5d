"""Average completion time and makespan of a mix of real training jobs on one GPU.

    python -m benchmarks.gpu_mix [WAY ...] [--jobs N] [--seconds S] [--out FILE]

Each way starts a real service on the local engine, submits the same jobs (vision, language,
recurrent, recommendation; small and large) at once through its API and waits for the last to end.
`iadeep` looks for batch sizes as jobs run, and what it found is printed; `unmodified` jobs are
plain scripts that say nothing, each seen once before. `--seconds` is how long each job would train
alone. On a machine without a GPU the jobs are tiny and the slots are CPUs: that tries the
benchmark, not the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.any_job.ways import ENDED, call, service, wait_for

HERE = Path(__file__).resolve().parent
# Model, batch size, and milliseconds of a step alone on an H200.
JOBS = (
    ("resnet18-cifar", 512, 10.2), ("bert-base", 8, 37.7), ("resnet50", 32, 23.8),
    ("dlrm", 2048, 6.8), ("gpt2", 4, 38.2), ("lstm", 16, 164.8), ("mobilenet_v3", 64, 33.4),
    ("resnet50", 128, 56.7), ("vit_b_16", 32, 35.1), ("bert-base", 32, 35.2), ("dlrm", 8192, 9.7),
    ("resnet18-cifar", 128, 9.8),
)  # fmt: skip


class Way(NamedTuple):
    """An engine and a policy; whether batches may change, scripts are plain, jobs have tiers."""

    engine: str
    policy: str
    batches: bool = False
    plain: bool = False
    tiers: bool = False


TUNED = "iadeep:residents=4,probe_s=1.5"
WAYS = {
    "one-at-a-time": Way("local:mps=false", "fifo"),
    "timeslicing": Way("local:mps=false", "iadeep:tune=false,residents=4"),
    "mps": Way("local:mps=true", "iadeep:tune=false,residents=4"),
    "antman": Way("local:mps=true", "antman", tiers=True),
    "iadeep": Way("local:mps=true", TUNED, batches=True),
    "unmodified": Way("local:mps=false", TUNED, plain=True),
}
LARGER = 2  # times its first batch that a job may train on
SEEN_S = 3.0  # of a plain script that is run for the first time
LIMIT_S = 900.0


def main() -> int:
    """Run the ways that were named and compare them."""
    parser = argparse.ArgumentParser(description="Real jobs on one GPU, shared or not.")
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], default=list(WAYS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=len(JOBS))
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    jobs = JOBS[: asked.jobs]
    results: dict[str, Any] = {}
    for way in asked.ways or WAYS:
        results[way] = run(WAYS[way], jobs, asked.seconds)
        print(way, json.dumps(results[way]), flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))
    show(results)
    return 0


Spec = tuple[str, int, float]


def run(way: Way, jobs: Sequence[Spec], seconds: float) -> dict[str, Any]:
    """One service, the jobs, and what became of them."""
    engine = f"{way.engine},slots=1"  # where there is no GPU
    with service(["--engine", engine, "--policy", way.policy]) as port:
        if way.plain:
            for job in jobs:
                wait_for(port, [submit(port, way, job, SEEN_S)])
        began = time.time()
        ids = [submit(port, way, job, seconds, at) for at, job in enumerate(jobs)]
        reasons = watch(port, ids, began + LIMIT_S)
        ended = [call(port, f"/jobs/{name}") for name in ids]
        bad = [job["id"] for job in ended if job["state"] != "succeeded"]
        if bad:
            print(call(port, f"/jobs/{bad[0]}/logs?rank=0", text=True)[-3000:])
            raise RuntimeError(f"{way}: {', '.join(bad)} failed")
    took = [job["ended"] - job["submitted"] for job in ended]
    return {
        "average_s": round(statistics.mean(took), 2),
        "makespan_s": round(max(j["ended"] for j in ended) - ended[0]["submitted"], 2),
        "search": reasons,
        "jobs": [
            {
                "job": f"{model}:{batch}",
                "waited_s": round(job["started"] - job["submitted"], 2),
                "took_s": round(t, 2),
            }
            for (model, batch, _), job, t in zip(jobs, ended, took, strict=True)
        ],
    }


def watch(port: int, ids: list[str], until: float) -> dict[str, list[str]]:
    """What was said of searches for batch sizes, by job, until all have ended."""
    reasons: dict[str, list[str]] = {}
    while time.time() < until:
        jobs = [call(port, f"/jobs/{name}") for name in ids]
        for job in jobs:
            text = str(job.get("reason") or "")
            lines = reasons.setdefault(job["id"], [])
            if text.startswith("batch ") and text not in lines:
                lines.append(text)
        if all(job["state"] in ENDED for job in jobs):
            return reasons
        time.sleep(0.5)
    raise TimeoutError(f"of {len(ids)} jobs some did not end")


def submit(port: int, way: Way, job: Spec, seconds: float, at: int = 0) -> str:
    """One job, as the way has them."""
    model, batch, step_ms = job
    steps = max(1, round(1000.0 * seconds / step_ms))
    script = "plain_job.py" if way.plain else "job.py"
    command = [sys.executable, str(HERE / script), model, str(batch), str(steps)]
    body: dict[str, Any] = {
        "name": f"{model}-{batch}".replace("_", "-"),
        "command": [*command, str(LARGER * batch)] if way.batches else command,
        "workdir": str(HERE),
        "gpus": 1,
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }
    if not way.plain:
        body |= {"share": "allowed", "model": model, "hints": {"batch": batch}}
    if way.batches:
        body["batch"] = {"init": batch, "max": LARGER * batch}
    if way.tiers and at % 2:
        body["priority"] = "opportunistic"
    return str(call(port, "/jobs", body)["id"])


def show(results: dict[str, dict[str, Any]]) -> None:
    table = Table("way", "average completion, s", "makespan, s", "average over first")
    first = next(iter(results.values()))["average_s"]
    for way, result in results.items():
        table.add_row(
            way,
            f"{result['average_s']:.1f}",
            f"{result['makespan_s']:.1f}",
            f"{result['average_s'] / first:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
