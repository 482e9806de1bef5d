"""Jobs that are suspended to the memory of their host instead of being checkpointed.

Going on where a job ran last costs the copy back to the device; elsewhere it is a restart. The
device is handed over as well when another job was there before (Xiao et al., Gandiva, OSDI 2018,
section 4.1: below 100 ms for most jobs, about a second for large ones).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.core.model.job import Allocation, NodeId


@dataclass(slots=True)
class Suspension:
    """Where every job ran last, by submission number, and which devices anybody used."""

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
