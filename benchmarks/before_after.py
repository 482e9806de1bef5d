"""Steps with 10,000 waiting jobs and the import of `weft`, beside those of another revision.

    python -m benchmarks.before_after REVISION [--jobs 10000] [--rounds 3]

Both trees are measured in turn, each in a process of its own, and the least CPU time counts, for
other work on the machine makes CPU time longer too. Jobs are plain, on 512 GPUs; predictors have
seen 2,000 ends. A case that the other revision does not know is left empty.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import ROOT

STEPS = ROOT / "benchmarks" / "waiting_steps.py"
IMPORT = "import time; b = time.process_time(); import weft; print(1e3 * (time.process_time() - b))"
CASES = {
    "import weft": (),
    "weft, alike": ("weft", "alike"),
    "weft, history": ("weft", "history"),
    "weft, none": ("weft", "none"),
    "gittins": ("gittins", "none"),
    "fifo, backfill": ("fifo:backfill=true", "none"),
}


def measure(tree: Path, case: tuple[str, ...], jobs: int) -> float | None:
    """CPU milliseconds of one case with the package of one tree; None if it has no such case."""
    args = [str(STEPS), *case, str(jobs)] if case else ["-c", IMPORT]
    sources = map(str, sorted(tree.glob("packages/*/src")))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    done = subprocess.run(
        [sys.executable, *args], env=environment, cwd=tree, capture_output=True, text=True
    )
    return None if done.returncode else float(done.stdout)


def main() -> int:
    """Print a line a case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before_after", description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "archive", asked.revision, "packages"]
        tar = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=tar.stdout, check=True)
        print("| CPU ms | before | now | ratio |\n|---|--:|--:|--:|", flush=True)
        for name, case in CASES.items():
            took: list[list[float]] = [[], []]
            for _ in range(asked.rounds):
                for times, tree in zip(took, (Path(folder), ROOT), strict=True):
                    if (measured := measure(tree, case, asked.jobs)) is not None:
                        times.append(measured)
            before, now = (min(times) if times else None for times in took)
            ratio = f"{now / before:.2f}" if before and now else ""
            cells = (f"{value:.1f}" if value else "" for value in (before, now))
            print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
