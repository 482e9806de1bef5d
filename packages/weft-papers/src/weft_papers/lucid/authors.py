"""Lucid as the authors' simulator has it (Hu et al., ASPLOS 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft_papers.lucid.policy import EPS, Lucid
from weft_papers.lucid.profiler_nodes import ProfilerNodes


@dataclass(frozen=True)
class AuthorsLucid(Lucid):
    """Metrics are known at submission; only jobs predicted to end in time visit the corner."""

    def _measured(self, view: View) -> Bools:
        return np.ones(len(view.table), dtype=bool)

    def _unprofiled(self, view: View, corner: ProfilerNodes, waiting: list[int]) -> list[int]:
        left = view.remaining()
        return [
            row for row in waiting if corner.may_profile(row) and left[row] <= self.limit_s + EPS
        ]
