"""What of ended jobs is kept: the same flags of the service and of `weft state prune`."""

from __future__ import annotations

from typing import Annotated

import typer

Days = Annotated[
    float, typer.Option(help="Days an ended job and its output are kept; 0: always.", min=0.0)
]
Jobs = Annotated[int, typer.Option(help="The most ended jobs to keep; 0: all.", min=0)]
Gigabytes = Annotated[
    float, typer.Option(help="The most GB of ended jobs' output to keep; 0: all.", min=0.0)
]
Events = Annotated[
    int, typer.Option(help="About how many events of the log to keep; 0: all.", min=0)
]
