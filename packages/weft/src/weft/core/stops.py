"""Ways to make a running job give its GPUs back, from the cheapest to the dearest."""

from __future__ import annotations

from enum import StrEnum


class Rung(StrEnum):
    """One way to stop, and what it leaves behind.

    A frozen attempt keeps its device memory and uses no time. A suspended one is in host memory
    only. Both go on where they were, on the same devices.
    """

    FREEZE = "freeze"
    SUSPEND = "suspend"
    RESIZE = "resize"  # it trains on elsewhere
    RESTART = "restart"  # a checkpoint, or from the beginning without one
    LEAVE = "leave"  # nothing: it runs on


SLEEPS = (Rung.FREEZE, Rung.SUSPEND)
# On whose behalf an engine is asked: the plan's, or of someone who looks for a second or two.
PLAN, PROBE = "plan", "probe"
