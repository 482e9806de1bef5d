"""Views that are drawn again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.frozen import frozen
from weft.service.responses.answers import ClusterAnswer, JobAnswer, NodeAnswer, Nodes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.cli.connect.client import Client

EVERY_S = 1.0


def repeat(
    look: Callable[[int], RenderableType],
    *,
    every_s: float = EVERY_S,
    done: Callable[[], bool] = lambda: False,
    full: bool = False,
    interrupts: bool = False,
) -> None:
    """Draw `look(width)` in place until Ctrl-C or until `done`; `full` takes the whole screen.

    With `interrupts` Ctrl-C goes on to the caller. A service that is away for a while is shown
    as such, and asked again.
    """
    from rich.live import Live
    from rich.text import Text

    from weft.cli.connect.client import Unreachable
    from weft.cli.view.screen import console

    screen = console()
    look(screen.width)  # a first mistake is an error, not a picture
    try:
        with Live(console=screen, auto_refresh=False, screen=full, transient=False) as live:
            while True:
                try:
                    live.update(look(screen.width), refresh=True)
                except Unreachable as error:
                    live.update(Text(f"{error.what}; waiting for it", style="yellow"), refresh=True)
                if done():
                    return
                time.sleep(every_s)
    except KeyboardInterrupt:
        if interrupts:
            raise


@frozen
class ClusterSnapshot:
    """The cluster, its nodes and the jobs that have not ended."""

    cluster: ClusterAnswer
    nodes: list[NodeAnswer]
    jobs: list[JobAnswer]


def read_snapshot(client: Client) -> ClusterSnapshot:
    """What there is now."""
    from weft.cli.connect.pages import active_jobs

    nodes = client.get(Nodes, "/nodes").nodes
    return ClusterSnapshot(client.get(ClusterAnswer, "/cluster"), nodes, active_jobs(client))
