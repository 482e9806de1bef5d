"""Knowledge learnt from jobs, kept in plain values and restored."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from weft.core.codec.plain_values import decode, encode

M = TypeVar("M")


class Learning(Protocol):
    """A part of the knowledge, which can be saved as plain values and restored."""

    def save(self) -> Any:
        """Everything learnt, as values that JSON has; what follows from it may be left out."""
        ...

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        ...


class Remembering(Generic[M]):
    """A part that keeps all it has learnt in one dataclass, saved by the annotations of that."""

    def __init__(self, memory: M) -> None:
        self.memory = memory

    def save(self) -> Any:
        """The memory as values that JSON has."""
        return encode(self.memory)

    def load(self, saved: Any) -> None:
        self.memory = decode(type(self.memory), saved)


class NothingLearnt:
    """A part that never changes: there is nothing to save."""

    __slots__ = ()

    def save(self) -> Any:
        return None

    def load(self, saved: Any) -> None:
        """Nothing."""
