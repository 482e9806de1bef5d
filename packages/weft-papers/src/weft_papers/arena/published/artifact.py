"""Arena's simulator as its artifact has it: `python -m weft_papers.arena.published.artifact`.

What its authors' code does is done: rounds of 300 s at whose ends alone jobs end, times from the
round in which a job came, progress counted anew from all the time at the latest speed, a start on
four GPUs or more that costs a round of FCFS and nothing of Arena, jobs that do not run as asked for
dropped by FCFS, and a mean of those alone that ended within `--rounds`. `--honest` counts work at
the speed it was done with and charges Arena what FCFS pays. `--out FILE` writes what `weft verify`
reads. Data: set `arena` of `benchmarks.data`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TextIO

from benchmarks.data import need

from weft_papers.arena.published.data import (
    FEWER,
    LARGER,
    LONGEST_S,
    PER_NODE,
    SIZES,
    cluster,
    read_profiled,
)
from weft_papers.arena.published.search import ArenaSearch

ROUND_S, ROUNDS, DIGITS = 300, 2000, 3
TUNE_S, MOST_TUNE_S = 150, 600  # for each GPU of a start, and at most


@dataclass(eq=False)
class ArenaTask:
    """A job of the trace, and where it stands."""

    name: str
    arrives: float
    steps: int
    kind: str
    gpus: int
    seconds: float  # of an iteration; 0 if it does not run as asked for
    model: tuple[str, str, int] = ("", "", 0)  # name, size and batch
    came: float = 0.0
    began: float | None = None
    end: float | None = None
    ran: int = 0
    done: float = 0.0  # iterations, at the speed they were done with
    debt: int = 0
    nodes: list[int] = field(default_factory=list)
    held: list[tuple[float, int]] = field(default_factory=list)  # since when, so many GPUs

    @property
    def place(self) -> tuple[int, int]:
        """Nodes, and GPUs of each."""
        each = min(self.gpus, PER_NODE[self.kind])
        return self.gpus // each, each

    def run(self, *, honest: bool = False) -> bool:
        """A round; whether it ended. Progress is counted anew from all the time it ran."""
        if self.debt:
            return False
        self.ran += ROUND_S
        self.done += ROUND_S / self.seconds
        return self.steps - (self.done if honest else self.ran // self.seconds) <= 0


@dataclass
class ArenaOutcome:
    """All jobs, and the rounds that were played."""

    tasks: list[ArenaTask]
    rounds: int

    @property
    def jct_s(self) -> list[float]:
        """Return the seconds of each job that ended: the authors average no others."""
        return [task.end - task.came for task in self.tasks if task.end is not None]

    @property
    def mean_s(self) -> float:
        """The average that the authors print."""
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


def read_tasks(path: Path) -> list[ArenaTask]:
    """The jobs of a trace, in its order."""
    tasks = []
    with path.open() as file:
        for row in csv.DictReader(file):
            model, _, size = row["model_name"].partition("__")
            task = ArenaTask(
                row["job_id"],
                float(row["submission_time"]),
                int(row["num_iteration"]) // FEWER,
                row["gpu_type"],
                int(row["num_gpu"]),
                0.0,
                (model, size, int(row["batch_size"])),
            )
            task.seconds = find_seconds(path.parent, *task.model, (task.kind, *task.place))
            tasks.append(task)
    return tasks


def simulate(
    path: Path, rounds: int = ROUNDS, policy: str = "fcfs", *, honest: bool = False
) -> ArenaOutcome:
    """Round by round on the authors' 1,280 GPUs."""
    tasks = read_tasks(path)
    pool = ArenaPool(path.parent, tasks, honest=honest) if policy == "arena" else FcfsPool()
    coming, now = list(tasks), tasks[0].arrives
    for played in range(rounds):
        new, coming = _arrive(coming, now + ROUND_S)
        if not (new or coming or pool.waiting or pool.running):
            return ArenaOutcome(tasks, played)
        ended = [task for task in pool.running if task.run(honest=honest)]
        for task in ended:
            task.end = now
        for task in new:
            task.came = now
        pool.play(ended, new, now)
        now += ROUND_S
    return ArenaOutcome(tasks, rounds)


class FcfsPool:
    """First come, first served, kind by kind, on what was asked for."""

    def __init__(self) -> None:
        self.waiting, self.running = list[ArenaTask](), list[ArenaTask]()
        nodes = cluster().nodes
        self.free = {
            kind: {at: node.gpus for at, node in enumerate(nodes) if node.kind == kind}
            for kind in PER_NODE
        }

    def play(self, ended: list[ArenaTask], new: list[ArenaTask], now: float) -> None:
        """Free what ended, start jobs that waited and then those that came."""
        for task in ended:
            self.running.remove(task)
            for node in task.nodes:
                self.free[task.kind][node] += task.place[1]
        started = _start_waiting(self.waiting, self.free, now) if ended else []
        for task in new:
            alone = all(other.kind != task.kind for other in self.waiting)
            if task.seconds and alone and _place(task, self.free, now):
                started.append(task)
            elif task.seconds:
                self.waiting.append(task)
        self.running += started
        _tune(self.running, started)


