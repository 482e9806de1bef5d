"""Run a node's coordinator: `python -m weft.node.tokens SOCKET --discipline NAME`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path

from weft.node.errors import NodeError
from weft.node.guard.locks import lock_file
from weft.node.tokens.coordinator import Coordinator
from weft.node.tokens.disciplines import DISCIPLINES, discipline, within_groups
from weft.node.tokens.server import TokenServer
from weft.wire.attempt import write_whole
from weft.wire.processes import start_time


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m weft.node.tokens", description=__doc__)
    parser.add_argument("socket", type=Path, help="where to listen")
    parser.add_argument(
        "--discipline",
        default="work-conserving",
        help=f"{', '.join(DISCIPLINES)}; parameters as in timeslice:quantum_s=0.5",
    )
    parser.add_argument("--slots", default="", help="holders of a token at once, as in cpu=4,io=2")
    parser.add_argument("--state", type=Path, help="folder that says whose jobs are whose")
    parser.add_argument("--record", type=Path, help="file to write down who is the only one")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if asked.record is not None and not be_the_only_one(asked.record):
        return 0
    try:
        order = within_groups(discipline(asked.discipline))
        coordinator = Coordinator(order, slots(asked.slots))
        asyncio.run(TokenServer(coordinator, asked.socket, asked.state).serve())
    except NodeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def be_the_only_one(record: Path) -> bool:
    """Record this process, unless another one runs: its parent may die at any moment."""
    try:
        lock_file(record.with_suffix(".lock"), "another coordinator", wait_s=0.0)
    except BlockingIOError:
        return False
    write_whole(record, {"pid": os.getpid(), "began": start_time(os.getpid())})
    return True


def slots(text: str) -> dict[str, int]:
    """`cpu=4,io=2` as numbers."""
    counts = {}
    for pair in filter(None, text.split(",")):
        token, _, count = pair.partition("=")
        if not token or not count.isdigit() or int(count) < 1:
            raise NodeError(f"cannot use slots {pair!r}", hint="write them as in cpu=4,io=2")
        counts[token] = int(count)
    return counts


if __name__ == "__main__":
    sys.exit(main())
