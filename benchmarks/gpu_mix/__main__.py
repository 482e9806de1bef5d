"""Average completion time and makespan of a mix of real training jobs on one GPU.

    python -m benchmarks.gpu_mix [one-at-a-time] [timeslicing] [mps] [--out FILE] [--seconds S]

Each way starts a real service on the local engine, submits the same twelve jobs (vision, language,
recurrent, recommendation; small and large) at once through its API and waits for the last to end.
`--seconds` is how long each job would train alone. On a machine without a GPU the jobs are tiny and
the slots are CPUs: that tries the benchmark, not the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
# Model, batch size, and milliseconds of a step alone on an H200.
JOBS = (
    ("resnet18-cifar", 512, 10.2),
    ("bert-base", 8, 37.7),
    ("resnet50", 32, 23.8),
    ("dlrm", 2048, 6.8),
    ("gpt2", 4, 38.2),
    ("lstm", 16, 164.8),
    ("mobilenet_v3", 64, 33.4),
    ("resnet50", 128, 56.7),
    ("vit_b_16", 32, 35.1),
    ("bert-base", 32, 35.2),
    ("dlrm", 8192, 9.7),
    ("resnet18-cifar", 128, 9.8),
)
WAYS = {
    "one-at-a-time": ("local:mps=false", "fifo"),
    "timeslicing": ("local:mps=false", "iadeep:tune=false,residents=4"),
    "mps": ("local:mps=true", "iadeep:tune=false,residents=4"),
}
LIMIT_S = 900.0


def main() -> int:
    """Run the ways that were named and compare them."""
    parser = argparse.ArgumentParser(description="Real jobs on one GPU, shared or not.")
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], default=list(WAYS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    results = {way: run(way, asked.seconds) for way in asked.ways or WAYS}
    show(results)
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1))
    return 0


def run(way: str, seconds: float) -> dict[str, Any]:
    """One service, twelve jobs, and what became of them."""
    engine, policy = WAYS[way]
    port = free_port()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "service.log"
        command = [sys.executable, "-m", "weft", "serve", "--engine", engine, "--policy", policy]
        command += ["--state", f"{folder}/state", "--port", str(port)]
        with log.open("w") as out:
            service = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_ready(port, service, log)
            return watched(way, port, seconds)
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(timeout=60)


def watched(way: str, port: int, seconds: float) -> dict[str, Any]:
    """Submit everything, wait for the end, and count from the first submission."""
    began = time.time()
    ids = [submit(port, *job, seconds) for job in JOBS]
    while True:
        jobs = [call(port, f"/jobs/{name}") for name in ids]
        over = [j for j in jobs if j["state"] in ("succeeded", "failed", "cancelled")]
        if len(over) == len(jobs):
            break
        if time.time() - began > LIMIT_S:
            raise TimeoutError(f"{way}: {len(jobs) - len(over)} jobs did not end")
        time.sleep(1.0)
    bad = [j["id"] for j in jobs if j["state"] != "succeeded"]
    if bad:
        print(call(port, f"/jobs/{bad[0]}/logs?rank=0", text=True)[-3000:])
        raise RuntimeError(f"{way}: {', '.join(bad)} failed")
    took = [j["ended"] - j["submitted"] for j in jobs]
    return {
        "average_s": statistics.mean(took),
        "makespan_s": max(j["ended"] for j in jobs) - min(j["submitted"] for j in jobs),
        "jobs": [
            {"job": f"{model}:{batch}", "waited_s": j["started"] - j["submitted"], "took_s": t}
            for (model, batch, _), j, t in zip(JOBS, jobs, took, strict=True)
        ],
    }


def submit(port: int, model: str, batch: int, step_ms: float, seconds: float) -> str:
    steps = max(1, round(1000.0 * seconds / step_ms))
    body = {
        "name": f"{model}-{batch}".replace("_", "-"),
        "command": [sys.executable, str(HERE / "job.py"), model, str(batch), str(steps)],
        "workdir": str(HERE),
        "gpus": 1,
        "share": "allowed",
        "model": model,
        "hints": {"batch": batch},
        "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    }
    return str(call(port, "/jobs", body)["id"])


def call(port: int, path: str, body: Any = None, *, text: bool = False) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read().decode()
    return content if text else json.loads(content)


def wait_ready(port: int, service: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if service.poll() is not None:
            raise RuntimeError(f"the service did not start:\n{log.read_text()[-3000:]}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError("the service does not answer")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def show(results: dict[str, dict[str, Any]]) -> None:
    table = Table("way", "average completion, s", "makespan, s", "average over first")
    first = next(iter(results.values()))["average_s"]
    for way, found in results.items():
        table.add_row(
            way,
            f"{found['average_s']:.1f}",
            f"{found['makespan_s']:.1f}",
            f"{found['average_s'] / first:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
