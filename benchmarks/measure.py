"""CPU time and memory, and how far a comparison may be off."""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def verdict(text: str, worst: float, tolerance: float) -> int:
    """The exit code of a comparison, after its last line: how far it is, and what it cost."""
    print(f"{text}; {time.process_time():.0f} s of CPU time")
    return 0 if worst <= tolerance else 1


@cache
def fingerprint(parts: tuple[str, ...]) -> str:
    """Of these files and folders of the package: results of older ones are not theirs."""
    whole = hashlib.sha256()
    for part in parts:
        path = ROOT / "packages" / "weft" / "src" / "weft" / part
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            whole.update(file.read_bytes())
    return whole.hexdigest()[:12]


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
