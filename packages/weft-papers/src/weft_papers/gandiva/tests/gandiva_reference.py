"""One node under Gandiva, written from its description: turns, packing by trial, early ends.

Shares no code with the policy or the simulator. Every change of hands is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Speeds = Callable[[str, str], tuple[float, float]]


@dataclass
class Node:
    """Jobs of (name, GPUs, seconds, use of a device), all there from the beginning."""

    gpus: int
    jobs: list[tuple[str, int, float, float]]
    speeds: Speeds
    quantum: float = 60.0
    ends: dict[str, float] = field(default_factory=dict)
    kept: list[tuple[str, str]] = field(default_factory=list)

    def run(self) -> dict[str, float]:
        """When every job ends."""
        self.left = {name: seconds for name, _, seconds, _ in self.jobs}
        self.size = {name: gpus for name, gpus, _, _ in self.jobs}
        self.use = {name: use for name, _, _, use in self.jobs}
        self.mates: dict[str, str] = {}
        self.failed: set[frozenset[str]] = set()
        self.trial: tuple[str, str] | None = None
        self.order: list[str] = []
        self.inside: list[str] = []
        self.running: set[str] = set()
        now, until = 0.0, -1.0
        while self.left:
            over = now >= until - 1e-9
            if over:
                self._judge()
            began = self._choose(over)
            if began:
                until = now + self.quantum
            now = self._pass(now, until if self.trial or self.inside else float("inf"))
        return self.ends

    def _units(self) -> list[str]:
        place = {name: i for i, name in enumerate(self.left)}
        return [name for name in place if place[name] <= place[self.mates.get(name, name)]]

    def _load(self) -> int:
        return sum(self.size[unit] for unit in self._units())

    def _judge(self) -> None:
        if self.trial is None:
            return
        first, other = self.trial
        self.trial = None
        if first not in self.left or other not in self.left:
            return
        if sum(self.speeds(first, other)) > 1.0 + 1e-9:
            self.kept.append((first, other))
        else:
            del self.mates[first], self.mates[other]
            self.failed.add(frozenset((first, other)))

    def _choose(self, over: bool) -> bool:
        if self._load() > self.gpus and over:
            self._try_a_pair()
        units = self._units()
        if self._load() <= self.gpus:
            self.order, self.inside, self.everybody = [], [], units
            return over
        before = [unit for unit in self.inside if unit in units]
        order = [unit for unit in self.order if unit in units]
        order += [unit for unit in units if unit not in order]
        if before and not over:
            room = self.gpus - sum(self.size[unit] for unit in before)
            for unit in order:
                if unit not in before and self.size[unit] <= room:
                    before.append(unit)
                    room -= self.size[unit]
            self.order, self.inside, self.everybody = order, before, before
            return False
        if self.trial:
            order.sort(key=lambda unit: unit not in self.trial)  # type: ignore[operator]
        if not before and not over:
            order.sort(key=lambda unit: unit not in self.running)
        room, chosen = self.gpus, []
        for unit in order:
            if self.size[unit] <= room:
                chosen.append(unit)
                room -= self.size[unit]
        self.order = [unit for unit in order if unit not in chosen] + chosen
        self.inside = self.everybody = chosen
        return True

    def _try_a_pair(self) -> None:
        if self.trial is not None:
            return
        alone = sorted(
            (n for n in self.left if n not in self.mates and self.use[n] < 0.99),
            key=lambda n: self.use[n],
        )
        for i, first in enumerate(alone):
            for other in alone[i + 1 :]:
                same = self.size[first] == self.size[other]
                if same and frozenset((first, other)) not in self.failed:
                    self.mates[first], self.mates[other] = other, first
                    self.trial = (first, other)
                    return

    def _rates(self) -> dict[str, float]:
        rates: dict[str, float] = {}
        for unit in self.everybody:
            mate = self.mates.get(unit)
            if mate is None:
                rates[unit] = 1.0
            else:
                rates[unit], rates[mate] = self.speeds(unit, mate)
        return rates

    def _pass(self, now: float, until: float) -> float:
        rates = self._rates()
        self.running = set(rates)
        ends = {name: now + self.left[name] / rate for name, rate in rates.items()}
        then = min(until, *ends.values())
        for name, rate in rates.items():
            self.left[name] -= rate * (then - now)
        for name in [n for n, end in ends.items() if end <= then + 1e-9]:
            self.ends[name] = then
            del self.left[name]
            mate = self.mates.pop(name, None)
            if mate is not None:
                self.mates.pop(mate, None)
                if self.trial and name in self.trial:
                    self.trial = None
        return then
