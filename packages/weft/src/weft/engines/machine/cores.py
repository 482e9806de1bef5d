"""The CPU cores that an attempt runs on: those of its devices first, then the least used."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from weft.core.model.job import Allocation, NodeId, Slice
from weft.engines.attempts.job_folders import read_attempt
from weft.engines.fleet.port import AttemptPart, Gang, Key
from weft.engines.fleet.requests import AttemptSite, Cores, part_of_host
from weft.engines.machine.devices import split_cores
from weft.engines.machine.host_part import HostPart, HostRequest, shares_host
from weft.wire.attempt import SPEC, AttemptSpec

EPS = 1e-6
RankCores = tuple[tuple[int, ...], ...]  # of each rank


@dataclass(slots=True)
class CorePool:
    """The cores of this machine, and how much of each is promised to whom."""

    cores: tuple[int, ...]
    _taken: dict[Hashable, tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def take_for(
        self, who: Hashable, on: Allocation, part: HostPart, of_devices: Sequence[tuple[int, ...]]
    ) -> RankCores:
        """Cores for the ranks of an attempt on `on`; those of its devices first.

        A job that shares the host with its neighbours has all of them.
        """
        devices = [gpu for part in on.slices for gpu in part.gpus]
        near = [core for device in devices for core in of_devices[device]]
        ranks = max(len(devices), 1)
        if shares_host(on) and not part.asked:
            self.set_cores(who, near, part.cpus * on.sharing.share)
            return split_cores(near, ranks)
        return self.take(who, part.cpus, near, ranks)

    def take(
        self, who: Hashable, cpus: float, near: Sequence[int], ranks: int
    ) -> tuple[tuple[int, ...], ...]:
        """Cores for each of `ranks` ranks, as many as `cpus` are together; replaces what it had.

        Parts of a core are rounded up: a core is the least that a process can be bound to.
        """
        self.give(who)
        count = min(max(ceil(cpus - EPS), 1), len(self.cores))
        load = self._load()
        order = sorted(
            self.cores, key=lambda core: (round(load[core], 6) >= 1.0, core not in near, load[core])
        )
        chosen = tuple(sorted(order[:count]))
        self.set_cores(who, chosen, cpus)
        return split_cores(chosen, ranks)

    def set_cores(self, who: Hashable, cores: Sequence[int], cpus: float) -> None:
        """Take down what an attempt has, for instance since before a restart."""
        self._taken[who] = tuple(cores), cpus

    def give(self, who: Hashable) -> None:
        """Free the cores of an attempt that has left."""
        self._taken.pop(who, None)

    def _load(self) -> dict[int, float]:
        load = dict.fromkeys(self.cores, 0.0)
        for cores, cpus in self._taken.values():
            for core in cores:
                load[core] = load.get(core, 0.0) + cpus / len(cores)
        return load


# ---- Which cores of each node an attempt's ranks run on, where no manager keeps jobs apart


@dataclass(slots=True)
class CorePools:
    """The cores of every node, and which job has which."""

    _pools: dict[NodeId, CorePool] = field(default_factory=dict)

    def take(self, gang: Gang, site: AttemptSite) -> dict[NodeId, Cores]:
        return {part.node: self._take(gang.key, part, part.cpus, site) for part in gang.parts}

    def change(self, gang: Gang, to: Allocation, site: AttemptSite) -> dict[NodeId, Cores]:
        """The cores of an attempt that has a new part of its nodes."""
        by_node: Mapping[NodeId, Slice] = {some.node: some for some in to.slices}
        cores = {}
        for part in gang.parts:
            some = by_node.get(part.node)
            if some is not None:
                asked = HostRequest(AttemptSpec.read(part.folder / SPEC).asked_cpus, part.mem_gb)
                cpus = part_of_host(asked, replace(to, slices=(some,)), some, site).cpus
                cores[part.node] = self._take(gang.key, part, cpus, site)
        return cores

    def give(self, key: Key) -> None:
        """Free the cores of an attempt that has left."""
        for pool in self._pools.values():
            pool.give(key)

    def note_recovered(self, gang: Gang, site: AttemptSite) -> None:
        """Take down what an attempt has had since before a restart."""
        for part in gang.parts:
            had = read_attempt(part.folder)
            if had.cores and part.node in site.machines:
                self._pool(part.node, site).set_cores(gang.key, had.cores, had.spec.cpus)

    def _take(self, key: Key, part: AttemptPart, cpus: float, site: AttemptSite) -> Cores:
        pool = self._pool(part.node, site)
        by_device = split_cores(pool.cores, max(site.machine(part.node).node.gpus, 1))
        near = [core for gpu in part.gpus for core in by_device[gpu]]
        return pool.take(key, cpus, near, max(len(part.gpus), 1))

    def _pool(self, node: NodeId, site: AttemptSite) -> CorePool:
        if node not in self._pools:
            count = max(ceil(site.machine(node).node.cpus), 1)
            self._pools[node] = CorePool(tuple(range(count)))
        return self._pools[node]
