"""Correct ranges for starts by how those that people were shown came out."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.core.events import event as facts
from weft.core.model.job import JobId
from weft.frozen import frozen

OUTSIDE = 0.1  # of the starts at most before a range, and as many after it
STEP, SHIFT = 0.4, 0.1  # of a logarithm, at a start outside, or on either side of the middle
LEAST, MOST = -2.0, 2.5
CAUTIOUS = 0.7  # before any was scored: jobs that nobody has submitted yet are in no simulation
SLACK_S = 30.0  # a start itself takes a while
SOON_S = 60.0  # differences of starts that come sooner are not differences in kind
NARROWEST = 0.2  # what simulations agree on is no surer than that


@frozen
class RangeCorrection:
    """A correction of ranges, in logarithms of waits.

    `shift` moves the middle, and `below` and `above` are factors on the widths on either side.
    """

    below: float = 1.0
    above: float = 1.0
    shift: float = 0.0

    def correct(self, middle_s: float, edge_s: float, side: int) -> float:
        """The edge of a range, below the middle (-1) or above it (1), or the middle itself (0)."""
        if self == AS_SIMULATED:
            return edge_s
        width = abs(math.log((edge_s + SOON_S) / (middle_s + SOON_S)))
        width = side * max(width, NARROWEST) * (self.above if side > 0 else self.below)
        return max((middle_s + SOON_S) * math.exp(self.shift + width) - SOON_S, 0.0)


AS_SIMULATED = RangeCorrection()


@dataclass(slots=True)
class StartScores:
    """Corrects ranges by those that did not hold, until four of five do.

    Each start outside its range widens the next ones, and each inside narrows them a ninth of
    that, on either side: in the long run a tenth lies outside on either, whatever the policy and
    the jobs are (Gibbs and Candes 2021). The middle follows the starts likewise. Of many ranges
    that were open at once each counts less: they are wrong together, and what the first of them
    teaches comes too late for the others. `made` and `kept` count ranges that are over.
    """

    made: int = 0
    kept: int = 0
    _below: float = 0.0
    _above: float = CAUTIOUS
    _shift: float = 0.0
    _open: defaultdict[JobId, list[_Range]] = field(default_factory=lambda: defaultdict(list))

    def fold(self, at: float, event: facts.Event) -> None:
        """Take in one event of the log."""
        match event:
            case facts.Foretold(job, low_s, mid_s, high_s):
                count = 1 + sum(map(len, self._open.values()))
                span = _Range(at + low_s, at + mid_s, at + high_s, 1.0 / math.sqrt(count))
                self._open[job].append(span)
            case facts.Started(job) | facts.Awoke(job):
                for span in self._open.pop(job, ()):
                    self._settle(span, at)
            case facts.Cancelled(job) | facts.Suspended(job):
                self._open.pop(job, None)
            case facts.PolicyChanged():
                self._open.clear()  # something else is done than what was predicted

    def correction(self, now: float) -> RangeCorrection:
        """The correction of the next ranges; those that are over by now have not held."""
        for job, spans in list(self._open.items()):
            self._open[job] = [span for span in spans if now <= span.high + SLACK_S]
            for span in spans:
                if now > span.high + SLACK_S:
                    self._settle(span, now)
        return RangeCorrection(math.exp(self._below), math.exp(self._above), self._shift)

    def _settle(self, span: _Range, started: float) -> None:
        early, late = started < span.low - SLACK_S, started > span.high + SLACK_S
        self.made += 1
        self.kept += not (early or late)
        step, shift = span.weight * STEP, span.weight * SHIFT
        self._below = _clip(self._below + step * (early - OUTSIDE))
        self._above = _clip(self._above + step * (late - OUTSIDE))
        if abs(started - span.mid) > SLACK_S:
            self._shift = _clip(self._shift + math.copysign(shift, started - span.mid))


class _Range(NamedTuple):
    low: float
    mid: float
    high: float
    weight: float


def _clip(width: float) -> float:
    return min(max(width, LEAST), MOST)
