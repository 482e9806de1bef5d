"""Rubick's simulator as its artifact has it: `python -m weft_papers.rubick.published.artifact`.

Everything that its authors' code does is done, mistakes included: jobs go on running on GPUs that
were taken from them, nobody is shrunk, free GPUs and sizes are read before they change, plans that
divide a model run as fast as the mean of all that were measured, least sensitive jobs come first.
`--honest` corrects the first alone: who lost its GPUs stops. Times, rounds and speeds are summed in
the authors' order, so that results agree to the last digits. Data: `rubick` of `benchmarks.data`.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import NamedTuple

from benchmarks.data import need

from weft_papers.rubick.published.data import RESTART_S
from weft_papers.rubick.published.tables import PER_NODE, Plan, RubickModel, read_model

NODES, ROUND_S = 8, 60
SLACK, MANY = 1.5, 12  # of a guarantee; guaranteed jobs from which on large ones are placed anew
LARGE, SETTLED = 32, 7  # GPUs of a job that is placed anew, restarts after which it is not
AGED_S, FIRST = 200_000, 1e9
DIVIDED = ("llama7", "llama30")


@dataclass(eq=False)
class RubickTask:
    """A job of the trace, and where it stands."""

    name: str
    submit: float
    steps: int
    model: RubickModel
    guaranteed: bool
    floor: float
    plan: str | Plan
    placement: tuple[int, ...] = ()
    now: float = 0.0
    done: int = 0
    progress: float = 0.0
    starting: float = 0.0
    restarts: int | None = None
    end: float | None = None

    @property
    def divided(self) -> bool:
        """True if the model can use tensor and pipeline parallelism."""
        return self.model.name in DIVIDED

    def run(self, seconds: float) -> None:
        """A round."""
        if not self.placement:
            self.now += seconds
            return
        delay = min(self.starting, seconds)
        self.now += delay
        self.starting -= delay
        seconds -= delay
        each = self.model.speeds.seconds(self.placement, self.plan)
        while seconds > 0 and self.end is None:
            if self.progress + seconds < each:
                self.progress += seconds
                self.now += seconds
                seconds = 0
                continue
            self.done += 1
            passed = each - self.progress
            if self.done > self.steps:
                self.end = self.now + passed
            self.progress = 0.0
            self.now += passed
            seconds -= passed
        self.now = round(self.now + seconds, 1)

    def move(self, nodes: Sequence[int], plan: Plan | None, *, honest: bool) -> None:
        """To the nodes that its GPUs are on; without any it goes on where it was."""
        placement: list[int] = []
        for number, node in enumerate(nodes):
            if number and node == nodes[number - 1]:
                placement[-1] += 1
            else:
                placement.append(1)
        if not placement:
            self.placement = () if honest else self.placement
        elif self.placement != tuple(placement):
            self.placement, self.starting = tuple(placement), RESTART_S
            self.restarts = 0 if self.restarts is None else self.restarts + 1
            self.plan = self.plan if plan is None else plan


@dataclass
class Held:
    """Allocations: the node of each GPU, nodes of what else large jobs have, and plans."""

    gpus: dict[str, list[int]] = field(default_factory=dict)
    hosts: dict[str, list[int]] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)

    def of(self, names: Iterable[str]) -> Held:
        """Return the allocations of these jobs."""
        known = set(names)
        kept = ({k: v for k, v in part.items() if k in known} for part in (self.gpus, self.hosts))
        gpus, hosts = kept
        return Held(gpus, hosts, {k: v for k, v in self.plans.items() if k in known})

    def free(self) -> Counter[int]:
        """GPUs of each node that nobody holds; full nodes are left out."""
        used = Counter(node for nodes in self.gpus.values() for node in nodes)
        return Counter(dict.fromkeys(range(NODES), PER_NODE)) - used

    def on(self, node: int) -> list[str]:
        """Return the jobs that hold anything on a node."""
        names = [name for name, nodes in self.gpus.items() if node in nodes]
        more = [name for name, nodes in self.hosts.items() if node in nodes]
        return list(dict.fromkeys(names + more))

    def resize(self, task: RubickTask, node: int, gpus: int) -> None:
        """So many GPUs of this node, whatever it has on others."""
        entry = task.model.table[gpus]
        others = [at for at in self.gpus[task.name] if at != node]
        self.gpus[task.name] = [*others, *[node] * gpus]
        self.plans[task.name] = entry.plan or ()


class RubickRounds:
    """One round after another of the authors' decisions."""

    def __init__(self) -> None:
        self._queue: dict[str, None] = {}

    def decide(self, tasks: dict[str, RubickTask], held: Held, now: float) -> Held:
        """Return the allocations of all jobs from now on."""
        self._queue = {name: None for name in self._queue if name in tasks} | dict.fromkeys(tasks)
        held = held.of(tasks)
        sizes = {name: len(nodes) for name, nodes in held.gpus.items()}
        slopes = self._slopes(self._queue, tasks, sizes, now, 1)
        by_slope = sorted(slopes, key=lambda name: slopes[name])
        firm = [name for name in by_slope if tasks[name].guaranteed]
        order = firm + [name for name in by_slope if not tasks[name].guaranteed]
        for name in order:
            settled = (tasks[name].restarts or 0) >= SETTLED and len(firm) <= MANY
            if tasks[name].divided and len(held.gpus.get(name, ())) >= LARGE and not settled:
                held.gpus[name] = []
        free: Counter[int] = Counter()
        for name in order:
            sizes.setdefault(name, 0)
            held.gpus.setdefault(name, [])
            free = held.free()
            self._place(tasks[name], held, free)
        for node in range(NODES):  # with what was free before the last job was placed
            self._grow(node, free[node], tasks, held, sizes, now)
        for name in by_slope:
            if tasks[name].divided:
                self._place_divided(tasks[name], held, larger=True)
        return held

    def _slopes(
        self,
        names: Iterable[str],
        tasks: dict[str, RubickTask],
        sizes: dict[str, int],
        now: float,
        more: float,
    ) -> dict[str, float]:
        slopes = {}
        for name in names:
            model = tasks[name].model
            if now - tasks[name].submit > AGED_S:
                slopes[name] = FIRST
                continue
            has = sizes.get(name)
            rate = 0.0 if has is None else model.rate(has)
            then = model.table[min((has or 0) + int(more), PER_NODE)].rate
            slopes[name] = abs(abs(rate - then) / model.normaliser / more)
        return slopes

    def _place(self, task: RubickTask, held: Held, free: Counter[int]) -> None:
        if task.divided:
            self._place_divided(task, held, larger=False)
            return
        for node in sorted(range(NODES), key=lambda node: -free[node]):
            own = held.gpus[task.name]
            if own and node not in own:
                continue
            there = own.count(node)
            entry = task.model.table[free[node] + there]
            enough = SLACK * entry.rate >= task.floor
            if enough if task.guaranteed else free[node]:
                held.resize(task, node, entry.gpus)
                return

    def _grow(
        self,
        node: int,
        left: float,
        tasks: dict[str, RubickTask],
        held: Held,
        sizes: dict[str, int],
        now: float,
    ) -> None:
        names = held.on(node)
        chosen: dict[str, int] = {}
        ended = not names
        while left > 0 and not ended:
            slopes = self._slopes(names, tasks, sizes, now, left)
            for number, name in enumerate(sorted(slopes, key=lambda slope: -slopes[slope])):
                ended = ended or number == len(slopes) - 1
                if "llama" in name:
                    continue
                entry = tasks[name].model.table[min(sizes[name] + int(left), PER_NODE)]
                chosen[name] = entry.gpus
                left -= entry.gpus - sizes[name]
                ended = ended or entry.gpus == sizes[name]
                break
        for name, gpus in chosen.items():
            held.resize(tasks[name], node, gpus)

    def _place_divided(self, task: RubickTask, held: Held, *, larger: bool) -> None:
        """The first listed number of GPUs that fits; the largest when everybody is placed."""
        counts = sorted(task.model.placements, reverse=True) if larger else task.model.placements
        free = held.free()
        if larger:
            free = Held({k: v for k, v in held.gpus.items() if k != task.name}).free()
        for count in counts:
            for text in task.model.placements[count]:
                nodes = _fit(sorted(map(int, str(text)), reverse=True), count, free)
                if nodes:
                    held.gpus[task.name], held.hosts[task.name] = nodes, list(nodes)
                    plan = task.model.plans[str(text)]
                    three = ("DDP", "ga", plan) if plan == "zero-offload" else (plan, plan, text)
                    held.plans[task.name] = three
                    return


