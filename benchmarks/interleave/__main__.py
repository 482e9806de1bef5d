"""Four jobs with different bottlenecks on one GPU, by who may use what when.

    python -m benchmarks.interleave [--seconds S] [--ways WAY ...] [--out FILE]

Jobs read files, decode, copy from pinned memory or compute for most of a step, and a little of the
rest. They are run one at a time; side by side under the driver's time slices and under MPS; taking
turns of a second; and through a service with policy `muri`, in lock step and work-conserving: with
`weft_train`, which asks for stage tokens, and unmodified, grouped by the stages that were measured
in a first run of each. Work is the sum of the jobs' speeds as parts of those alone, while all four
run: 1 is what turns give. Final losses must be those of the jobs alone. Without a GPU everything is
small and the device is a core: that tries the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.any_job.kinds import read_loss, read_steps
from benchmarks.any_job.ways import call, plain_environment, read_log, service, wait_for
from weft.engines.machine.mps import Mps

HERE = Path(__file__).resolve().parent / "scripts"
KINDS = ("storage", "decode", "copy", "compute")
LONG_S, SHORT_S = 0.048, 0.004  # of a step on a job's bottleneck, and on each of the others
CPU_ENGINE, GPU_ENGINE = "local:slots=1,cpu=true,pin=false", "local:mps=true"


class Ran(NamedTuple):
    """One job: when it ended after all began, and what it printed."""

    ended: float
    text: str


Runs = dict[str, Ran]


class Mix:
    """The four jobs on this machine."""

    def __init__(self, folder: Path, seconds: float) -> None:
        timing = subprocess.run(
            [sys.executable, str(HERE / "work.py"), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        self.folder = folder
        self.unit_s: dict[str, float] = json.loads(timing.stdout)
        self.steps = max(20, round(seconds / (LONG_S + 3 * SHORT_S)))
        self.gpu = shutil.which("nvidia-smi") is not None

    def units(self, kind: str) -> dict[str, int]:
        """How much of each a step of a kind does."""
        return {
            stage: max(1, round((LONG_S if stage == kind else SHORT_S) / self.unit_s[stage]))
            for stage in KINDS
        }

    def variables(self, kind: str) -> dict[str, str]:
        """What tells a script its work."""
        units = {f"UNITS_{stage.upper()}": str(n) for stage, n in self.units(kind).items()}
        return {**units, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}

    def command(self, script: str, kind: str) -> list[str]:
        """As its owner would type it."""
        return [sys.executable, str(HERE / script), kind, str(self.steps), str(self.folder)]

    def hints(self, kind: str) -> dict[str, float]:
        """The stages of a step in the order they come, for jobs that tell."""
        stages = {stage: n * self.unit_s[stage] for stage, n in self.units(kind).items()}
        seconds = {f"stage{at}_s": stages[stage] for at, stage in enumerate(KINDS)}
        return {**seconds, "iteration_s": sum(stages.values()), "gmem_mib": 4000.0}


def run_alone(mix: Mix) -> Runs:
    """One after the other, without gaps."""
    runs, ended = Runs(), 0.0
    for kind in KINDS:
        ran = run_at_once(mix, "plain.py", {}, [kind])[kind]
        ended += ran.ended
        runs[kind] = Ran(ended, ran.text)
    return runs


def run_at_once(
    mix: Mix, script: str, extra: dict[str, str], kinds: list[str] | None = None
) -> Runs:
    """All started together, by nobody in particular."""
    with tempfile.TemporaryDirectory() as logs:
        began, running = time.time(), dict[str, subprocess.Popen[bytes]]()
        for at, kind in enumerate(kinds or KINDS):
            env = {**plain_environment(), **mix.variables(kind), **extra, "WEFT_JOB": kind}
            env["WEFT_PHASE"] = str(at / len(KINDS))
            with Path(logs, kind).open("wb") as out:
                running[kind] = subprocess.Popen(
                    mix.command(script, kind), stdout=out, stderr=subprocess.STDOUT, env=env
                )
        runs = Runs()
        while len(runs) < len(running):
            for kind, process in running.items():
                if kind not in runs and process.poll() is not None:
                    runs[kind] = Ran(time.time() - began, Path(logs, kind).read_text())
            time.sleep(0.02)
        return runs


def run_under_mps(mix: Mix) -> Runs:
    """The same as clients of one daemon."""
    mps = Mps(mix.folder)
    try:
        return run_at_once(mix, "plain.py", mps.env())
    finally:
        mps.end()


def run_in_turns(mix: Mix) -> Runs:
    """Each has the device for a second, then the next: tokens of a coordinator."""
    with coordinate("timeslice:quantum_s=1") as socket:
        return run_at_once(mix, "told.py", {"WEFT_COORDINATOR": socket})


@contextmanager
def coordinate(discipline: str) -> Iterator[str]:
    """A coordinator of stage tokens; where it listens."""
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as folder:
        path = Path(folder, "tokens")
        command = [sys.executable, "-m", "weft.node.tokens", str(path)]
        process = subprocess.Popen([*command, "--discipline", discipline])
        try:
            while not path.exists():
                time.sleep(0.01)
            yield str(path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)


def run_by_muri(mix: Mix, script: str, discipline: str) -> Runs:
    """Through a service, jobs that tell their stages."""
    with muri(mix, discipline) as port:
        return run_all(port, mix, script)


def run_unknown(mix: Mix) -> tuple[Runs, Runs]:
    """Unmodified jobs one at a time, and then together: they are known by then."""
    with muri(mix, "work-conserving") as port:
        alone, ended = Runs(), 0.0
        for kind in KINDS:
            ran = run_all(port, mix, "plain.py", [kind])[kind]
            ended += ran.ended
            alone[kind] = Ran(ended, ran.text)
        return alone, run_all(port, mix, "plain.py")


@contextmanager
def muri(mix: Mix, discipline: str) -> Iterator[int]:
    """A service; its port."""
    engine = GPU_ENGINE if mix.gpu else CPU_ENGINE
    policy = f"muri:known=false,discipline={discipline}"
    with service(["--engine", engine, "--policy", policy]) as port:
        yield port


def run_all(port: int, mix: Mix, script: str, kinds: Sequence[str] = KINDS) -> Runs:
    """Submit these at once and wait for all of them."""
    began = time.time()
    names = {kind: submit(port, mix, script, kind) for kind in kinds}
    wait_for(port, [*names.values()], limit_s=300.0)
    runs = Runs()
    for kind, name in names.items():
        answer = call(port, f"/jobs/{name}")
        runs[kind] = Ran((answer["ended"] or time.time()) - began, read_log(port, name))
    return runs


def submit(port: int, mix: Mix, script: str, kind: str) -> str:
    """A job that tells its stages, or one that tells nothing."""
    body: dict[str, Any] = {
        "command": mix.command(script, kind),
        "workdir": str(HERE),
        "gpus": 1,
        "env": mix.variables(kind),
        "preemptible": True,
    }
    if script == "told.py":
        body["hints"] = mix.hints(kind)
    return str(call(port, "/jobs", body)["id"])


WAYS: dict[str, Callable[[Mix], Runs]] = {
    "one at a time": run_alone,
    "time slices": lambda mix: run_at_once(mix, "plain.py", {}),
    "MPS": run_under_mps,
    "turns": run_in_turns,
    "lock step": lambda mix: run_by_muri(mix, "told.py", "lockstep"),
    "work-conserving": lambda mix: run_by_muri(mix, "told.py", "work-conserving"),
    "unmodified": lambda mix: run_unknown(mix)[1],
}


def summarise(runs: Runs, alone: Runs) -> dict[str, Any]:
    """Completion, makespan, work while all ran, and whether the losses are right."""
    points = {kind: read_steps(ran.text) for kind, ran in runs.items()}
    short = [kind for kind, seen in points.items() if len(seen) < 2]
    if short:
        raise RuntimeError(f"{short[0]} did not train:\n{runs[short[0]].text[-2000:]}")
    began = max(seen[0][0] for seen in points.values())
    ended = min(seen[-1][0] for seen in points.values())
    speeds = {kind: speed(alone[kind].text) for kind in runs}
    parts = {
        kind: (steps_at(seen, ended) - steps_at(seen, began)) / (ended - began) / speeds[kind]
        if ended > began
        else 0.0
        for kind, seen in points.items()
    }
    return {
        "average_s": round(statistics.mean(ran.ended for ran in runs.values()), 2),
        "makespan_s": round(max(ran.ended for ran in runs.values()), 2),
        "work": round(sum(parts.values()), 3) if ended > began else 1.0,
        "together_s": round(max(ended - began, 0.0), 2),
        "speeds": {kind: round(part, 3) for kind, part in parts.items()},
        "losses_equal": all(
            read_loss(ran.text) == read_loss(alone[kind].text) != "" for kind, ran in runs.items()
        ),
    }


def speed(text: str) -> float:
    """Steps a second of a job that printed this, its first moments left out."""
    (began, first), (ended, last) = read_steps(text)[0], read_steps(text)[-1]
    return (last - first) / (ended - began)


def steps_at(points: list[tuple[float, int]], at: float) -> float:
    """Steps by a time, between the points that were printed."""
    before = max((p for p in points if p[0] <= at), default=points[0])
    after = min((p for p in points if p[0] >= at), default=points[-1])
    if after[0] <= before[0]:
        return float(before[1])
    part = (at - before[0]) / (after[0] - before[0])
    return before[1] + part * (after[1] - before[1])


def run(seconds: float, ways: list[str], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All ways; results so far are kept after each."""
    with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
        mix = Mix(Path(folder), seconds)
        results: dict[str, Any] = {"unit_s": mix.unit_s, "steps": mix.steps, "ways": {}}
        done: dict[str, Runs] = {}
        if "unmodified" in ways:
            done["one at a time"], done["unmodified"] = run_unknown(mix)
        else:
            done["one at a time"] = run_alone(mix)
        alone = done["one at a time"]
        for way in ["one at a time", *(way for way in ways if way != "one at a time")]:
            if way == "MPS" and not (mix.gpu and Mps(mix.folder).there):
                continue
            runs = done[way] if way in done else WAYS[way](mix)
            results["ways"][way] = summarise(runs, alone)
            print(way, json.dumps(results["ways"][way]), flush=True)
            keep(results)
    return results


def show(results: dict[str, Any]) -> None:
    """One row per way."""
    table = Table("way", "work", "average, s", "makespan, s", "losses as alone")
    for way, row in results["ways"].items():
        table.add_row(
            way,
            f"{row['work']:.2f}",
            f"{row['average_s']:.1f}",
            f"{row['makespan_s']:.1f}",
            "yes" if row["losses_equal"] else "NO",
        )
    Console(width=100).print(table)


def main() -> int:
    """Run the ways that were named and compare them."""
    parser = argparse.ArgumentParser(description="Four bottlenecks on one GPU.")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a job alone")
    parser.add_argument("--ways", nargs="+", choices=[*WAYS], default=[*WAYS])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()

    def keep(results: dict[str, Any]) -> None:
        if asked.out:
            asked.out.write_text(json.dumps(results, indent=1))

    results = run(asked.seconds, asked.ways, keep)
    show(results)
    return 0 if all(row["losses_equal"] for row in results["ways"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
