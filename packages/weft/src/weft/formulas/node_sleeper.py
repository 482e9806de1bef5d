"""Which nodes sleep and which are woken, as jobs come and go: CES's rule on a cluster that is live.

Nodes that no job will need are taken out of use, those that were idle for longest first and never
the last of a kind. A waiting job wakes as many as it needs and some to spare at once; they are
there again after their boot time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from weft.core.model.cluster import Node
from weft.core.model.job import NodeId
from weft.core.state.state import State
from weft.formulas.node_sleep import BINS_A_DAY, SleepRule, daily_profile

BIN_S = 86_400.0 / BINS_A_DAY
DAYS = 14
# Watts of an idle GPU, about what `nvidia-smi` shows: rough figures without a published source, so
# that joules compare settings and are no bill. The rest of a node is not counted.
IDLE_W = {"k80": 30.0, "p100": 30.0, "v100": 40.0, "t4": 10.0, "a100": 50.0, "h100": 70.0}
FIRST = 6  # bins in which as many are awake as are in use and to spare, as published


class Turn(NamedTuple):
    """What is to be done now: nodes to take out of use, and nodes whose boot begins."""

    sleep: tuple[Node, ...] = ()
    wake: tuple[Node, ...] = ()


@dataclass(slots=True)
class NodeSleeper:
    """Which nodes sleep, and what that saved and cost so far.

    `node_s` are seconds of nodes asleep, `wake_ups` times that nodes were woken, `woken` nodes that
    were, `delay_s` boot times that jobs waited for, one for each of them.
    """

    rule: SleepRule
    boot_s: float = 300.0
    asleep: dict[NodeId, tuple[Node, float]] = field(default_factory=dict)  # since when
    booting: dict[NodeId, tuple[Node, float]] = field(default_factory=dict)  # until when
    wake_ups: int = 0
    woken: int = 0
    delay_s: float = 0.0
    _node_s: float = 0.0
    _gpu_j: float = 0.0
    _idle_since: dict[NodeId, float] = field(default_factory=dict)
    _used: list[float] = field(default_factory=list)
    _peak: float = 0.0
    _bin: int | None = None
    _kept: int = BINS_A_DAY  # bins since nodes were woken last

    def next_at(self, now: float) -> float:
        """When to look again: a bin is over, or a node has booted."""
        soonest = min((until for _, until in self.booting.values()), default=inf)
        return min(soonest, (now // BIN_S + 1.0) * BIN_S)

    def take_booted(self, now: float) -> list[Node]:
        """Nodes that are there again."""
        up = [node for node, until in self.booting.values() if until <= now]
        for node in up:
            del self.booting[node.id]
        return up

    def step(self, now: float, state: State) -> Turn:
        """Look at which nodes are idle and which jobs wait; returned orders count as done."""
        idle, waiting, needed = self._look(now, state)
        busy = len(state.cluster.nodes) - len(idle)
        self._peak = max(self._peak, busy + needed)
        more = needed - len(self.booting)
        if self.asleep and more > 0:
            self._kept, self._peak = 0, max(self._peak, busy + needed)
            self.delay_s += self.boot_s * waiting
            return Turn(wake=self._wake(now, more + self.rule.spare))
        if self._bin == now // BIN_S:
            return Turn()
        first, self._bin = self._bin is None, int(now // BIN_S)
        if first:
            return Turn()
        self._used = [*self._used[-DAYS * BINS_A_DAY + 1 :], self._peak]
        self._peak, self._kept = busy + needed, self._kept + 1
        return Turn(sleep=self._sleep(now, state, idle))

    def _look(self, now: float, state: State) -> tuple[list[Node], int, int]:
        """Idle nodes, jobs that wait, and nodes that these lack."""
        table, held = state.table, set[NodeId]()
        for on in table.allocations:
            held.update(part.node for part in (() if on is None else on.slices))
        nodes = state.cluster.nodes
        idle = [
            node
            for i, node in enumerate(nodes)
            if node.id not in held and state.free.on(i) == node.gpus
        ]
        self._idle_since = {node.id: self._idle_since.get(node.id, now) for node in idle}
        rows = [row for row, on in enumerate(table.allocations) if on is None]
        rows = [row for row in rows if table.jobs[row].id not in table.suspended]
        if not rows:
            return idle, 0, 0
        gpus = sum(table.jobs[row].demand.gpus for row in rows) - sum(node.gpus for node in idle)
        size = max([node.gpus for node in nodes] or [1])
        return idle, len(rows), max(ceil(gpus / max(size, 1)), 1)

    def _wake(self, now: float, count: int) -> tuple[Node, ...]:
        """That many, those that slept for longest first."""
        nodes = sorted(self.asleep.values(), key=lambda slept: slept[1])[:count]
        for node, since in nodes:
            del self.asleep[node.id]
            self._node_s += now - since
            self._gpu_j += _joules(node, now - since)
            self.booting[node.id] = (node, now + self.boot_s)
        self.wake_ups, self.woken = self.wake_ups + 1, self.woken + len(nodes)
        return tuple(node for node, _ in nodes)

    def _sleep(self, now: float, state: State, idle: list[Node]) -> tuple[Node, ...]:
        nodes, used = state.cluster.nodes, np.array(self._used)
        awake, whole = len(nodes), len(nodes) + len(self.asleep) + len(self.booting)
        ahead = daily_profile(used)(len(used) - 1, 2 * self.rule.look_ahead)
        wanted = self.rule.awake(used, awake, self._kept, ahead, whole)
        if len(used) <= FIRST:
            wanted = min(awake, int(used[-1]) + self.rule.spare)
        count = awake - wanted
        left: dict[str, int] = {}
        for node in nodes:
            left[node.kind] = left.get(node.kind, 0) + 1
        chosen: list[Node] = []
        for node in sorted(idle, key=lambda idler: self._idle_since[idler.id]):
            if len(chosen) < count and left[node.kind] > 1:
                left[node.kind] -= 1
                chosen.append(node)
        self.asleep |= {node.id: (node, now) for node in chosen}
        return tuple(chosen)

    def node_seconds(self, now: float) -> float:
        """Seconds that nodes slept up to now."""
        return self._node_s + sum(now - since for _, since in self.asleep.values())

    def joules(self, now: float) -> float:
        """What GPUs of sleeping nodes would have drawn idle, as far as their kinds are known."""
        return self._gpu_j + sum(_joules(node, now - since) for node, since in self.asleep.values())


def _joules(node: Node, seconds: float) -> float:
    return IDLE_W.get(node.kind, 0.0) * node.gpus * seconds
