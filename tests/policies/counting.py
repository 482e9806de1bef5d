"""A second, naive simulator that only counts GPUs, to hold the real one against.

It shares no code with the package: jobs are plain tuples, every event sorts everything again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

TINY = 1e-6


@dataclass
class Run:
    """One job: what it asks for, and what it has had."""

    name: str
    gpus: int
    submit: float
    length: float
    ran: float = 0.0
    running: bool = False
    end: float = 0.0
    starts: int = 0
    queue: int = 0


@dataclass
class Count:
    """A cluster of `gpus`, jobs, and an order; preemption is free."""

    gpus: int
    jobs: list[Run]
    order: Callable[[list[Run]], list[Run]]
    preempt: bool = True
    strict: bool = False
    limits: tuple[float, ...] = ()
    by_time: bool = False
    lists: list[list[Run]] = field(default_factory=list)

    def play(self) -> Count:
        now, waiting = 0.0, sorted(self.jobs, key=lambda j: j.submit)
        self.lists = [[] for _ in range(len(self.limits) + 1)]
        active: list[Run] = []
        while waiting or active:
            nxt = min([waiting[0].submit] if waiting else [], default=float("inf"))
            for job in active:
                if job.running:
                    nxt = min(nxt, now + job.length - job.ran, now + self._to_limit(job))
            for job in active:
                if job.running:
                    job.ran += nxt - now
            now = nxt
            for job in [j for j in active if j.length - j.ran < TINY]:
                job.end, job.running = now, False
                active.remove(job)
                for queue in self.lists:
                    if job in queue:
                        queue.remove(job)
            while waiting and waiting[0].submit <= now:
                job = waiting.pop(0)
                active.append(job)
                self.lists[0].append(job)
            self._sink(active)
            self._schedule(active)
        return self

    def _attained(self, job: Run) -> float:
        return job.ran * (1 if self.by_time else job.gpus)

    def _to_limit(self, job: Run) -> float:
        if job.queue >= len(self.limits):
            return float("inf")
        left = self.limits[job.queue] - self._attained(job)
        return left / (1 if self.by_time else job.gpus)

    def _sink(self, active: list[Run]) -> None:
        for job in active:
            while job.queue < len(self.limits) and self._to_limit(job) < TINY:
                self.lists[job.queue].remove(job)
                job.queue += 1
                self.lists[job.queue].append(job)

    def _schedule(self, active: list[Run]) -> None:
        free = self.gpus if self.preempt else self.gpus - sum(j.gpus for j in active if j.running)
        ranked = [j for queue in self.lists for j in queue] if self.limits else self.order(active)
        for job in ranked:
            if not self.preempt and job.running:
                continue
            fits = job.gpus <= free
            if fits:
                free -= job.gpus
                job.starts += not job.running
            elif self.strict:
                break
            job.running = fits
        for queue in self.lists:
            queue.sort(key=lambda j: not j.running)

    @property
    def mean_jct(self) -> float:
        return sum(j.end - j.submit for j in self.jobs) / len(self.jobs)

    @property
    def preemptions(self) -> int:
        return sum(j.starts - 1 for j in self.jobs)
