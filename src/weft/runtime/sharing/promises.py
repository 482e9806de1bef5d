"""Keeps firm promises: who is behind what it was promised has the device until it has caught up.

What counts is how far a job got, so who comes and goes meanwhile does not matter. First everybody
waits to whom nothing was promised; where that is not enough, also those with later promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.model.job import JobId
from weft.runtime.sharing.speeds import Resident, Speeds

AIM = 0.6  # of the promised loss: who is frozen slows it for a moment longer
MOST_BEHIND_S = 1.0  # that is made up for
YIELDS_S = 0.4  # behind: later promises wait, too
TOLD_S = 1.5  # the least to tell how fast a holder is while all run
SILENT_S = 3.0  # without a step: it is starved, not slow to report


@dataclass(slots=True)
class FirmPromises:
    """How many seconds each holder of a firm promise is behind what it was promised.

    Nobody gets ahead of it: what a job has had is no reason to slow it later.
    """

    _behind_s: dict[JobId, float] = field(default_factory=dict)
    _counted: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # until when, steps
    _all_ran: frozenset[JobId] = frozenset()  # who, if nobody waited since the last time
    _beside: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # done, passed: s
    _there: frozenset[JobId] = frozenset()

    def find_frozen(
        self, now: float, working: Mapping[JobId, Resident], speeds: Speeds
    ) -> frozenset[JobId]:
        """Who is to wait so that promises are kept; none where no speed alone is known."""
        holders = sorted(firm_of(working), key=_firmest)
        if self._there != working.keys():
            self._there = frozenset(working)
            self._beside.clear()
        self._count(now, holders, speeds)
        behind = [self._behind_s.get(holder.job, 0.0) for holder in holders]
        waiting = set[JobId]()
        if any(behind):
            waiting |= working.keys() - {holder.job for holder in holders}
        for number, holder in enumerate(holders):
            if max(behind[:number], default=0.0) > YIELDS_S:
                waiting.add(holder.job)
        self._all_ran = frozenset() if waiting else frozenset(working)
        return frozenset(waiting)

    def pace(self, job: JobId) -> float | None:
        """The part of its speed alone that a holder had while all ran; None if not known."""
        done_s, seconds = self._beside.get(job, (0.0, 0.0))
        return min(done_s / seconds, 1.0) if seconds >= TOLD_S else None

    def pause(self) -> None:
        """Somebody is measured alone: that is not held against anybody."""
        self._counted.clear()

    def _count(self, now: float, holders: list[Resident], speeds: Speeds) -> None:
        """Take in the steps that were reported since the last time, which may come in lumps."""
        before, self._counted = self._counted, {}
        behind_s, self._behind_s = self._behind_s, {}
        for holder in holders:
            alone, samples = speeds.alone.get(holder.job), holder.measured.samples
            if not alone or not samples or holder.promise is None:
                continue
            at, steps = samples[-1]
            if now - at > SILENT_S:
                at = now
            began, had = before.get(holder.job, (now, steps))
            if at <= began:
                at, steps = began, had  # nothing was reported since
            if self._all_ran == self._there:
                done_s, seconds = self._beside.get(holder.job, (0.0, 0.0))
                self._beside[holder.job] = done_s + (steps - had) / alone, seconds + at - began
            gained_s = (steps - had) / alone * (1.0 + AIM * (holder.promise - 1.0))
            moved_s = behind_s.get(holder.job, 0.0) + at - began - gained_s
            self._behind_s[holder.job] = min(max(moved_s, 0.0), MOST_BEHIND_S)
            self._counted[holder.job] = at, steps


def firm_of(working: Mapping[JobId, Resident]) -> list[Resident]:
    """Who was promised a slowdown that counts also while it is frozen."""
    return [
        resident for resident in working.values() if resident.promise is not None and resident.firm
    ]


def _firmest(resident: Resident) -> tuple[float, float, str]:
    """The firmest promise first, and of several the first that came."""
    return resident.promise or inf, -resident.age_s, resident.job
