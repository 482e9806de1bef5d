"""Unmodified training scripts on one GPU: one at a time, all at once, and through `weft serve`.

    python -m benchmarks.any_job [--mix fitting|crowded|spikes|overcommitted] [--seed N ...]
                                 [--quick] [--cpu] [--out F]
    python -m benchmarks.any_job --short-behind
    python -m benchmarks.any_job.probe        what this machine lets us see and do, in a minute

Scripts are of a dozen kinds (`kinds.py`) and know nothing of Weft; the service is started as it
comes, and told a command and one GPU. A mix is drawn by its seed and arrives over time. `fitting`
mixes fit on the device together; `crowded` ones do not: starting all at once must fail there.
Those of `spikes` and `overcommitted` fit only for a part of the time: there they are also started
all at once with allocations that wait, and nothing else of Weft.
`--cpu` tries the benchmark with tiny networks on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.any_job import short_behind
from benchmarks.any_job.kinds import (
    CROWDED,
    FITTING,
    OVERCOMMITTED,
    SMALL,
    SPIKES,
    Job,
    draw,
    time_steps,
)
from benchmarks.any_job.slowdowns import PROMISE, slowdown, speed_alone
from benchmarks.any_job.ways import (
    LIMIT_S,
    Outcome,
    all_at_once,
    all_waiting,
    by_weft,
    one_at_a_time,
)

MIXES = {"fitting": FITTING, "crowded": CROWDED, "spikes": SPIKES, "overcommitted": OVERCOMMITTED}
CPU_FLAGS = ["--engine", "local:slots=1,cpu=true"]


def main() -> int:
    """Run the mixes and compare the ways."""
    asked = read_arguments()
    flags = [*(CPU_FLAGS if asked.cpu else []), *asked.flag]
    seconds = asked.seconds or (3.0 if asked.cpu else 5.0 if asked.quick else 12.0)
    kinds = ("large-60", "large-90") if asked.short_behind else kinds_of(asked)
    step_s = known_steps(asked.known, kinds) or time_steps(kinds, 3 if asked.quick else 1)
    results: dict[str, Any] = {"step_s": step_s, "seconds": seconds}
    results["speed"] = json.loads(asked.known.read_text()).get("speed", {}) if asked.known else {}

    def keep() -> None:
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))

    if asked.short_behind:
        results["short_behind"] = short_behind.run(
            step_s, seconds=seconds, flags=flags, gpu=not asked.cpu
        )
        Console().print(results["short_behind"])
        keep()
        return 0
    for seed in asked.seed:
        jobs = draw(seed, asked.jobs, kinds, seconds, step_s)
        for number in range(0, asked.jobs, asked.ask) if asked.ask else ():
            jobs[number] = replace(jobs[number], slowdown=PROMISE)
        print(f"mix {asked.mix}, seed {seed}:", [(j.at, j.kind, j.steps) for j in jobs], flush=True)
        by_way = results[f"{asked.mix}-{seed}"] = dict[str, Any]()
        run_mix(jobs, flags, asked.skip, by_way, results, keep, asked.limit_s)
        show(by_way)
    return 0


def known_steps(known: Path | None, kinds: tuple[str, ...]) -> dict[str, float]:
    """From the result of an earlier run on the same machine; empty if it lacks a kind."""
    step_s = json.loads(known.read_text())["step_s"] if known else {}
    return {kind: step_s[kind] for kind in kinds} if set(kinds) <= set(step_s) else {}


def kinds_of(asked: argparse.Namespace) -> tuple[str, ...]:
    """Those of the mix; on a CPU without those whose point is the device's memory."""
    kinds = MIXES[asked.mix]
    return SMALL[:3] if asked.cpu and asked.quick else kinds


def run_mix(
    jobs: list[Job],
    flags: list[str],
    skip: list[str],
    by_way: dict[str, Any],
    results: dict[str, Any],
    keep: Callable[[], None],
    limit_s: float,
) -> None:
    """All ways into `by_way`, kept after each, and what each job lost beside the others."""
    alone: dict[str, float] = results["speed"]
    ways: dict[str, Callable[[], list[Outcome]]] = {
        "alone": lambda: one_at_a_time(jobs),
        "at once": lambda: all_at_once(jobs, limit_s=limit_s),
        "waiting": lambda: all_waiting(jobs, limit_s),
        "weft": lambda: by_weft(jobs, flags, limit_s),
    }
    speeds = [alone[job.kind] for job in jobs] if {job.kind for job in jobs} <= set(alone) else []
    for way, run in ways.items():
        if way in skip:
            continue
        began = time.time()
        outcomes = run()
        if way == "alone":
            speeds = [speed_alone(outcome.text) for outcome in outcomes]
            alone.update((done.job.kind, s) for done, s in zip(outcomes, speeds, strict=True))
        by_way[way] = summarise(outcomes, speeds)
        by_way[way]["took_s"] = round(time.time() - began, 1)
        print(way, json.dumps({k: v for k, v in by_way[way].items() if k != "jobs"}), flush=True)
        keep()


