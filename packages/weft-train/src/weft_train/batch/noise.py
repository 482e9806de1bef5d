"""Gradient noise, from squared norms of gradients over few and over many samples.

The mean gradient of b samples has expected squared norm |G|² + S / b, where G is the true
gradient and S the trace of one sample's covariance (McCandlish et al., "An empirical model of
large-batch training", 2018, appendix A). Two sizes give both unknowns. Where the two come from
is up to the caller: one rank and all ranks, one micro-batch and the whole step, or one step and
the mean of two (Qiao et al., "Pollux", OSDI 2021, take the same way on a single GPU).
"""

from __future__ import annotations

from dataclasses import dataclass, field

TINY = 1e-12
SMOOTH = 0.98  # of the running means; about the last fifty measurements count

_UNKNOWN = (0.0, 1.0)  # a batch and its gain


@dataclass(frozen=True, slots=True)
class Norms:
    """Squared norms of mean gradients over `few` and over `many` samples."""

    few_sqr: float
    few: float
    many_sqr: float
    many: float


@dataclass(slots=True)
class GradientNoise:
    """Running means of |G|² and S; each is averaged alone, since single ratios are biased.

    Until the window is full, measurements weigh by their number: the first steps of a training have
    gradients a hundred times as large, and would be all that an even mean shows.
    """

    init_batch: float
    smooth: float = SMOOTH
    _sqr: float = 0.0
    _spread: float = 0.0
    _count: int = field(default=0)
    _gain: tuple[float, float] = field(default=_UNKNOWN, compare=False, repr=False)

    def observe(self, seen: Norms) -> None:
        """Take in one pair of norms; pairs that are not numbers (an overflow) are left out."""
        if not seen.few_sqr < float("inf") or not seen.many_sqr < float("inf"):
            return
        if not seen.many > seen.few > 0:
            return
        sqr = (seen.many * seen.many_sqr - seen.few * seen.few_sqr) / (seen.many - seen.few)
        spread = (seen.few_sqr - seen.many_sqr) / (1.0 / seen.few - 1.0 / seen.many)
        keep = min(self.smooth, self._count / (self._count + 2.0))
        self._sqr = keep * self._sqr + (1.0 - keep) * sqr
        self._spread = keep * self._spread + (1.0 - keep) * spread
        self._count += 1
        self._gain = _UNKNOWN

    @property
    def known(self) -> bool:
        """True if enough steps were measured."""
        return self._count >= 8

    @property
    def sqr(self) -> float:
        """|G|², never negative; where noise drowns it, a ten-thousandth of the variance."""
        return max(self._sqr, self.var * 1e-4, TINY)

    @property
    def var(self) -> float:
        """Variance of the gradient at the initial batch size."""
        return max(self._spread / self.init_batch, TINY)

    @property
    def scale(self) -> float:
        """The noise scale S / |G|²: batches well below it waste no samples."""
        return self.var * self.init_batch / self.sqr

    def gain(self, batch: float) -> float:
        """Initial-size steps that a step of `batch` samples is worth (AdaScale's gain ratio)."""
        if not self.known:
            return 1.0
        if self._gain[0] != batch:  # asked for in every step, new after a few
            var, sqr = self.var, self.sqr
            self._gain = (batch, (var + sqr) / (var * self.init_batch / batch + sqr))
        return self._gain[1]

    def state_dict(self) -> dict[str, float]:
        return {"sqr": self._sqr, "spread": self._spread, "count": float(self._count)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self._sqr, self._spread = state["sqr"], state["spread"]
        self._count = int(state["count"])
        self._gain = _UNKNOWN
