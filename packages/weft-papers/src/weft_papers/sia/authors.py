"""Sia as the authors' simulator has it (Jayaram Subramanya et al., SOSP 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from weft.core.plan.about import About, Assumes
from weft.core.state.cells import Floats
from weft_papers.sia.policy import Sia


@dataclass(frozen=True)
class AuthorsSia(Sia):
    """Weights are rounded to two decimals, and the program is solved to the last of them."""

    _gap, _step = 0.0, 0.01

    @property
    def about(self) -> About:
        """Jobs and beliefs cap batches as the authors' do."""
        return replace(super().about, assumes=Assumes.BATCH_CAP)

    def _weigh(self, level: Floats) -> Floats:
        return np.round(super()._weigh(level), 2)
