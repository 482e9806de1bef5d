"""Which agent has an attempt: the one whose claim file was there first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from weft.wire.attempt import CLAIM, put_claim
from weft.wire.processes import start_time


def claim_attempt(folder: Path) -> bool:
    """Make this process the attempt's agent; False if there is or was one."""
    fresh = folder / f".{CLAIM}.{os.getpid()}"
    me = {"pid": os.getpid(), "began": start_time(os.getpid()), "at": time.time()}
    with fresh.open("w") as out:
        json.dump(me, out)
        out.flush()
        os.fsync(out.fileno())
    return put_claim(fresh, folder)
