"""What is learnt of jobs can be kept in plain values, and taken up again."""

from __future__ import annotations

from typing import Any, Protocol


class Learning(Protocol):
    """What every part of the knowledge can do: be kept in plain values, and taken up again."""

    def save(self) -> Any:
        """What has been learnt, as values that JSON has; what follows from it may be left out."""
        ...

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        ...


class NothingLearnt:
    """A part that is the same whatever happens: there is nothing to save."""

    __slots__ = ()

    def save(self) -> Any:
        """Nothing."""
        return None

    def load(self, saved: Any) -> None:
        """Nothing."""
