"""Keep the book of this machine's devices: `python -m weft.node.memory SOCKET`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from weft.node.memory.server import ALONE_S, BookServer
from weft.node.tokens.__main__ import be_the_only_one


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m weft.node.memory", description=__doc__)
    parser.add_argument("socket", type=Path, help="where to listen")
    parser.add_argument("--state", type=Path, required=True, help="folder of the jobs")
    parser.add_argument("--record", type=Path, help="file to write down who is the only one")
    parser.add_argument("--alone-s", type=float, default=ALONE_S, help="until it ends by itself")
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if asked.record is not None and not be_the_only_one(asked.record):
        return 0
    asyncio.run(BookServer(asked.socket, asked.state, asked.record, asked.alone_s).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
