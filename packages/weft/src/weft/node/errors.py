"""Errors that this package raises on purpose: it knows nothing of the service's own errors."""

from __future__ import annotations

import errno

from weft.base.hinted import HintedError

# No space, no memory, no process or file more: not the job's doing.
FULL = (*(errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOMEM), *(errno.EMFILE, errno.ENFILE))


class NodeError(HintedError):
    """A command line or a path that cannot be used: what is wrong, and a hint that fixes it."""
