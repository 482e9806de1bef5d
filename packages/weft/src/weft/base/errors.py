"""What this package raises on purpose.

WireError        a line or a variable that cannot be understood
└── Fenced       another attempt of the job owns the checkpoint directory
"""

from __future__ import annotations


class WireError(Exception):
    """What was read, and what was expected instead."""


class Fenced(WireError):  # noqa: N818 - reads better at the call site
    """Another attempt of the job may write here, this one may not."""
