"""Jobs that grow and shrink as they run: with some of its devices kept, a job does not restart."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.core.model.job import Allocation, NodeId


@dataclass(slots=True)
class Resizing:
    """Which jobs were stopped when and where, by submission number.

    A job that is started again as soon as it has left, `checkpoint_s` after it was stopped, and on
    some of the same devices, pays `resize_s` and no restart; `count` is how often that was so.
    """

    resize_s: float
    checkpoint_s: float = 0.0
    count: int = 0
    _stopped: dict[int, tuple[float, Allocation]] = field(default_factory=dict)

    def stopped(self, seq: int, now: float, on: Allocation) -> None:
        """A job is asked to leave."""
        self._stopped[seq] = (now, on)

    def goes_on(self, seq: int, now: float, on: Allocation) -> bool:
        """Whether a start is but a change of size."""
        at, before = self._stopped.pop(seq, (None, on))
        if at is None or now > at + self.checkpoint_s + 1e-6:
            return False
        held = {(part.node, gpu) for part in before.slices for gpu in part.gpus}
        same = any((part.node, gpu) in held for part in on.slices for gpu in part.gpus)
        self.count += same
        return same


# Jobs that are suspended to the memory of their host instead of being checkpointed.
#
# Going on where a job ran last costs the copy back to the device; elsewhere it is a restart. The
# device is handed over as well when another job was there before (Xiao et al., Gandiva, OSDI
# 2018, section 4.1: below 100 ms for most jobs, about a second for large ones).


@dataclass(slots=True)
class Suspension:
    """Where every job ran last, by submission number, and which devices were used."""

    resume_s: float
    _last: dict[int, frozenset[NodeId]] = field(default_factory=dict)
    _used: set[tuple[NodeId, int]] = field(default_factory=set)

    def lose(self, seq: int) -> None:
        """A job died: nothing of it is left in memory anywhere."""
        self._last[seq] = frozenset()

    def cost(self, seq: int, on: Allocation, restart_s: float) -> float:
        """Seconds without progress at the beginning of this run."""
        nodes = frozenset(part.node for part in on.slices)
        devices = {(part.node, gpu) for part in on.slices for gpu in part.gpus}
        before = self._last.get(seq)
        used = not self._used.isdisjoint(devices)
        self._last[seq] = nodes
        self._used |= devices
        if before is not None:
            return self.resume_s if before == nodes else restart_s
        return self.resume_s if used else 0.0
