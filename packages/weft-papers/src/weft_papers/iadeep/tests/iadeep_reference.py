"""IADeep's placement on devices that jobs share, from its description; batches stay as they are.

Shares no code with the policy or the simulator: jobs go to idle devices first, else where the
least interference is predicted, at most so many to a device, and run at the speeds given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

GroupSpeeds = Callable[[list[str]], list[float]]


@dataclass
class Arrival:
    """A job: when it comes, seconds alone, its model, part of a device's time and its memory."""

    name: str
    at: float
    seconds: float
    model: str
    use: float
    mem_gb: float


def simulate(
    jobs: list[Arrival], devices: int, device_gb: float, most: int, speeds: GroupSpeeds
) -> dict[str, float]:
    """When every job ends."""
    on: list[list[Arrival]] = [[] for _ in range(devices)]
    left = {job.name: job.seconds for job in jobs}
    coming, ends, now = list(jobs), dict[str, float](), 0.0
    waiting: list[Arrival] = []
    while coming or waiting or any(on):
        while coming and coming[0].at <= now + 1e-9:
            waiting.append(coming.pop(0))
        for job in list(waiting):
            place = _choose(job, on, device_gb, most, speeds)
            if place is not None:
                on[place].append(job)
                waiting.remove(job)
        rates = {
            job.name: speed
            for group in on
            for job, speed in zip(group, speeds([j.model for j in group]), strict=True)
        }
        over = {name: now + left[name] / rate for name, rate in rates.items()}
        then = min([*over.values(), *([coming[0].at] if coming else [])])
        for name, rate in rates.items():
            left[name] -= rate * (then - now)
        for group in on:
            for job in [j for j in group if over[j.name] <= then + 1e-9]:
                group.remove(job)
                ends[job.name] = then
        now = then
    return ends


def _choose(
    job: Arrival, on: list[list[Arrival]], device_gb: float, most: int, speeds: GroupSpeeds
) -> int | None:
    for i, group in enumerate(on):
        if not group:
            return i
    options: list[tuple[float, int, int]] = []
    for i, group in enumerate(on):
        memory = sum(j.mem_gb for j in group)
        idle = 1.0
        for resident in group:
            idle *= 1.0 - resident.use
        full = 1.0 - idle >= 0.99 or memory >= 0.99 * device_gb
        if len(group) >= most or memory + job.mem_gb > device_gb or full:
            continue
        slowed = sum(1.0 / s - 1.0 for s in speeds([j.model for j in (*group, job)]))
        options.append((slowed, len(group), i))
    return min(options)[2] if options else None
