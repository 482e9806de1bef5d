"""Which cores of each node an attempt's ranks run on, where no manager keeps jobs apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from weft.core.model.job import Allocation, NodeId, Slice
from weft.engines.attempts.job_folders import recall
from weft.engines.fleet.port import Gang, Key, Part
from weft.engines.fleet.requests import Cores, Site, part_of_host
from weft.engines.machine.cores import CorePool
from weft.engines.machine.devices import split_cores
from weft.engines.machine.host_part import Asked
from weft.wire.attempt import SPEC, AttemptSpec


@dataclass(slots=True)
class CorePools:
    """The cores of every node, and which job has which."""

    _pools: dict[NodeId, CorePool] = field(default_factory=dict)

    def take(self, gang: Gang, site: Site) -> dict[NodeId, Cores]:
        """Cores for every rank of a gang, on its nodes."""
        return {part.node: self._take(gang.key, part, part.cpus, site) for part in gang.parts}

    def change(self, gang: Gang, to: Allocation, site: Site) -> dict[NodeId, Cores]:
        """The same for one that has a new part of its nodes."""
        by_node: Mapping[NodeId, Slice] = {some.node: some for some in to.slices}
        cores = {}
        for part in gang.parts:
            some = by_node.get(part.node)
            if some is not None:
                asked = Asked(AttemptSpec.read(part.folder / SPEC).asked_cpus, part.mem_gb)
                cpus = part_of_host(asked, replace(to, slices=(some,)), some, site).cpus
                cores[part.node] = self._take(gang.key, part, cpus, site)
        return cores

    def give(self, key: Key) -> None:
        """An attempt has left."""
        for pool in self._pools.values():
            pool.give(key)

    def recall(self, gang: Gang, site: Site) -> None:
        """Take down what an attempt has had since before a restart."""
        for part in gang.parts:
            had = recall(part.folder)
            if had.cores and part.node in site.machines:
                self._pool(part.node, site).note(gang.key, had.cores, had.spec.cpus)

    def _take(self, key: Key, part: Part, cpus: float, site: Site) -> Cores:
        pool = self._pool(part.node, site)
        by_device = split_cores(pool.cores, max(site.machine(part.node).node.gpus, 1))
        near = [core for gpu in part.gpus for core in by_device[gpu]]
        return pool.take(key, cpus, near, max(len(part.gpus), 1))

    def _pool(self, node: NodeId, site: Site) -> CorePool:
        if node not in self._pools:
            count = max(ceil(site.machine(node).node.cpus), 1)
            self._pools[node] = CorePool(tuple(range(count)))
        return self._pools[node]
