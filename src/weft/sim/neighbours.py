"""Who shares devices with whom, and whose speed must be asked again when that changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.core.model import NodeId
from weft.core.ports import Coupling, Resident

Device = tuple[NodeId, int]


class Neighbours:
    """The jobs on every device, by submission number."""

    def __init__(self, coupling: Coupling) -> None:
        self._coupling = coupling
        self._residents: dict[int, Resident] = {}
        self._on: dict[Device, list[int]] = {}
        self._speed: dict[int, float] = {}
        self._stale: dict[int, None] = {}
        self._fresh: set[int] = set()

    def enter(self, seq: int, resident: Resident, speed: float | None = None) -> None:
        """A job comes to live on its devices, at `speed` for now; None where it just starts."""
        self._residents[seq] = resident
        if speed is None:
            self._fresh.add(seq)
        self._speed[seq] = 1.0 if speed is None else speed
        for device in _devices(resident):
            here = self._on.setdefault(device, [])
            self._stale.update(dict.fromkeys(here))
            here.append(seq)
        self._stale[seq] = None

    def leave(self, seq: int) -> None:
        """A job leaves its devices."""
        for device in _devices(self._residents.pop(seq)):
            here = self._on[device]
            here.remove(seq)
            self._stale.update(dict.fromkeys(here))
        self._stale.pop(seq, None)
        self._fresh.discard(seq)
        del self._speed[seq]

    def beside(self, seq: int) -> Sequence[Resident]:
        """Who shares a device with a job, in the order they came."""
        others: dict[int, None] = {}
        for device in _devices(self._residents[seq]):
            others.update(dict.fromkeys(self._on[device]))
        others.pop(seq, None)  # one without devices is beside nobody, not even itself
        return [self._residents[other] for other in others]

    def changed(self) -> Iterator[tuple[int, float]]:
        """Jobs whose speed is not what it was, or that have just met neighbours; and the speed."""
        stale, self._stale = self._stale, {}
        fresh, self._fresh = self._fresh, set()
        for seq in stale:
            beside = self.beside(seq)
            one = self._residents[seq]
            speed = self._coupling.speed(one, beside) if one.on.gpus else 1.0
            if speed != self._speed[seq] or (seq in fresh and beside):
                yield seq, speed
            self._speed[seq] = speed


def _devices(resident: Resident) -> Iterator[Device]:
    for part in resident.on.slices:
        for gpu in part.gpus:
            yield part.node, gpu
