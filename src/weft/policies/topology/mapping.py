"""A machine and its GPUs for a job, by dual recursive bipartitioning.

Machines are dealt into two halves, and the job goes to the half where the best machine gains the
cluster more, until one machine is left; there all sets of free GPUs are compared. The authors go on
halving the machine and send each worker to the half that owns its GPU: which workers go where is
not ours to say, so the set is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.core.knowledge.knowledge import BusSharing
from weft.core.model.job import Job
from weft.core.model.topology import NodeTopology
from weft.formulas.network.link_scores import list_sets
from weft.frozen import frozen
from weft.policies.topology.utility import (
    LEAST,
    Utility,
    list_touched,
    price_communication,
    price_fragments,
)

EQUAL = Utility()


@frozen
class Machine:
    """One machine as a job finds it; `neighbours` are jobs and the sockets they are on, as bits."""

    topology: NodeTopology
    free: int
    neighbours: tuple[tuple[Job, int], ...] = ()


@frozen
class Found:
    """GPUs of a machine, and what they are worth to the cluster and to the job."""

    mask: int
    system: float
    job: float


@frozen
class Mapper:
    """How sets are judged. `bus` is what jobs on a socket do to each other, None if nobody knows.

    `shipped` keeps two slips of the authors' code: an interference that is larger where jobs
    disturb each other less, and a fragmentation of the GPUs that are not taken.
    """

    utility: Utility = EQUAL
    bus: BusSharing | None = None
    shipped: bool = False

    def best_set(self, job: Job, machine: Machine) -> Found | None:
        """The GPUs of one machine that gain the cluster most; None if too few are free."""
        topology, count = machine.topology, job.demand.gpus
        if machine.free.bit_count() < count or count > topology.gpus:
            return None
        every = list_sets(topology.gpus, count)
        fits = (every & ~machine.free) == 0
        masks = every[fits]
        communication = price_communication(topology, count)[fits]
        touched = list_touched(topology, masks)
        suffered, disturbed = np.full(len(masks), LEAST), np.full(len(masks), LEAST)
        if machine.neighbours and self.bus is not None:
            for sockets in set(touched.tolist()):
                single, both = self._price_interference(job, machine, sockets)
                suffered[touched == sockets], disturbed[touched == sockets] = single, both
        broken = price_fragments(topology, machine.free, masks, shipped=self.shipped)
        system = self.utility.of_system(communication, disturbed, broken)
        best = int(np.argmax(system))
        own = self.utility.of_job(communication[best : best + 1], suffered[best : best + 1])
        return Found(int(masks[best]), float(system[best]), float(own[0]))

    def _price_interference(self, job: Job, machine: Machine, sockets: int) -> tuple[float, float]:
        """What a job on these sockets suffers; and the mean of that and of what it causes."""
        assert self.bus is not None
        beside = [other for other, where in machine.neighbours if where & sockets]
        mine = [self.bus.speed(job, other) for other in beside]
        theirs = [self.bus.speed(other, job) for other in beside]
        if self.shipped:
            of_all = len(machine.neighbours)
            suffered = sum(speed for speed in mine if speed < 1.0) / max(of_all, 1)
            caused = [speed for speed in theirs if speed < 1.0]
        else:
            suffered = sum(1.0 - speed for speed in mine) / max(len(mine), 1)
            caused = [1.0 - speed for speed in theirs if speed < 1.0]
        suffered = max(suffered, LEAST)
        if not caused:
            return suffered, suffered
        return suffered, (suffered + max(sum(caused) / len(caused), LEAST)) / 2.0


def bipartition(
    machines: Sequence[int], free: Callable[[int], int], best: Callable[[int], Found | None]
) -> tuple[int, Found] | None:
    """The machine of a job, by halves; `free` counts GPUs of a machine, and `best` judges it."""
    if not machines:
        return None
    if len(machines) == 1:
        chosen = best(machines[0])
        return None if chosen is None else (machines[0], chosen)
    halves: tuple[list[int], list[int]] = ([], [])
    room = [0, 0]
    for machine in machines:
        side = 0 if (room[0], len(halves[0])) <= (room[1], len(halves[1])) else 1
        halves[side].append(machine)
        room[side] += free(machine)
    first, second = (_most(half, best) for half in halves)
    if first == second == 0.0:
        return None
    return bipartition(halves[0 if first > second else 1], free, best)


def _most(machines: Sequence[int], best: Callable[[int], Found | None]) -> float:
    sets = map(best, machines)
    return max((chosen.system for chosen in sets if chosen is not None), default=0.0)
