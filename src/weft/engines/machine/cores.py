"""Which CPU cores an attempt runs on: those of its devices first, then the least used."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import ceil

from weft.core.model.job import Allocation
from weft.engines.machine.devices import split_cores
from weft.engines.machine.host_part import HostPart, shares_host

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
            self.note(who, near, part.cpus * on.sharing.share)
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
        self.note(who, chosen, cpus)
        return split_cores(chosen, ranks)

    def note(self, who: Hashable, cores: Sequence[int], cpus: float) -> None:
        """Take down what an attempt has, for instance since before a restart."""
        self._taken[who] = tuple(cores), cpus

    def give(self, who: Hashable) -> None:
        """An attempt has left."""
        self._taken.pop(who, None)

    def _load(self) -> dict[int, float]:
        load = dict.fromkeys(self.cores, 0.0)
        for cores, cpus in self._taken.values():
            for core in cores:
                load[core] = load.get(core, 0.0) + cpus / len(cores)
        return load
