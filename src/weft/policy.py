"""Everything a small policy needs, in one place."""

from weft.core.about import About, Controls, Needs
from weft.core.asking import ask
from weft.core.model import Allocation, Config, Demand, Job, JobId, Slice
from weft.core.plan import Plan
from weft.core.policy import Policy
from weft.core.view import View
from weft.pieces.pack import backfill, in_turn, pack
from weft.pieces.place.gangs import consolidate, fewest_nodes, in_gaps
from weft.pieces.wrap.among import decide_among

__all__ = [
    "About",
    "Allocation",
    "Config",
    "Controls",
    "Demand",
    "Job",
    "JobId",
    "Needs",
    "Plan",
    "Policy",
    "Slice",
    "View",
    "ask",
    "backfill",
    "consolidate",
    "decide_among",
    "fewest_nodes",
    "in_gaps",
    "in_turn",
    "pack",
]
