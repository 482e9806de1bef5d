"""What the training library raises on purpose."""

from __future__ import annotations


class TrainError(Exception):
    """A call or a state that cannot be trained with: what happened, and a hint that fixes it."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(f"{what}\n  hint: {hint}" if hint else what)
        self.what = what
        self.hint = hint


class BadCheckpoint(TrainError):  # noqa: N818 - reads better at the call site
    """A checkpoint file that is cut short, altered, or not one of ours."""
