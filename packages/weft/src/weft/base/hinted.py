"""The base of errors that say what happened, and what fixes it."""

from __future__ import annotations

from typing import Any


class HintedError(Exception):
    """An error with the values involved, and a hint that names what fixes it."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  hint: {self.hint}" if self.hint else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders in a sweep; keyword-only arguments do not pickle by default.
        return (_rebuild, (type(self), self.what, self.hint))


def _rebuild(kind: type[HintedError], what: str, hint: str) -> HintedError:
    return kind(what, hint=hint)
