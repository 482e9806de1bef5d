"""What `make up` costs until the first job runs: CPU seconds and MB, in a fresh clone.

    python -m benchmarks.first_look [--commit OTHER]

The clone is temporary; run it twice, so that the package cache is warm. With --commit the same is
done for another commit first, and ratios are printed. CPU is of all processes: of the installation,
and of the demonstration until its first job runs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.measure import ROOT

CHILD_SUBREAPER = (
    36  # Linux: orphans of our children become ours, so that their CPU time is counted
)
RUNS = ": running on"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default="", help="another commit to compare with")
    other = parser.parse_args().commit
    ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
    before = first_look(other) if other else {}
    for name, value in first_look("HEAD").items():
        ratio = f"  {value / before[name]:5.2f} of {before[name]:.0f}" if other else ""
        print(f"{name:44} {value:7.1f}{ratio}")


def first_look(commit: str) -> dict[str, float]:
    """What a person's first minute costs in a fresh clone at a commit."""
    with tempfile.TemporaryDirectory(prefix="weft-first-look-") as folder:
        subprocess.run(["git", "clone", "-q", "--no-checkout", str(ROOT), folder], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=folder, check=True)
        began, wall = used_s(), time.monotonic()
        subprocess.run(
            ["make", ".venv/.demo"], cwd=folder, check=True, stdout=subprocess.DEVNULL, env=clean()
        )
        installed = used_s()
        size = sum(path.lstat().st_size for path in Path(folder, ".venv").rglob("*")) / 1e6
        seen, used = first_job(Path(folder))
        return {
            "install, CPU s": installed - began,
            "start and first job, CPU s": used - installed,
            "until the first job runs, CPU s in all": used - began,
            "until the first job runs, s by the clock": seen - wall,
            "environment, MB": size,
        }


def first_job(folder: Path) -> tuple[float, float]:
    """When the demonstration's first job ran, and CPU seconds till then; all of it has ended."""
    port = str(20_000 + os.getpid() % 10_000)
    demo = subprocess.Popen(
        [".venv/bin/weft", "demo", "--exit", "--port", port],
        cwd=folder,
        env=clean(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    for line in demo.stdout:
        if RUNS in line:
            break
    seen, used = time.monotonic(), used_s()
    demo.send_signal(signal.SIGINT)
    demo.communicate()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return seen, used


def used_s() -> float:
    """CPU seconds of all that we started, whether it has ended or not."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    parents, ticks = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            ticks[int(path.parent.name)] = sum(int(field) for field in fields[11:15])
    ours = sum(count for pid, count in ticks.items() if is_below(pid, os.getpid(), parents))
    return ended.ru_utime + ended.ru_stime + ours / os.sysconf("SC_CLK_TCK")


def is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    """Whether a process was started by another, or by one that it started."""
    while pid in parents and pid != top:
        pid = parents[pid]
        if pid == top:
            return True
    return False


def clean() -> dict[str, str]:
    """Our surroundings without what would make Python forget what it compiled."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    main()
