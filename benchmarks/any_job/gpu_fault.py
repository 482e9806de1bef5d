"""A script that ends the GPU's work beside two that did nothing wrong, under MPS on one GPU.

    python -m benchmarks.any_job.gpu_fault [--out FILE]

Under MPS a fatal fault of one client ends all clients. The two must start again without a failure
of their own and end well; the culprit is tried alone, and fails by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.any_job.kinds import SCRIPTS, Job, read_steps
from benchmarks.any_job.ways import call, read_log, service, submit, wait_for

INNOCENT = (Job(0.0, "mlp", 12000), Job(0.0, "transformer", 900))
GOOD_S = 6.0
LIMIT_S = 150.0


def main() -> int:
    """Show what became of each; 0 if only the culprit failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with service(["--engine", "local:mps=true"]) as port:
        names = [submit(port, job.command) for job in INNOCENT]
        wait_for_steps(port, names)
        culprit = submit(port, [sys.executable, str(SCRIPTS / "fault.py"), str(GOOD_S)])
        wait_for(port, [*names, culprit], LIMIT_S)
        result: dict[str, Any] = {name: outcome(port, name) for name in [*names, culprit]}
        result["nodes"] = call(port, "/nodes")
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1))
    for name in [*names, culprit]:
        print(name, json.dumps({**result[name], "events": len(result[name]["events"])}), flush=True)
    spared = all(result[name]["state"] == "succeeded" for name in names)
    return 0 if spared and result[culprit]["state"] == "failed" else 1


def wait_for_steps(port: int, names: list[str]) -> None:
    """Until each has trained a little."""
    until = time.time() + LIMIT_S
    while time.time() < until:
        if all(read_steps(read_log(port, name)) for name in names):
            return
        time.sleep(0.5)
    raise TimeoutError("the jobs did not begin to train")


def outcome(port: int, name: str) -> dict[str, Any]:
    """What the service says of a job, and the end of its log."""
    answer = call(port, f"/jobs/{name}")
    kept = ("state", "reason", "error", "restarts", "attempt", "failures")
    return {
        **{key: answer.get(key) for key in kept},
        "end": read_log(port, name)[-800:],
        "events": call(port, f"/jobs/{name}/events"),
    }


if __name__ == "__main__":
    sys.exit(main())
