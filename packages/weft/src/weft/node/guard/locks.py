"""Locks that an attempt takes before it starts: its job, and its checkpoint folder.

Both are locks that every process of the attempt inherits, so that they are free exactly when the
last of them is gone. The folder is fenced by attempt besides (`weft.base.fence`), for trainers on
machines that these locks do not reach.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

from weft.base.fence import OWNER, claim
from weft.node.guard.identity import acting_as
from weft.wire.attempt import CLAIM, AttemptSpec, put_claim
from weft.wire.processes import start_time
from weft.wire.shared_files import OPEN, make_file

WAIT_S = 10.0  # how long the last process of the previous holder may take to be gone
JOB = "JOB"


def hold_all(spec: AttemptSpec, wait_s: float = WAIT_S) -> list[int]:
    """Handles of the locks; OSError if they are not free in time, WireError if fenced."""
    held = [lock_file(Path(spec.lock), "an earlier attempt", wait_s)] if spec.lock else []
    with acting_as(spec.user):
        if spec.first_rank == 0:
            held.append(_take(Path(spec.checkpoints), spec, wait_s))
        else:  # the agent of rank 0 has the folder for all of them
            claim(spec.checkpoints, spec.attempt)
    return held


def _take(folder: Path, spec: AttemptSpec, wait_s: float) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    held = lock_file(folder / ".running", f"another job with checkpoints in {folder}", wait_s)
    former = folder / JOB
    if not former.exists() or former.read_text() != spec.job:
        # Attempts of different jobs cannot be compared; the former job is not running.
        (folder / OWNER).unlink(missing_ok=True)
        former.write_text(spec.job)
    claim(folder, spec.attempt)
    return held


def lock_file(path: Path, whose: str, wait_s: float) -> int:
    """Lock a file, waiting until its holder releases it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                os.close(handle)
                raise OSError(error.errno, f"processes of {whose} are still running") from error
            time.sleep(0.05)
        else:
            return handle


# Which agent has an attempt: the one whose claim file was there first.


def claim_attempt(folder: Path) -> bool:
    """Make this process the attempt's agent; False if there is or was one."""
    fresh = folder / f".{CLAIM}.{os.getpid()}"
    me = {"pid": os.getpid(), "began": start_time(os.getpid()), "at": time.time()}
    with os.fdopen(make_file(fresh, os.O_WRONLY | os.O_TRUNC, OPEN), "w") as out:
        json.dump(me, out)
        out.flush()
        os.fsync(out.fileno())
    return put_claim(fresh, folder)
