"""Measurements that one job made of itself on one GPU kind, and the model that explains them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from weft.base.step_fit import FitRow
from weft.base.step_times import StepTime
from weft.perf.goodput.fit import fit

CLOSE = 0.05
NOT_KEPT = {"kept": False}  # the same for all jobs
ONE, SEVERAL = ("local", 1), ("local", 2)  # samples a GPU that were tried


@dataclass(slots=True)
class StepMeasurements:
    """Rows by configuration, the first measurement of each kept; fitted when asked.

    A measurement that the model predicts within `close` does not make it fit again. `fitted`
    makes a model of rows.
    """

    close: float = field(default=CLOSE, metadata=NOT_KEPT)
    fitted: Callable[[Iterable[FitRow]], StepTime] = field(default=fit, metadata=NOT_KEPT)
    rows: dict[tuple[int, int, int], FitRow] = field(default_factory=dict)
    version: int = 0
    _times: StepTime | None = None
    _stale: bool = True
    _reported: set[tuple[str, int]] = field(default_factory=set)

    def observe(self, row: FitRow) -> bool:
        """Take in a measurement; whether it was of a new configuration."""
        key = row[:3]
        if key in self.rows:
            return False
        self.rows[key] = row
        several = SEVERAL in self._reported or len({k[2] for k in self.rows}) > 1
        news = {("regime", regime(row)), SEVERAL if several else ONE}
        if not news <= self._reported or not self._predicts(row):
            self._stale = True
            self.version += 1
        self._reported |= news
        return True

    def times(self) -> StepTime:
        if self._stale or self._times is None:
            self._times, self._stale = self.fitted(self.rows.values()), False
        return self._times

    def _predicts(self, row: FitRow) -> bool:
        if self._times is None or self._stale:
            return False
        grad = self._times.grad(row.local)
        step = self._times.step(row.nodes, row.replicas, row.local)
        off = max(abs(grad / row.grad_s - 1.0), abs(step / row.step_s - 1.0))
        return bool(off < self.close)


def regime(row: FitRow) -> int:
    """Alone, a pair, a node or several nodes: what different parameters are measured by."""
    if row.replicas == 1:
        return 0
    return (2 if row.nodes > 1 else 1) + (2 if row.replicas > 2 else 0)
