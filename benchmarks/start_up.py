"""How long people wait for a prompt."""

from __future__ import annotations

import statistics
import sys

from benchmarks.measure import command


def run() -> dict[str, float]:
    cases = {
        "import weft, CPU s": "import weft",
        "weft --help, CPU s": "import sys; sys.argv = ['weft', '--help'];"
        "from weft.cli.main import main; main()",
    }
    return {
        name: statistics.median(command([sys.executable, "-c", code])[0] for _ in range(5))
        for name, code in cases.items()
    }
