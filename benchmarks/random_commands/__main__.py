"""Random command lines: none may end in a traceback.

    python -m benchmarks.random_commands [--count 100000] [--seed 0]

Every command of `weft` with drawn options, values and input files, run in this process without a
service and without a network; what would start one is kept from it. Prints how often each exit
code came, and each command line that ended in an exception of ours or did not end.
"""

from __future__ import annotations

import argparse
import resource
import sys

from benchmarks.random_commands.fence import try_commands

MEMORY = 8 << 30


def main() -> int:
    """Try and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    findings = try_commands(asked.count, asked.seed, lambda text: print(text, flush=True))
    print(f"{asked.count} commands, {findings.say()}")
    return 1 if findings.tracebacks or findings.too_long else 0


if __name__ == "__main__":
    sys.exit(main())