def _fit(parts: list[int], count: int, free: Counter[int]) -> list[int]:
    """Nodes for each part, popped as from a heap that was never built; empty where it fails."""
    heap = [(gpus, node) for node, gpus in free.items()]
    left: list[int] = list(parts)
    nodes: list[int] = []
    while len(nodes) < count and heap:
        _, node = heapq.heappop(heap)
        for number, part in enumerate(left):
            if part and part <= free[node]:
                nodes += [node] * part
                left[number] = 0
                break
    return nodes if len(nodes) >= count else []


class RubickOutcome(NamedTuple):
    """Results that the simulator prints, and GPUs in use that it does not."""

    jct_s: dict[str, float]
    makespan_s: float
    running: list[int]  # GPUs, round by round

    @property
    def mean_s(self) -> float:
        """Return the mean of all jobs, in seconds."""
        return sum(self.jct_s.values()) / len(self.jct_s)


def read_tasks(path: Path) -> list[RubickTask]:
    """The jobs of a trace, in its order."""
    tasks = []
    with path.open() as file:
        for row in csv.DictReader(file):
            model, firm = read_model(path.parent, row["application"]), row["is_sla"] == "1"
            asked = (int(row["num_gpus"]),)
            floor = model.batch / model.speeds.seconds(asked, row["exec_plan"]) if firm else 0.0
            submit, steps = float(row["submission_time"]), int(row["steps"])
            tasks.append(
                RubickTask(row["name"], submit, steps, model, firm, floor, row["exec_plan"])
            )
    return tasks


