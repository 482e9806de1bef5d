"""The number of files and connections that this process may have open."""

from __future__ import annotations

import logging
import resource

from weft.core.errors import InvalidConfig

log = logging.getLogger(__name__)

WANTED = 4096
LEAST = 256


def raise_file_limit() -> int:
    """Allow as many as the system lets us; how many that is.

    Raises InvalidConfig where that is too few to serve with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST:
        raise InvalidConfig(
            f"this process may open {hard} files, and the service needs {LEAST}",
            hint="raise the hard limit: `ulimit -Hn`, or LimitNOFILE= of a systemd unit",
        )
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < WANTED:
        log.warning(
            "limit=%d open files, so about %d connections at once; raise `ulimit -Hn` to %d",
            hard,
            hard // 2,
            WANTED,
        )
    return hard
