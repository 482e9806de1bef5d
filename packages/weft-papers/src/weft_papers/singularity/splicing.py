"""Ranks that share devices: sizes, speed, memory and checkpoints (Singularity, arXiv 2202.07848).

A job keeps its ranks forever. On fewer devices the data-parallel replicas of one shard take turns
on each; their parameters and optimiser states are the same, so turns are cheap and an update is
made once a device.
"""

from __future__ import annotations

from weft.frozen import frozen


@frozen
class IterationParts:
    """Seconds, or parts, of one iteration with a device for each rank.

    `compute` of a rank, `allreduce` over all devices, `update` of the parameters, and `switch` from
    one rank to the next on a device. With `squash` updates are made once a device.
    """

    compute: float = 0.8
    allreduce: float = 0.12
    update: float = 0.08
    switch: float = 0.008
    squash: bool = True


@frozen
class Iteration(IterationParts):
    """Time of an iteration on fewer devices than ranks.

    `swap` is the copy of parameters and optimiser state to or from the host, where ranks do not
    share them.
    """

    swap: float = 0.0

    def seconds(self, turns: int, allreduce: float) -> float:
        """T(M) with that many ranks per device, and the all-reduce over the devices there are."""
        update = self.update if self.squash else turns * self.update
        between = (turns - 1) * (self.switch + 2.0 * self.swap)
        return turns * self.compute + allreduce + update + between

    def speed(self, devices: int, ranks: int) -> float:
        """Speed on that many devices, as a part of that with one for each rank.

        Ranks that do not divide evenly go as the fullest device does; an all-reduce is a ring.
        """
        if not devices:
            return 0.0
        if devices >= ranks:
            return 1.0
        whole = self.seconds(1, self.allreduce)
        ring = (1.0 - 1.0 / devices) / (1.0 - 1.0 / ranks)
        return whole / self.seconds(-(-ranks // devices), self.allreduce * ring)


def find_legal_sizes(ranks: int, least: int) -> tuple[int, ...]:
    """Device counts on which every device has the same number of ranks, the smallest first.

    `least` is the number of devices of one replica where it divides the ranks: only replicas of one
    shard may share a device. Otherwise it is but a least size.
    """
    unit = least if least > 0 and ranks % least == 0 else 1
    sizes = range(unit, ranks + 1, unit)
    return tuple(size for size in sizes if ranks % size == 0 and size >= least)


@frozen
class CheckpointCost:
    """Size of a job's checkpoint in GB, and the time to save and restore it.

    `state_gb` are parameters and optimiser states, the same in all ranks; `private_gb` other device
    memory of a rank; of the host image of a rank `host_gb` is its own and `shared_gb` the same in
    total. A node moves `storage_gbps` GB a second.
    """

    state_gb: float = 12.0
    private_gb: float = 1.0
    host_gb: float = 0.5
    shared_gb: float = 1.5
    storage_gbps: float = 2.0
    barrier_s: float = 5.0
    restore_s: float = 20.0

    def size_gb(self, ranks: int) -> float:
        """Return the GB that are written, each content once."""
        return self.state_gb + ranks * (self.private_gb + self.host_gb) + self.shared_gb

    def save_s(self, ranks: int, nodes: int = 1) -> float:
        """Writing it, from that many nodes at once."""
        return self.size_gb(ranks) / (self.storage_gbps * max(nodes, 1))

    def move_s(self, ranks: int, nodes: int = 1) -> float:
        """Seconds without progress of a job that is moved or resized: stop, save, load, restore."""
        return self.barrier_s + 2.0 * self.save_s(ranks, nodes) + self.restore_s
