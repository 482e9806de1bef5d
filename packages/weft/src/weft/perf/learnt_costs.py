"""What changes of devices cost, as measured: starts by model and node, pauses by what is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, TypeVar

import numpy as np

from weft.core.knowledge.costs import Attempt, Costs
from weft.core.model.job import Job, JobId
from weft.perf.restart import restart_s

KEPT = 20  # of the last measurements of each
# Seconds of a pause and for each GB, where none was measured here: `benchmarks.live_resize`.
PAUSE_S, PAUSE_GB_S = 0.05, 0.7

T = TypeVar("T")
Sizes = dict[str, list[tuple[float, float]]]


def assume_by_name(job: Job) -> float:
    """What a start of a job is taken to cost before any was seen."""
    return restart_s(job.model)


class LearntCosts:
    """Seconds of first starts, of later ones and of live changes, from what was measured.

    Starts are kept by model and node, and a kind costs the median of its nodes: one slow machine
    does not make the others dear. `assumed` holds until the first is seen.
    """

    def __init__(self, assumed: Callable[[Job], float] = assume_by_name) -> None:
        self._assumed = assumed
        self._firsts: dict[str, dict[str, list[float]]] = {}
        self._again: dict[str, dict[str, list[float]]] = {}
        self._ready: dict[str, list[float]] = {}
        self._pauses: Sizes = {}
        self._able: dict[str, float] = {}
        self._attempts: dict[JobId, int] = {}
        self._known: dict[tuple[str, str], Costs] = {}

    # ---- learning

    def observe_report(self, job: Job, kind: str, attempt: Attempt) -> None:
        """A job reported; the first time in an attempt that tells how long the start took."""
        before = self._attempts.get(job.id)
        if before == attempt.number:
            return
        self._attempts[job.id] = attempt.number
        starts = self._firsts if before is None else self._again
        of_kind = starts.setdefault(f"{kind}/{model_of(job)}", {})
        for part in attempt.on.slices:
            _keep(of_kind.setdefault(part.node, []), attempt.at - attempt.began)
        self._known.clear()

    def observe_able(self, job: Job, state_gb: float) -> None:
        """A job can change its devices as it trains."""
        if self._able.get(model_of(job)) != state_gb:
            self._able[model_of(job)] = state_gb
            self._known.clear()

    def observe_unable(self, job: Job) -> None:
        """A job could not."""
        self._able.pop(model_of(job), None)
        self._known.clear()

    def observe_pause(
        self, job: Job, kind: str, pause_s: float, state_gb: float, prepare_s: float = 0.0
    ) -> None:
        """A job paused for so long when its new processes were sent `state_gb`."""
        _keep(self._pauses.setdefault(kind, []), (state_gb, pause_s))
        if prepare_s:
            _keep(self._ready.setdefault(f"{kind}/{model_of(job)}", []), prepare_s)
        self._known.clear()

    def forget(self, job: Job) -> None:
        """A job has left."""
        self._attempts.pop(job.id, None)

    # ---- answers

    def costs(self, job: Job, kind: str) -> Costs:
        """Of a job on a GPU kind."""
        key = (model_of(job), kind)
        if key not in self._known:
            self._known[key] = self._costs(job, kind)
        return self._known[key]

    def _costs(self, job: Job, kind: str) -> Costs:
        model = model_of(job)
        first, again = (
            _of_nodes(seen.get(f"{kind}/{model}")) for seen in (self._firsts, self._again)
        )
        if first is None and again is None:
            others = [s for name, s in self._all_starts() if name.partition("/")[2] == model]
            first = median(others) if others else self._assumed(job)
        first = again if first is None else first
        again = first if again is None else again
        assert first is not None
        assert again is not None
        state_gb = self._able.get(model)
        if state_gb is None:
            return Costs(first, again)
        ready = self._ready.get(f"{kind}/{model}")
        pause_s, pause_gb_s = self._fit_pause(kind)
        prepare_s = median(ready) if ready else again
        return Costs(first, again, True, prepare_s, pause_s, pause_gb_s, state_gb)

    def _all_starts(self) -> list[tuple[str, float]]:
        return [
            (name, seconds)
            for starts in (self._firsts, self._again)
            for name, nodes in starts.items()
            for seconds in [_of_nodes(nodes)]
            if seconds is not None
        ]

    def _fit_pause(self, kind: str) -> tuple[float, float]:
        """Seconds, and seconds per GB, by least squares; as measured elsewhere before there are."""
        seen = self._pauses.get(kind)
        if not seen:
            return PAUSE_S, PAUSE_GB_S
        sizes, pauses = np.array(seen).T
        if np.ptp(sizes) < 1e-3:
            return max(float(np.median(pauses - PAUSE_GB_S * sizes)), 0.0), PAUSE_GB_S
        slope, rest = np.polyfit(sizes, pauses, 1)
        return max(float(rest), 0.0), max(float(slope), 0.0)

    # ---- keeping

    def save(self) -> Any:
        """All that was measured."""
        return {
            "firsts": self._firsts,
            "again": self._again,
            "ready": self._ready,
            "pauses": {
                kind: [list(pause) for pause in seen] for kind, seen in self._pauses.items()
            },
            "able": self._able,
            "attempts": self._attempts,
        }

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        self._firsts, self._again = _copy(saved["firsts"]), _copy(saved["again"])
        self._ready = {name: list(seen) for name, seen in saved["ready"].items()}
        self._pauses = {
            kind: [(size, pause) for size, pause in seen] for kind, seen in saved["pauses"].items()
        }
        self._able = dict(saved["able"])
        self._attempts = {JobId(job): number for job, number in saved["attempts"].items()}


def model_of(job: Job) -> str:
    """What a job's costs are kept under: its model, or itself where it declares none."""
    return job.model or f"job {job.id}"


def _of_nodes(nodes: Mapping[str, list[float]] | None) -> float | None:
    """The median of the nodes' medians; None of none."""
    return median(median(seen) for seen in nodes.values()) if nodes else None


def _keep(seen: list[T], new: T) -> None:
    seen.append(new)
    del seen[:-KEPT]


def _copy(starts: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    return {
        key: {node: list(seen) for node, seen in nodes.items()} for key, nodes in starts.items()
    }
