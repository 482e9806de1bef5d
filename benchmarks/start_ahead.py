"""The gap between two jobs of one GPU, with the second started before its turn and without.

    python -m benchmarks.start_ahead [--kind transformer] [--cpu] [--out FILE]

Unmodified scripts through a service with policy `fifo`. The program is run once before, so that its
memory is known. The gap is from the last step of one job to the next one's next step.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.any_job.kinds import Job, read_loss, read_steps, time_step
from benchmarks.any_job.ways import call, read_log, service, submit, wait_for

SECONDS = {"seen": 4.0, "first": 12.0, "second": 3.0}
CPU_ENGINE = "local:slots=1,cpu=true,slot_gb=8,pin=false"


def run(kind: str, step_s: float, flags: list[str], *, gb: float) -> dict[str, Any]:
    """One service, three jobs of one program."""
    with service(["--policy", "fifo", *flags]) as port:
        names: dict[str, str] = {}
        for name, seconds in SECONDS.items():
            command = Job(0.0, kind, max(20, round(seconds / step_s))).command
            names[name] = submit_with(port, command, gb)
            if name == "seen":
                wait_for(port, [names[name]])
        wait_for(port, [*names.values()])
        logs = {name: read_log(port, job) for name, job in names.items()}
        answer = call(port, f"/jobs/{names['second']}")
    last = read_steps(logs["first"])[-1][0]
    following = [at for at, _ in read_steps(logs["second"]) if at > last]
    return {
        "gap_s": round(following[0] - last, 3),
        "gpu_s": round(answer["gpu_seconds"], 2),
        "ended": bool(read_loss(logs["second"])),
    }


def submit_with(port: int, command: list[str], gb: float) -> str:
    """Told nothing but the command, or its memory too where the device's is not measured."""
    if not gb:
        return submit(port, command)
    body = {"command": command, "workdir": str(Path.cwd()), "gpus": 1, "share": {"memory_gb": gb}}
    return str(call(port, "/jobs", body)["id"])


def main() -> int:
    """Print both gaps and their ratio; fail where starting ahead does not halve it."""
    parser = argparse.ArgumentParser(description="Start-ups overlap.")
    parser.add_argument("--kind", default="transformer")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    engine = ["--engine", CPU_ENGINE] if asked.cpu else []
    step_s, gb = time_step(asked.kind), 1.0 if asked.cpu else 0.0
    gaps = {
        "in turn": run(asked.kind, step_s, [*engine, "--no-start-ahead"], gb=gb),
        "ahead": run(asked.kind, step_s, engine, gb=gb),
    }
    ratio = gaps["ahead"]["gap_s"] / gaps["in turn"]["gap_s"]
    print(json.dumps(gaps), f"gap ahead / in turn: {ratio:.2f}")
    if asked.out:
        asked.out.write_text(json.dumps({**gaps, "ratio": ratio}, indent=1))
    return 0 if ratio < 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
