"""Arena's simulator as its artifact has it, under FCFS: `python -m ...arena_artifact [TRACE]`.

What its authors' code does is done: rounds of 300 s at whose ends alone jobs end, times from the
round in which a job came, a start on four GPUs or more that costs a round, jobs that do not run as
asked for dropped, and a mean of those alone that ended within `--rounds`. FCFS is the one policy
that the authors' code was run with here; Arena's own search is not played again. `--out FILE`
writes what `weft verify` reads. Data: shared/data/arena.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TextIO

from benchmarks.measure import need_data
from benchmarks.papers.plans.arena_data import (
    FEWER,
    LARGER,
    LONGEST_S,
    PER_NODE,
    SIZES,
    cluster,
    read_profiled,
)

ROUND_S, ROUNDS, DIGITS = 300, 2000, 3
TUNE_S, MOST_TUNE_S = 150, 600  # for each GPU of a start, and at most


@dataclass(eq=False)
class Task:
    """A job of the trace, and where it stands."""

    name: str
    arrives: float
    steps: int
    kind: str
    gpus: int
    seconds: float  # of an iteration; 0 if it does not run as asked for
    came: float = 0.0
    began: float | None = None
    end: float | None = None
    ran: int = 0
    debt: int = 0
    nodes: list[int] = field(default_factory=list)

    @property
    def place(self) -> tuple[int, int]:
        """Nodes, and GPUs of each."""
        each = min(self.gpus, PER_NODE[self.kind])
        return self.gpus // each, each

    def run(self) -> bool:
        """A round; whether it ended. Progress is counted anew from all the time it ran."""
        if self.debt:
            return False
        self.ran += ROUND_S
        return self.steps - self.ran // self.seconds <= 0


@dataclass
class Outcome:
    """All jobs, and the rounds that were played."""

    tasks: list[Task]
    rounds: int

    @property
    def jct_s(self) -> list[float]:
        """Of those that ended: the authors average no others."""
        return [task.end - task.came for task in self.tasks if task.end is not None]

    @property
    def mean_s(self) -> float:
        """What the authors print."""
        return sum(self.jct_s) / len(self.jct_s)


def find_seconds(
    folder: Path, model: str, size: str, batch: int, place: tuple[str, int, int]
) -> float:
    """Of an iteration, rounded as by the authors; of a larger model if this one is not known."""
    known, sizes = read_profiled(folder), SIZES[model]
    for steps, larger in enumerate(sizes[sizes.index(size) :]):
        took = known.get((model, larger, batch), {}).get(place)
        if took is not None:
            speed = round(batch / took, DIGITS) * LARGER**steps
            return round(batch / speed, DIGITS) if took <= LONGEST_S and speed > 0.0 else 0.0
    return 0.0


def read_tasks(path: Path) -> list[Task]:
    """The jobs of a trace, in its order."""
    tasks = []
    with path.open() as file:
        for row in csv.DictReader(file):
            model, _, size = row["model_name"].partition("__")
            task = Task(
                row["job_id"],
                float(row["submission_time"]),
                int(row["num_iteration"]) // FEWER,
                row["gpu_type"],
                int(row["num_gpu"]),
                0.0,
            )
            place = (task.kind, *task.place)
            task.seconds = find_seconds(path.parent, model, size, int(row["batch_size"]), place)
            tasks.append(task)
    return tasks


def simulate(path: Path, rounds: int = ROUNDS) -> Outcome:
    """First come, first served on the authors' 1,280 GPUs, kind by kind."""
    tasks = read_tasks(path)
    nodes = cluster().nodes
    free = {
        kind: {at: node.gpus for at, node in enumerate(nodes) if node.kind == kind}
        for kind in PER_NODE
    }
    coming, now = list(tasks), tasks[0].arrives
    waiting: list[Task] = []
    running: list[Task] = []
    for played in range(rounds):
        new, coming = _arrive(coming, now + ROUND_S)
        if not (new or coming or waiting or running):
            return Outcome(tasks, played)
        ended = [task for task in running if task.run()]
        for task in ended:
            task.end = now
            running.remove(task)
            for node in task.nodes:
                free[task.kind][node] += task.place[1]
        started = _start_waiting(waiting, free, now) if ended else []
        for task in new:
            task.came = now
            alone = all(other.kind != task.kind for other in waiting)
            if task.seconds and alone and _place(task, free, now):
                started.append(task)
            elif task.seconds:
                waiting.append(task)
        running += started
        now += ROUND_S
        _tune(running, started)
    return Outcome(tasks, rounds)


def _arrive(coming: list[Task], until: float) -> tuple[list[Task], list[Task]]:
    """Who is next in the trace until one comes later, and the rest."""
    new = list(takewhile(lambda task: task.arrives <= until, coming))
    return new, coming[len(new) :]


def _start_waiting(waiting: list[Task], free: dict[str, dict[int, int]], now: float) -> list[Task]:
    """Who waits longest of each kind, until one does not fit."""
    started: list[Task] = []
    blocked: set[str] = set()
    for task in waiting:
        if task.kind not in blocked and _place(task, free, now):
            started.append(task)
        else:
            blocked.add(task.kind)
    waiting[:] = [task for task in waiting if task.began is None]
    return started


def _place(task: Task, free: dict[str, dict[int, int]], now: float) -> bool:
    """On the emptiest nodes that have room."""
    count, each = task.place
    left = free[task.kind]
    room = sorted((at for at in left if left[at] >= each), key=lambda at: -left[at])
    if len(room) < count:
        return False
    task.nodes, task.began = room[:count], now
    for node in task.nodes:
        left[node] -= each
    return True


def _tune(running: list[Task], started: list[Task]) -> None:
    """What a start costs: nothing below a round, else rounds without progress."""
    for task in running:
        if task in started:
            tune = min(TUNE_S * task.gpus, MOST_TUNE_S)
            task.debt = tune if tune > ROUND_S else 0
        task.debt = max(task.debt - ROUND_S, 0)


def write_stretches(result: Outcome, file: TextIO) -> None:
    """What each job held when, and what the authors claim, for `weft verify`."""
    gpus = sum(node.gpus for node in cluster().nodes)
    claims = {"gpus": gpus, "avg_jct_s": round(result.mean_s, 3)}  # and no word of who did not end
    file.writelines(f"# {name}: {value}\n" for name, value in claims.items())
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["run", "job", "submit_s", "start_s", "end_s", "gpus", "finished"])
    for task in result.tasks:
        begun = "" if task.began is None else task.began
        end = "" if task.end is None else task.end
        done = "no" if task.end is None else "yes"
        rows.writerow(["fcfs", task.name, task.came or task.arrives, begun, end, task.gpus, done])


def main() -> int:
    """Print what comes out, and who was left out of it."""
    parser = argparse.ArgumentParser(description="Arena's simulator as its artifact has it.")
    parser.add_argument("trace", nargs="?", default="pai", choices=["pai", "venus", "philly"])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of 300 s that are played")
    parser.add_argument("--out", type=Path, help="a CSV for `weft verify`")
    asked = parser.parse_args()
    result = simulate(need_data() / "arena" / f"trace_{asked.trace}.csv", asked.rounds)
    jct, dropped = result.jct_s, sum(not task.seconds for task in result.tasks)
    print(
        f"{asked.trace}: average {result.mean_s:.1f} s, longest {max(jct):,.0f} s of {len(jct)} of "
        f"{len(result.tasks)} jobs in {result.rounds} rounds; {dropped} were dropped"
    )
    if asked.out:
        with asked.out.open("w") as file:
            write_stretches(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
