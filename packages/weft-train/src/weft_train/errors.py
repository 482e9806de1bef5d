"""Errors that the training library raises on purpose."""

from __future__ import annotations

from weft_train.base.hinted import HintedError


class TrainError(HintedError):
    """A call or a state that cannot be trained with: what happened, and a hint that fixes it."""


class BadCheckpoint(TrainError):  # noqa: N818 - reads better at the call site
    """A checkpoint file that is cut short, altered, or not one of ours."""