def simulate(path: Path, *, honest: bool = False) -> RubickOutcome:
    """Rounds until all jobs have ended."""
    tasks, policy, held = read_tasks(path), RubickRounds(), Held()
    now, running = 0, []
    while any(task.end is None for task in tasks):
        running.append(sum(sum(task.placement) for task in tasks if task.end is None))
        for task in tasks:
            task.run(ROUND_S)
        now += ROUND_S
        active = {t.name: t for t in tasks if t.submit <= now and t.end is None}
        if not active:
            continue
        held = policy.decide(active, held, now)
        for name, task in active.items():
            task.move(held.gpus.get(name, ()), held.plans.get(name), honest=honest)
    jct = {task.name: task.end - task.submit for task in tasks if task.end is not None}
    return RubickOutcome(jct, float(now), running)


def main() -> int:
    """Print what comes out, and how many GPUs ran that there are not."""
    parser = argparse.ArgumentParser(description="Rubick's simulator as its artifact has it.")
    parser.add_argument("traces", nargs="*", default=["naive", "trace-base"])
    parser.add_argument("--honest", action="store_true", help="who lost its GPUs stops")
    asked = parser.parse_args()
    folder, wrong = need("rubick") / "rubick", False
    for name in asked.traces:
        result = simulate(folder / f"{name}.csv", honest=asked.honest)
        whole = NODES * PER_NODE
        above = sum(gpus > whole for gpus in result.running)
        print(
            f"{name}: average {result.mean_s:.3f} s, makespan {result.makespan_s:,.0f} s; "
            f"{above} of {len(result.running)} rounds ran more than {whole} GPUs, at most "
            f"{max(result.running)}"
        )
        if name == "naive" and not asked.honest:
            theirs = json.loads((folder / "naive-result.json").read_text())["jct_s"]
            wrong = not all(
                isclose(result.jct_s[job], theirs[job], rel_tol=1e-12) for job in theirs
            )
            print("  every job as in the authors' run" if not wrong else "  not as the authors'")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
