"""How many jobs a simulation can afford: more and more of them, until the CPU time is spent."""

from __future__ import annotations

from collections.abc import Callable

from weft.app.insight.present import STEP
from weft.app.insight.purse import Purse
from weft.sim.driver import Progress

FEWEST = 50  # jobs, whatever it takes
GROWTH = 3.0  # at most, from one try to the next
LEAST_GROWTH = 1.2  # less is not worth another try
SAFE = 0.5  # of what is left: what a job takes grows with the number of jobs


class TooDear(Exception):  # noqa: N818 - no error of anybody's
    """The simulation has taken all it had."""


def more_jobs(jobs: int, total: int, took_s: float, left_s: float) -> int:
    """How many jobs to try after so many `took_s`; as many where no more can be afforded."""
    growth = min(GROWTH, SAFE * left_s / max(took_s, 1e-9))
    return min(int(jobs * growth), total) if growth >= LEAST_GROWTH else jobs


def watch_spending(
    purse: Purse, progress: Callable[[float], None] | None, whole: float = 1.0
) -> Progress:
    """Tells how far a simulation is, which is so much of the `whole`; raises TooDear if it must."""
    said = 0.0

    def hear(done: int, total: int) -> None:
        nonlocal said
        if purse.empty:
            raise TooDear
        part = done / total * whole
        if progress is not None and (part >= said + STEP or done == total):
            said = part
            progress(part)

    return hear