class ArenaPool:
    """Arena's own search; a change of GPUs costs nothing, as less than a round is not charged."""

    def __init__(self, folder: Path, tasks: list[ArenaTask], *, honest: bool) -> None:
        self.waiting, self.running = list[ArenaTask](), list[ArenaTask]()
        self.folder, self.tasks, self.honest = folder, tasks, honest
        self.rows = {task.name: row for row, task in enumerate(tasks)}
        self.search = ArenaSearch(dict(cluster().gpus_by_kind), self._speed)
        self.search.add_jobs(len(tasks))

    def _seconds(self, row: int, size: tuple[str, int]) -> float:
        each = min(size[1], PER_NODE[size[0]])
        place = (size[0], size[1] // each, each)
        return find_seconds(self.folder, *self.tasks[row].model, place)

    def _speed(self, row: int, size: tuple[str, int]) -> float:
        seconds = self._seconds(row, size)
        return self.tasks[row].model[2] / seconds if seconds else 0.0

    def play(self, ended: list[ArenaTask], new: list[ArenaTask], now: float) -> None:
        """Free what ended, start waiting jobs and then new ones, and grow if any of these."""
        for task in ended:
            self.running.remove(task)
            self.search.remove_job(self.rows[task.name])
        if ended:
            self._start(self.waiting)
        self._start(new)
        if ended or new:
            self.search.grow()
        placed = self.search.standing.at
        self.waiting = [
            task
            for task in [*self.waiting, *new]
            if task.end is None and self.rows[task.name] not in placed
        ]
        changed = self._apply(now)
        _tune(self.running, changed if self.honest else [])

    def _start(self, tasks: list[ArenaTask]) -> None:
        """One after the other; who is like one that found no room is not tried."""
        hopeless = set[tuple[str, str, int]]()
        for task in tasks:
            wish = task.kind, task.gpus
            if task.model not in hopeless and not self.search.start(self.rows[task.name], wish):
                hopeless.add(task.model)

    def _apply(self, now: float) -> list[ArenaTask]:
        """Everybody where the search has them; who changed."""
        changed = []
        for row, (kind, gpus) in self.search.standing.at.items():
            task = self.tasks[row]
            if task.held and (task.kind, task.gpus) == (kind, gpus):
                continue
            task.kind, task.gpus, task.seconds = kind, gpus, self._seconds(row, (kind, gpus))
            task.held.append((now, gpus))
            changed.append(task)
            if task.began is None:
                task.began = now
                self.running.append(task)
        return changed


def _arrive(coming: list[ArenaTask], until: float) -> tuple[list[ArenaTask], list[ArenaTask]]:
    """Split off the jobs that come next in the trace, up to one that comes later."""
    new = list(takewhile(lambda task: task.arrives <= until, coming))
    return new, coming[len(new) :]


def _start_waiting(
    waiting: list[ArenaTask], free: dict[str, dict[int, int]], now: float
) -> list[ArenaTask]:
    """Start the jobs of each kind that waited longest, until one does not fit."""
    started: list[ArenaTask] = []
    blocked: set[str] = set()
    for task in waiting:
        if task.kind not in blocked and _place(task, free, now):
            started.append(task)
        else:
            blocked.add(task.kind)
    waiting[:] = [task for task in waiting if task.began is None]
    return started


def _place(task: ArenaTask, free: dict[str, dict[int, int]], now: float) -> bool:
    """On the emptiest nodes that have room."""
    count, each = task.place
    left = free[task.kind]
    room = sorted((at for at in left if left[at] >= each), key=lambda at: -left[at])
    if len(room) < count:
        return False
    task.nodes, task.began, task.held = room[:count], now, [(now, task.gpus)]
    for node in task.nodes:
        left[node] -= each
    return True


def _tune(running: list[ArenaTask], started: list[ArenaTask]) -> None:
    """Charge each start: nothing below a round, else rounds without progress."""
    for task in running:
        if task in started:
            tune = min(TUNE_S * task.gpus, MOST_TUNE_S)
            task.debt = tune if tune > ROUND_S else 0
        task.debt = max(task.debt - ROUND_S, 0)


def write_stretches(result: ArenaOutcome, policy: str, file: TextIO) -> None:
    """Write the GPUs of each job over time, and the authors' claims, for `weft verify`."""
    gpus = sum(node.gpus for node in cluster().nodes)
    claims = {"gpus": gpus, "avg_jct_s": round(result.mean_s, 3)}  # and no word of who did not end
    file.writelines(f"# {name}: {value}\n" for name, value in claims.items())
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["run", "job", "submit_s", "start_s", "end_s", "gpus", "finished"])
    for task in result.tasks:
        done = "no" if task.end is None else "yes"
        ends = [since for since, _ in task.held[1:]] + [task.end]
        held: Sequence[tuple[float | None, int]] = task.held or [(None, task.gpus)]
        for (since, gpus), until in zip(held, ends, strict=True):
            rows.writerow([policy, task.name, task.came or task.arrives, since, until, gpus, done])


def main() -> int:
    """Print what comes out, and who was left out of it."""
    parser = argparse.ArgumentParser(description="Arena's simulator as its artifact has it.")
    parser.add_argument("trace", nargs="?", default="pai", choices=["pai", "venus", "philly"])
    parser.add_argument("--policy", default="fcfs", choices=["fcfs", "arena"])
    parser.add_argument("--honest", action="store_true", help="work counts as it was done")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of 300 s that are played")
    parser.add_argument("--out", type=Path, help="a CSV for `weft verify`")
    asked = parser.parse_args()
    path = need("arena") / "arena" / f"trace_{asked.trace}.csv"
    result = simulate(path, asked.rounds, asked.policy, honest=asked.honest)
    jct, dropped = result.jct_s, sum(task.began is None for task in result.tasks)
    print(
        f"{asked.trace}, {asked.policy}: average {result.mean_s:.1f} s, longest {max(jct):,.0f} s "
        f"of {len(jct)} of {len(result.tasks)} jobs in {result.rounds} rounds; {dropped} never ran"
    )
    if asked.out:
        with asked.out.open("w") as file:
            write_stretches(result, asked.policy, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
