"""What a policy kept at its last decision."""

from __future__ import annotations

from typing import TypeVar

from weft.core.plan.view import View

M = TypeVar("M")


def recall(view: View, kind: type[M]) -> M:
    """A policy's memory; an empty one before its first decision."""
    return view.memory if isinstance(view.memory, kind) else kind()
