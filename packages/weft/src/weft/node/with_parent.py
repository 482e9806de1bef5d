"""An agent that ends with the process that started it.

    python -m weft.node.with_parent FOLDER PARENT

For programs that must be sure that nothing keeps running once they are gone: a node that its
cluster has given up must not go on training.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from weft.node.agent import main
from weft.wire.processes import die_with_parent

ORPHAN = 4


def run(folder: Path, parent: int) -> int:
    """Run the attempt unless `parent` is gone already."""
    for number in (signal.SIGINT, signal.SIGQUIT):  # which a worker of Ray ignores
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent()
    if os.getppid() != parent:  # it ended before we could ask to end with it
        return ORPHAN
    return main(folder)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), int(sys.argv[2])))
