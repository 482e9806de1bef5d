"""Which jobs share devices or links, and whose speed must be asked again when that changes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from weft.core.protocols import Coupling, Places, Resident


class Neighbours:
    """The jobs on every device, by submission number.

    `places` are where else jobs meet, such as network links; None: nowhere.
    """

    def __init__(self, coupling: Coupling, places: Places | None = None) -> None:
        self._coupling = coupling
        self._places = places
        self._residents: dict[int, Resident] = {}
        self._on: dict[Hashable, list[int]] = {}
        self._speed: dict[int, float] = {}
        self._stale: dict[int, None] = {}
        self._fresh: set[int] = set()

    def enter(self, seq: int, resident: Resident, speed: float | None = None) -> None:
        """A job comes to live on its devices, at `speed` for now; None where it just starts."""
        self._residents[seq] = resident
        if speed is None:
            self._fresh.add(seq)
        self._speed[seq] = 1.0 if speed is None else speed
        for device in self._where(resident):
            here = self._on.setdefault(device, [])
            self._stale.update(dict.fromkeys(here))
            here.append(seq)
        self._stale[seq] = None

    def leave(self, seq: int) -> None:
        """A job leaves its devices."""
        for device in self._where(self._residents.pop(seq)):
            here = self._on[device]
            here.remove(seq)
            self._stale.update(dict.fromkeys(here))
        self._stale.pop(seq, None)
        self._fresh.discard(seq)
        del self._speed[seq]

    def beside(self, seq: int) -> Sequence[Resident]:
        """The jobs that share a device, or another place, with a job, in order of arrival."""
        others: dict[int, None] = {}
        for device in self._where(self._residents[seq]):
            others.update(dict.fromkeys(self._on[device]))
        others.pop(seq, None)  # one without devices has no neighbours, not even itself
        return [self._residents[other] for other in others]

    def changed(self) -> Iterator[tuple[int, float]]:
        """Jobs whose speed is not what it was, or that have just met neighbours; and the speed."""
        stale, self._stale = self._stale, {}
        fresh, self._fresh = self._fresh, set()
        for seq in stale:
            beside = self.beside(seq)
            resident = self._residents[seq]
            speed = self._coupling.speed(resident, beside) if resident.on.gpus else 1.0
            if speed != self._speed[seq] or (seq in fresh and beside):
                yield seq, speed
            self._speed[seq] = speed

    def _where(self, resident: Resident) -> Iterator[Hashable]:
        return _devices(resident) if self._places is None else self._all_places(resident)

    def _all_places(self, resident: Resident) -> Iterator[Hashable]:
        assert self._places is not None
        yield from _devices(resident)
        yield from self._places(resident)


def _devices(resident: Resident) -> Iterator[Hashable]:
    for part in resident.on.slices:
        for gpu in part.gpus:
            yield part.node, gpu
