"""Jobs that grow and shrink as they run: who keeps some of its devices does not begin again."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.core.model.job import Allocation


@dataclass(slots=True)
class Resizing:
    """Who was stopped when and where, by submission number.

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
