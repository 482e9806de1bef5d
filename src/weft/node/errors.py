"""What this package raises on purpose: it knows nothing of the service's own errors."""

from __future__ import annotations

import errno

# No space, no memory, no process or file more: not the job's doing.
FULL = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM),
    *(errno.EMFILE, errno.ENFILE),
)


class NodeError(Exception):
    """A command line or a path that cannot be used: what is wrong, and a hint that fixes it."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what, hint)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  hint: {self.hint}" if self.hint else self.what
