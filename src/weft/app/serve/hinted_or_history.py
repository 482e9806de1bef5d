"""What a service knows of jobs before they tell: remaining times from hints, else from history."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.knowledge import Asks
from weft.core.model import Job
from weft.core.table import Floats, Table
from weft.predict.hinted import Hinted
from weft.predict.history import History


class HintedOrAlike:
    """The hint `duration_s` where a job has one, else what finished jobs alike took."""

    label = "hinted, else history"
    asks = Asks()

    def __init__(self) -> None:
        self._hinted = Hinted()
        self._history = History()

    def remaining(self, table: Table, now: float) -> Floats:
        """Seconds left; infinite for a job without a hint before any has finished."""
        told = self._hinted.remaining(table, now)
        if np.isfinite(told).all():
            return told
        return np.where(np.isfinite(told), told, self._history.remaining(table, now))

    def save(self) -> Any:
        """What finished jobs took."""
        return self._history.save()

    def load(self, saved: Any) -> None:
        """Take up what `save` gave."""
        self._history.load(saved)

    def learn(self, job: Job, ran: float) -> None:
        """A job finished."""
        self._history.learn(job, ran)
