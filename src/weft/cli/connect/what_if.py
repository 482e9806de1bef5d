"""A what-if of the service, with its progress while it is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.cli.connect.client import Client, Refused
from weft.service.responses.answers import Comparison
from weft.service.responses.what_if import WhatIfLine

Report = Callable[[str, float], None]  # of a side's label, and the part done of it


def ask_what_if(
    client: Client, body: dict[str, Any], progress: Report = lambda _label, _part: None
) -> Comparison:
    """What comes of it, however long that takes."""
    for line in client.lines(WhatIfLine, "/what-if/stream", body):
        if line.progress is not None:
            progress(line.progress.label, line.progress.part)
        if line.problem is not None:
            raise Refused(line.problem.error, hint=line.problem.hint)
        if line.result is not None:
            return line.result
    raise Refused("the service ended before the simulation did", hint="ask again")
