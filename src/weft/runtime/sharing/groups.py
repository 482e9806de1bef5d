"""Who runs at once so that nobody who runs is slower than it was promised for long.

Everybody runs until that has cost somebody a few seconds of its promise, or may have, as nobody
knows how fast it is alone. From then on it is protected: it is measured alone, and runs only beside
others that were not seen to slow it by more. The others wait meanwhile, frozen. Whoever needs the
device for the shortest time goes first, as far as steps tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log2

from weft.core.model.job import JobId
from weft.runtime.sharing.speeds import Resident, Speeds

TURN_S = 4.0
MOST_BROKEN_S = 5.0  # of a job, in sum
BROKEN_PART = 0.01  # of the time of a long job
PROTECTED_S = 2.5  # of a broken promise: from then on it is kept
TRIAL_S = 1.75  # that it takes to see whether others slow a protected job
PATIENCE_S = 120.0  # of who is frozen: then it goes first
SHORT_S = 16.0  # shorter ones count as alike
AIM = 0.96  # of a promised slowdown: speeds go up and down
UNSURE = 0.85  # of a pace that was not measured in the same group
WORTH = 1.05  # what a group must do together; one after the other it is 1

Protected = Mapping[
    JobId, bool
]  # whose promise is kept, and whether they can afford one trial more


@dataclass(slots=True)
class Groups:
    """The group that runs, and until when its turn lasts."""

    group: frozenset[JobId] = frozenset()
    _until: float = -inf
    _there: frozenset[JobId] = frozenset()
    _ran: dict[JobId, float] = field(default_factory=dict)

    def choose(
        self,
        now: float,
        working: Mapping[JobId, Resident],
        speeds: Speeds,
        broken_s: Mapping[JobId, float],
    ) -> frozenset[JobId]:
        """Who runs now; `broken_s` counts time in which nobody knows how fast a job is alone."""
        self._ran = {job: self._ran.get(job, now) for job in working}
        spent = {job: broken_s.get(job, 0.0) for job in working}
        protected = {
            job: s + TRIAL_S <= max(MOST_BROKEN_S, BROKEN_PART * working[job].age_s)
            for job, s in spent.items()
            if s >= PROTECTED_S
        }
        if not self._goes_on(now, working, speeds, protected):
            self.group = self._make(now, working, speeds, protected)
            self._until, self._there = now + TURN_S, frozenset(working)
        self._ran.update(dict.fromkeys(self.group, now))
        return self.group

    def _goes_on(
        self,
        now: float,
        working: Mapping[JobId, Resident],
        speeds: Speeds,
        protected: Protected,
    ) -> bool:
        """Whether the group that runs is to go on."""
        if now >= self._until or self._there != working.keys():
            return False
        if any(job not in speeds.alone for job in protected):
            return len(self.group) == 1 and self.group <= protected.keys() - speeds.alone.keys()
        return can_run(self.group, working, speeds, protected) is not False

    def _make(
        self,
        now: float,
        working: Mapping[JobId, Resident],
        speeds: Speeds,
        protected: Protected,
    ) -> frozenset[JobId]:
        order = sorted(working, key=lambda job: self._rank(now, working[job], speeds, protected))
        group = frozenset({order[0]})
        if order[0] in protected and order[0] not in speeds.alone:
            return group
        untried = []
        for job in order[1:]:
            fits = can_run(group | {job}, working, speeds, protected)
            if fits:
                group |= {job}
            elif fits is None:
                untried.append(job)
        if not untried or not all(protected.get(job, True) for job in group):
            return group
        # Whoever is hardly slowed by many is likely to slow others little.
        able = [job for job in untried if protected.get(job, True)]
        if not able:
            return group
        best = max(able, key=lambda job: (speeds.best_pace(job), -order.index(job)))
        return (
            group
            if can_run(group | {best}, working, speeds, protected) is False
            else group | {best}
        )

    def _rank(
        self, now: float, one: Resident, speeds: Speeds, protected: Protected
    ) -> tuple[int, float, str]:
        """Who must be measured alone, then who has waited for long, then the shortest.

        Of about the same length, within a factor of two, who came first.
        """
        alone = speeds.alone.get(one.job)
        if alone is None and one.job in protected:
            return 0, one.steps_since, one.job
        if now - self._ran[one.job] > PATIENCE_S:
            return 1, one.steps_since, one.job
        return 2 + max(int(log2(max(one.left_s(alone), SHORT_S))), 0), one.steps_since, one.job


def can_run(
    group: frozenset[JobId],
    working: Mapping[JobId, Resident],
    speeds: Speeds,
    protected: Protected,
) -> bool | None:
    """Whether its protected members keep what they were promised; None if nobody knows.

    Nor does a group run that was seen to do no more together than one after the other.
    """
    if len(group) == 1:
        return True
    known = {job: speeds.pace_in(group, job) for job in group}
    paces = [pace for pace in known.values() if pace is not None]
    if len(paces) == len(group) and sum(paces) < WORTH:
        return False
    unknown = False
    for job in group & protected.keys():
        pace, sure = known[job], protected[job] or group in speeds.groups
        if pace is None:
            unknown = True
        elif pace * (1.0 if sure else UNSURE) * AIM * (working[job].promise or inf) < 1.0:
            return False
    return None if unknown else True
