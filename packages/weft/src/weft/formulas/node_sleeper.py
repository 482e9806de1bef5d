"""Nodes that sleep and wake as jobs come and go: CES's rule on a cluster that is live.

Nodes that no job will need are taken out of use, those that were idle for longest first and never
the last of a kind. A waiting job wakes as many as it needs and some to spare at once; they are
there again after their boot time.

Idle nodes that sleep: the rule of CES (Hu et al., SC 2021), and a forecast for it.

Time goes in bins of ten minutes. Nodes in use are known up to the present bin; a forecast says how
many will be in use from here on, by what is known now. A node short of what is needed is woken at
once with some to spare, and no node sleeps for a while after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import NodeId
from weft.core.state.cells import Floats
from weft.core.state.state import State
from weft.frozen import frozen

BINS_A_DAY = 144
Forecast = Callable[[int, int], Floats]


@frozen
class SleepRule:
    """CES with its published parameters for Philly.

    Nodes sleep if those in use fell by `fell` below the mean of the last `look_back` bins, will
    fall by `will_fall` on the mean of the next `look_ahead`, and do not rise after that. `spare`
    nodes stay awake; fewer than `fewest` are not worth it; for `keep` bins after a wake-up no node
    sleeps.
    """

    look_back: int = 2
    look_ahead: int = 30
    fell: float = 0.1
    will_fall: float = 0.0
    fewest: int = 1
    spare: int = 20
    keep: int = 10

    def __post_init__(self) -> None:
        if min(self.look_back, self.look_ahead, self.fewest) < 1 or min(self.spare, self.keep) < 0:
            raise InvalidConfig(
                f"node sleep: {self}", hint="bins and nodes are 1 or more, spare and keep 0 or more"
            )

    def awake(
        self, used: Sequence[float] | Floats, awake: int, kept: int, ahead: Floats, nodes: int
    ) -> int:
        """Nodes that should be awake now.

        `used` are nodes in use, the present bin last; `kept` counts bins since the last wake-up;
        `ahead` is the forecast from the present bin on, twice `look_ahead` long if it can be.
        """
        present = used[-1]
        if awake < present:
            return min(int(present) + self.spare, nodes)
        if kept < self.keep or len(used) <= self.look_back or not len(ahead):
            return awake
        fell = float(np.mean(used[-self.look_back - 1 : -1])) - present
        soon = float(np.mean(ahead[: self.look_ahead]))
        later = float(np.mean(ahead[: 2 * self.look_ahead]))
        if fell < self.fell or present - soon < self.will_fall or soon < later:
            return awake
        fewer = min(awake, int(present) + self.spare)
        return fewer if awake - fewer >= self.fewest else awake


@frozen
class NodeSleepSavings:
    """Awake nodes in each bin, and what that saved and cost."""

    awake: Floats
    wake_ups: int
    woken: int
    short: float

    def asleep(self, nodes: int) -> float:
        """Nodes asleep on average."""
        return nodes - float(self.awake.mean())

    def utilisation(self, used: Floats) -> float:
        """The part of awake nodes that is in use, on average over bins."""
        return float((used / self.awake).mean())


def sleep_nodes(
    used: Floats, nodes: int, rule: SleepRule, forecast: Forecast, first: int = 6
) -> NodeSleepSavings:
    """Follow the rule bin by bin; in the first bins as many are awake as are in use, and to spare.

    `forecast(i, length)` is asked at bin `i` for that bin and those after it.
    """
    awake = np.zeros(len(used))
    now, kept, wake_ups, woken, short = nodes, rule.keep, 0, 0, 0.0
    for i in range(len(used)):
        kept += 1
        if i < first:
            now = min(int(used[i]) + rule.spare, nodes)
        else:
            was = now
            ahead = forecast(i, 2 * rule.look_ahead)
            now = rule.awake(used[: i + 1], now, kept, ahead, nodes)
            if now > was:
                wake_ups, woken, kept = wake_ups + 1, woken + now - was, 0
                short += float(used[i]) - was
        awake[i] = now
    return NodeSleepSavings(awake, wake_ups, woken, short)


def daily_profile(used: Floats, days: int = 14, follow: float = 1.0) -> Forecast:
    """The mean of the same time over the last days, moved towards the present value by `follow`.

    Only bins that were over when it is asked count: a forecast reaches less than a day ahead.
    """

    def forecast(i: int, length: int) -> Floats:
        ahead = np.arange(i, i + min(length, BINS_A_DAY))
        before = ahead[None, :] - BINS_A_DAY * np.arange(1, days + 1)[:, None]
        there = before >= 0
        seen = np.where(there, used[np.maximum(before, 0)], 0.0).sum(axis=0)
        count = there.sum(axis=0)
        if not count[0]:
            return np.full(length, used[i])
        mean = np.where(count > 0, seen / np.maximum(count, 1), used[i])
        return np.asarray(np.floor(mean + follow * (used[i] - mean[0])))

    return forecast


BIN_S = 86_400.0 / BINS_A_DAY
DAYS = 14
# Watts of an idle GPU, about what `nvidia-smi` shows: rough figures without a published source, so
# that joules compare settings and are no bill. The rest of a node is not counted.
IDLE_W = {"k80": 30.0, "p100": 30.0, "v100": 40.0, "t4": 10.0, "a100": 50.0, "h100": 70.0}
FIRST = 6  # bins in which as many are awake as are in use and to spare, as published


class SleepDecision(NamedTuple):
    """The decision now: nodes to take out of use, and nodes whose boot begins."""

    sleep: tuple[Node, ...] = ()
    wake: tuple[Node, ...] = ()


@dataclass(slots=True)
class NodeSleeper:
    """The nodes that sleep, and what that saved and cost so far.

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
        """The time to look again: a bin is over, or a node has booted."""
        soonest = min((until for _, until in self.booting.values()), default=inf)
        return min(soonest, (now // BIN_S + 1.0) * BIN_S)

    def take_booted(self, now: float) -> list[Node]:
        """Nodes that are there again."""
        up = [node for node, until in self.booting.values() if until <= now]
        for node in up:
            del self.booting[node.id]
        return up

    def step(self, now: float, state: State) -> SleepDecision:
        """Look at which nodes are idle and which jobs wait; returned orders count as done."""
        idle, waiting, wanted = self._survey_nodes(now, state)
        # Jobs that wait cannot do with what is idle: they lack one node at least.
        lacking = max(wanted - len(idle), 1) if waiting else 0
        used = len(state.cluster.nodes) - len(idle) + min(wanted, len(idle)) + lacking
        self._peak = max(self._peak, used)
        more = lacking - len(self.booting)
        if self.asleep and more > 0:
            self._kept = 0
            self.delay_s += self.boot_s * waiting
            return SleepDecision(wake=self._wake(now, more + self.rule.spare))
        if self._bin == now // BIN_S:
            return SleepDecision()
        first, self._bin = self._bin is None, int(now // BIN_S)
        if first:
            return SleepDecision()
        self._used = [*self._used[-DAYS * BINS_A_DAY + 1 :], self._peak]
        self._peak, self._kept = used, self._kept + 1
        return SleepDecision(sleep=self._sleep(now, state, idle))

    def _survey_nodes(self, now: float, state: State) -> tuple[list[Node], int, int]:
        """Idle nodes, jobs that wait, and nodes that these ask for."""
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
        gpus = sum(table.jobs[row].demand.gpus for row in rows)
        size = max((node.gpus for node in nodes), default=1)
        return idle, len(rows), ceil(gpus / max(size, 1))

    def _wake(self, now: float, count: int) -> tuple[Node, ...]:
        """Wake that many, those that slept for longest first."""
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
        awake = len(nodes)
        ahead = daily_profile(used)(len(used) - 1, 2 * self.rule.look_ahead)
        wanted = self.rule.awake(used, awake, self._kept, ahead, awake)
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
        """Return the energy that GPUs of sleeping nodes would have drawn idle, where known."""
        return self._gpu_j + sum(_joules(node, now - since) for node, since in self.asleep.values())


def _joules(node: Node, seconds: float) -> float:
    return IDLE_W.get(node.kind, 0.0) * node.gpus * seconds
