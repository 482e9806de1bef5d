"""Everything a small policy needs, in one place."""

from weft.core.model.job import Allocation, Config, Demand, Job, JobId, Slice
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.pieces.pack import backfill, in_turn, pack
from weft.pieces.place.gangs import consolidate, fewest_nodes, in_gaps
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask

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
