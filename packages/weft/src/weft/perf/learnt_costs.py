"""Measured costs of changes of devices: starts by model and node, pauses by what is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

import numpy as np

from weft.core.knowledge.costs import AttemptSource, Costs
from weft.core.knowledge.learning import Remembering
from weft.core.model.job import Job, JobId
from weft.perf.restart import restart_s

KEPT = 20  # of the last measurements of each
# Seconds of a pause and for each GB, where none was measured here: `benchmarks.live_resize`.
PAUSE_S, PAUSE_GB_S = 0.05, 0.7

T = TypeVar("T")


def assume_by_name(job: Job) -> float:
    """Return the assumed cost of a job's start before any was seen."""
    return restart_s(job.model)


@dataclass(slots=True)
class CostsSeen:
    """Seconds of first and later starts by `kind/model` and node, and what live changes took.

    `ready` are the seconds until new processes were, by `kind/model`; `pauses` those without a
    step, each behind the GB that were sent, by kind. `able` are the GB of state by model, of those
    that can change, `attempts` the last ones seen.
    """

    firsts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    again: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    ready: dict[str, list[float]] = field(default_factory=dict)
    pauses: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    able: dict[str, float] = field(default_factory=dict)
    attempts: dict[JobId, int] = field(default_factory=dict)


class LearntCosts(Remembering[CostsSeen]):
    """Seconds of first starts, of later ones and of live changes, from what was measured.

    Starts are kept by model and node, and a kind costs the median of its nodes: one slow machine
    does not make the others dear. `assumed` holds until the first is seen.
    """

    def __init__(self, assumed: Callable[[Job], float] = assume_by_name) -> None:
        super().__init__(CostsSeen())
        self._assumed = assumed
        self._known: dict[tuple[str, str], Costs] = {}

    # ---- learning

    def observe_report(self, job: Job, kind: str, attempt: AttemptSource) -> None:
        """A job reported; the first time in an attempt that tells how long the start took."""
        before = self.memory.attempts.get(job.id)
        if before == attempt.number:
            return
        self.memory.attempts[job.id] = attempt.number
        starts = self.memory.firsts if before is None else self.memory.again
        of_kind = starts.setdefault(f"{kind}/{model_of(job)}", {})
        for part in attempt.on.slices:
            _keep(of_kind.setdefault(part.node, []), attempt.at - attempt.began)
        self._known.clear()

    def observe_able(self, job: Job, state_gb: float) -> None:
        if self.memory.able.get(model_of(job)) != state_gb:
            self.memory.able[model_of(job)] = state_gb
            self._known.clear()

    def observe_unable(self, job: Job) -> None:
        self.memory.able.pop(model_of(job), None)
        self._known.clear()

    def observe_pause(
        self, job: Job, kind: str, pause_s: float, state_gb: float, prepare_s: float = 0.0
    ) -> None:
        _keep(self.memory.pauses.setdefault(kind, []), (state_gb, pause_s))
        if prepare_s:
            _keep(self.memory.ready.setdefault(f"{kind}/{model_of(job)}", []), prepare_s)
        self._known.clear()

    def forget(self, job: Job) -> None:
        self.memory.attempts.pop(job.id, None)

    # ---- answers

    def costs(self, job: Job, kind: str) -> Costs:
        key = (model_of(job), kind)
        if key not in self._known:
            self._known[key] = self._costs(job, kind)
        return self._known[key]

    def _costs(self, job: Job, kind: str) -> Costs:
        model = model_of(job)
        first, again = (
            _of_nodes(seen.get(f"{kind}/{model}"))
            for seen in (self.memory.firsts, self.memory.again)
        )
        if first is None and again is None:
            others = [s for name, s in self._all_starts() if name.partition("/")[2] == model]
            first = median(others) if others else self._assumed(job)
        first = again if first is None else first
        again = first if again is None else again
        assert first is not None
        assert again is not None
        state_gb = self.memory.able.get(model)
        if state_gb is None:
            return Costs(first, again)
        ready = self.memory.ready.get(f"{kind}/{model}")
        pause_s, pause_gb_s = self._fit_pause(kind)
        prepare_s = median(ready) if ready else again
        return Costs(first, again, True, prepare_s, pause_s, pause_gb_s, state_gb)

    def _all_starts(self) -> list[tuple[str, float]]:
        return [
            (name, seconds)
            for starts in (self.memory.firsts, self.memory.again)
            for name, nodes in starts.items()
            for seconds in [_of_nodes(nodes)]
            if seconds is not None
        ]

    def _fit_pause(self, kind: str) -> tuple[float, float]:
        """Seconds, and seconds per GB, by least squares; as measured elsewhere before there are."""
        seen = self.memory.pauses.get(kind)
        if not seen:
            return PAUSE_S, PAUSE_GB_S
        sizes, pauses = np.array(seen).T
        if np.ptp(sizes) < 1e-3:
            return max(float(np.median(pauses - PAUSE_GB_S * sizes)), 0.0), PAUSE_GB_S
        slope, rest = np.polyfit(sizes, pauses, 1)
        return max(float(rest), 0.0), max(float(slope), 0.0)


def model_of(job: Job) -> str:
    """Return the key of a job's costs: its model, or the job where it declares none."""
    return job.model or f"job {job.id}"


def _of_nodes(nodes: Mapping[str, list[float]] | None) -> float | None:
    """The median of the nodes' medians; None of none."""
    return median(median(seen) for seen in nodes.values()) if nodes else None


def _keep(seen: list[T], new: T) -> None:
    seen.append(new)
    del seen[:-KEPT]
