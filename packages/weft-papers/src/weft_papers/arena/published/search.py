"""Arena's search as its artifact has it, in counts of GPUs: who starts, who gives way, who grows.

The authors move jobs between nodes until a gang fits; here GPUs are counted by kind, which is the
same as long as sizes are powers of two and nodes hold so many. Steps are those of the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from weft_papers.arena.policy import (
    DEPTH,
    LESS_DEPTH,
    MANY,
    STEPS_UP,
    AllocationTrial,
    Size,
    climb,
    find_room,
    total_speed,
)
from weft_papers.arena.published.data import COUNTS, PER_NODE


class ArenaSearch:
    """Sizes of all jobs; `speed` is in samples per second, 0 where a job cannot run."""

    def __init__(self, gpus: dict[str, int], speed: Callable[[int, Size], float]) -> None:
        self.standing, self._speed = AllocationTrial({}, gpus), speed
        self.speeds: list[dict[Size, float]] = []

    def add_jobs(self, jobs: int) -> None:
        """All that a job could run at, for as many jobs as there are."""
        every = list(product(PER_NODE, COUNTS))
        for row in range(len(self.speeds), jobs):
            speeds = {size: self._speed(row, size) for size in every}
            self.speeds.append({size: speed for size, speed in speeds.items() if speed > 0.0})

    def start(self, row: int, wish: Size) -> bool:
        """A job at what it asks for, or nearby; others are halved or moved if need be."""
        depth = LESS_DEPTH if len(self.standing.at) > MANY else DEPTH
        choices = [
            room
            for size, steps in self._near(row, wish, depth)
            if (room := find_room(self.standing, row, size, self.speeds, (), depth - steps))
        ]
        if choices:
            self.standing = max(choices, key=lambda trial: total_speed(trial, self.speeds))
        return bool(choices)

    def _near(self, row: int, wish: Size, depth: int) -> list[tuple[Size, int]]:
        """Return the requested size; where that does not run, sizes within so many steps."""
        if wish in self.speeds[row]:
            return [(wish, 0)]
        kind, gpus = wish
        steps = {
            (other, gpus >> half): half + (other != kind)
            for other, half in product(PER_NODE, range(depth + 1))
        }
        return [
            (size, far) for size, far in steps.items() if far <= depth and size in self.speeds[row]
        ]

    def grow(self) -> None:
        """Ten times the single step that gains most."""
        self.standing = climb(self.standing, self.speeds, (), STEPS_UP)

    def remove_job(self, row: int) -> None:
        """A job ended."""
        at, free = dict(self.standing.at), dict(self.standing.free)
        kind, gpus = at.pop(row)
        free[kind] += gpus
        self.standing = AllocationTrial(at, free)
