"""CPU time, memory, and where the public data is."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def data_folder() -> Path | None:
    """The folder of public traces, if it is there."""
    folder = Path(os.environ.get("WEFT_DATA", ROOT.parent / "shared" / "data"))
    return folder if folder.is_dir() else None


def cpu_s(work: Callable[[], object], runs: int = 5) -> float:
    """Median CPU seconds of this process over some runs."""
    took = []
    for _ in range(runs):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return statistics.median(took)


def command(args: list[str]) -> tuple[float, float]:
    """CPU seconds and peak GB of a command in its own process."""
    child = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(args)} failed with exit code {child.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6
