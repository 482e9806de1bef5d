"""Run benchmarks by name, or all of them: `python -m benchmarks [NAME ...]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import tomllib
from pathlib import Path

from weft.native import why_not

HERE = Path(__file__).parent
NAMES = (
    "start_up",
    "simulator_speed",
    "decision_scaling",
    "placement_speed",
    "interference",
    "cell_allocation",
)


def main() -> int:
    """Run, print each number beside its expected range, and fail outside it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(
            f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}"
        )
    expected = tomllib.loads((HERE / "expected.toml").read_text())
    if why_not:
        print(f"without compiled parts: {why_not}")
    wrong = 0
    for name in names:
        print(f"== {name}")
        done = importlib.import_module(f"benchmarks.{name}").run()
        for metric, value in done.items():
            limit = expected.get(name, {}).get(metric, {}).get("at_most")
            verdict = "" if limit is None else f"  (at most {limit:g})"
            if limit is not None and value > limit:
                wrong += 1
                verdict += "  OUTSIDE"
            print(f"{metric:<44} {value:>10.4g}{verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