def summarise(outcomes: list[Outcome], speeds: list[float]) -> dict[str, Any]:
    """Completion, makespan, failures, and each job's slowdown."""
    rows = []
    for number, outcome in enumerate(outcomes):
        slow = slowdown(outcome.text, speeds[number]) if number < len(speeds) else None
        rows.append(
            {
                "kind": outcome.job.kind,
                "asked": outcome.job.slowdown,
                "at": outcome.job.at,
                "took_s": round(outcome.took, 2),
                "ok": outcome.ok,
                "restarts": outcome.restarts,
                "slowdown": None if slow is None else round(slow.mean, 3),
                "broken_s": 0.0 if slow is None else round(slow.broken_s, 2),
                "asleep_s": 0.0 if slow is None else round(slow.asleep_s, 2),
                "notes": outcome.notes,
                "end": "" if outcome.ok else outcome.text[-600:],
            }
        )
    slows = [row["slowdown"] for row in rows if row["slowdown"] is not None]
    return {
        "average_s": round(statistics.mean(outcome.took for outcome in outcomes), 2),
        "makespan_s": round(max(outcome.ended for outcome in outcomes), 2),
        "failed": sum(not outcome.ok for outcome in outcomes),
        "restarts": sum(outcome.restarts for outcome in outcomes),
        "out_of_memory": sum(outcome.out_of_memory for outcome in outcomes),
        "mean_slowdown": round(statistics.mean(slows), 3) if slows else None,
        "worst_slowdown": max(slows, default=None),
        "broken_s": round(sum(row["broken_s"] for row in rows), 2),
        "worst_broken_s": max((row["broken_s"] for row in rows), default=0.0),
        "worst_asked_s": max(
            (row["broken_s"] + row["asleep_s"] for row in rows if row["asked"]), default=0.0
        ),
        "jobs": rows,
    }


def show(by_way: dict[str, Any]) -> None:
    """One row per way, with what Weft takes of the others' time."""
    table = Table(
        "way",
        "average, s",
        "makespan, s",
        "failed (memory), restarts",
        "mean slowdown",
        f"beyond {PROMISE}, s",
        "of who asked",
        "weft / this",
    )
    weft = by_way.get("weft", {}).get("average_s")
    for way, row in by_way.items():
        table.add_row(
            way,
            f"{row['average_s']:.1f}",
            f"{row['makespan_s']:.1f}",
            f"{row['failed']} ({row['out_of_memory']}), {row['restarts']}",
            "" if row["mean_slowdown"] is None else f"{row['mean_slowdown']:.2f}",
            f"{row['broken_s']:.1f} (worst {row['worst_broken_s']:.1f})",
            f"worst {row['worst_asked_s']:.1f}",
            f"{weft / row['average_s']:.2f}" if weft else "",
        )
    Console(width=110).print(table)


def read_arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description="Unmodified scripts on one GPU.")
    parser.add_argument("--mix", choices=list(MIXES), default="fitting")
    parser.add_argument("--seed", type=int, nargs="+", default=[11])
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seconds", type=float, help="median length of a job alone")
    parser.add_argument("--quick", action="store_true", help="short jobs: about six minutes")
    parser.add_argument("--cpu", action="store_true", help="tiny networks without a GPU")
    parser.add_argument("--short-behind", action="store_true", help="a short job behind a large")
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=["alone", "at once", "waiting", "weft"]
    )
    parser.add_argument("--flag", action="append", default=[], help="another of `weft serve`")
    parser.add_argument(
        "--ask", type=int, help="one job in so many asks for a slowdown of at most 1.3"
    )
    parser.add_argument("--known", type=Path, help="an earlier result, for its step times")
    parser.add_argument(
        "--limit-s", type=float, default=LIMIT_S, help="seconds after which a way is given up"
    )
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
