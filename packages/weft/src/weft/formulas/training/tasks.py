"""Jobs that train by workers and parameter servers: what they ask for, what an allocation holds.

Both travel as hints of the job. A worker holds one GPU; a server holds none, so that servers live
in the host parts of the slices: as many as cores and memory beside the workers have room for.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job
from weft.core.state.cells import Floats
from weft.frozen import frozen

RESOURCES = ("gpus", "cpus", "mem_gb", "gbps")
Split = tuple[tuple[int, int], ...]  # workers and servers on each node


@frozen
class Task:
    """The resources of one worker or one server."""

    gpus: float = 0.0
    cpus: float = 0.0
    mem_gb: float = 0.0
    gbps: float = 0.0

    @property
    def vector(self) -> Floats:
        """Return the amounts in the order of `RESOURCES`."""
        return np.array([self.gpus, self.cpus, self.mem_gb, self.gbps])


@frozen
class Tasks:
    """A job of workers and servers.

    `samples` are those of all epochs; `batch` is global for synchronous training and a worker's
    own otherwise. `caps` are the most that the job may take of each resource. `servers` is what
    the submitter asked for, and `most_servers` what the job can use.
    """

    worker: Task
    server: Task
    servers: int
    most_servers: int
    samples: float
    batch: float
    sync: bool = True
    caps: tuple[float, ...] = (inf, inf, inf, inf)

    @property
    def steps(self) -> float:
        """Updates of the whole training, by all workers together."""
        return self.samples / self.batch

    def need(self, workers: int, servers: int) -> Floats:
        return workers * self.worker.vector + servers * self.server.vector

    def split(self, on: Allocation) -> Split:
        """Workers and servers on each node of an allocation."""
        tasks, left = [], self.most_servers
        for part in on.slices:
            workers = len(part.gpus)
            fits = (part.cpus - workers * self.worker.cpus) / self.server.cpus
            if self.server.mem_gb > 0.0:
                room = part.mem_gb - workers * self.worker.mem_gb
                fits = min(fits, room / self.server.mem_gb)
            servers = max(min(int(fits + 1e-6), left), 0)
            left -= servers
            tasks.append((workers, servers))
        if left == self.most_servers:
            tasks[0] = (tasks[0][0], 1)  # without any it could not train: one squeezes in
        return tuple(tasks)


def tasks_of(job: Job) -> Tasks | None:
    """The tasks that a job declares; None of a job that has no servers."""
    hints = job.hints
    if "server_cpus" not in hints:
        return None
    server = Task(0.0, *(hints.get(f"server_{name}", 0.0) for name in RESOURCES[1:]))
    worker = Task(1.0, *(hints.get(f"worker_{name}", 0.0) for name in RESOURCES[1:]))
    servers = int(hints.get("servers", job.demand.gpus))
    tasks = Tasks(
        worker,
        server,
        servers,
        int(hints.get("most_servers", max(2 * job.demand.max, servers))),
        hints.get("samples", 0.0),
        hints.get("batch", 0.0),
        hints.get("sync", 1.0) > 0.0,
        tuple(hints.get(f"most_{name}", inf) for name in RESOURCES),
    )
    wrong = {
        "server_cpus": server.cpus <= 0.0,
        "samples": tasks.samples <= 0.0,
        "batch": tasks.batch <= 0.0,
        "servers": not 1 <= servers <= tasks.most_servers,
    }
    for name, bad in wrong.items():
        if bad:
            raise InvalidConfig(
                f"job {job.id!r}: hint {name} is {hints.get(name)}",
                hint="a job with server_cpus needs positive server_cpus, samples and batch, and "
                "at least one server",
            )
    return tasks


@frozen
class SigmoidUtility:
    """The worth of a job by its completion time: a sigmoid that falls around `target_s`.

    `worth` is the most it is worth, `haste` how steeply that falls (0: never).
    """

    worth: float
    haste: float
    target_s: float

    def at(self, seconds: Floats | float, waited: Floats | float = 0.0) -> Floats:
        """Worth of a job that completes after that many seconds more, having waited already."""
        late = self.haste * (np.asarray(seconds) - (self.target_s - waited))
        # Beyond this the sigmoid is 0 to the last digit, and its exponential overflows.
        return np.asarray(self.worth / (1.0 + np.exp(np.clip(late, -700.0, 700.0))))


def utility_of(job: Job) -> SigmoidUtility | None:
    """The worth that a job declares; None of a job that says nothing."""
    if "worth" not in job.hints:
        return None
    hints = job.hints
    utility = SigmoidUtility(hints["worth"], hints.get("haste", 0.0), hints.get("target_s", 0.0))
    if utility.worth < 0.0 or utility.haste < 0.0:
        raise InvalidConfig(
            f"job {job.id!r}: hints worth {utility.worth} and haste {utility.haste}",
            hint="neither may be negative",
        )
    return utility


Law = Callable[[Any], Any]


class Ratios(NamedTuple):
    """Seconds of a whole training on w workers and p servers, as a sum of ratios."""

    fixed: float = 0.0
    over_w: float = 0.0
    w_over_p: float = 0.0
    over_p: float = 0.0

    def at(self, w: Any, p: Any) -> Any:
        """Return the time in seconds."""
        return self.fixed + self.over_w / w + self.w_over_p * w / p + self.over_p / p
