"""Errors that this package raises on purpose.

WireError        a line or a variable that cannot be understood
└── Fenced       another attempt of the job owns the checkpoint directory
"""

from __future__ import annotations


class WireError(Exception):
    """A message that is not as expected; it says what was read, and what should have been."""


class Fenced(WireError):  # noqa: N818 - reads better at the call site
    """Another attempt of the job may write here, this one may not."""
