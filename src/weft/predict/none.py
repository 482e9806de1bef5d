"""No knowledge of remaining times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.knowledge import Asks, NothingLearnt
from weft.core.model import Job
from weft.core.table import Floats, Table


@dataclass(frozen=True, slots=True)
class NoPredictor(NothingLearnt):
    """Knows nothing: every job may take for ever."""

    label = "none"
    asks = Asks()

    def remaining(self, table: Table, now: float) -> Floats:  # noqa: ARG002
        """Infinite for every job."""
        return np.full(len(table), np.inf)

    def learn(self, job: Job, ran: float) -> None:
        """Nothing to learn."""
