"""Chooses the jobs that run at once, so that none is slower than promised for long.

All jobs run until that is known to have cost one a few seconds of its promise. From then on
it is protected: it runs only beside others that were not seen to slow it by more, and the others
wait meanwhile, frozen. The job that needs the device for the shortest time goes first, as far as
steps tell. Where the device would do less work that way than with all at once, all run: a
promise that makes its holder wait for longer than it slows it is worth nothing to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf, log2

from weft.core.model.job import JobId
from weft.runtime.sharing.speeds import ResidentSpeed, ResidentSpeeds

TURN_S = 4.0
PROTECTED_S = 2.5  # of a broken promise: from then on it is kept
PATIENCE_S = 120.0  # of a frozen job: then it goes first
SHORT_S = 16.0  # shorter ones count as alike
AIM = 0.96  # of a promised slowdown: speeds go up and down
WORTH = 1.05  # what a group must do together; one after the other it is 1
KEPT = 0.95  # of what all do at once: a group that keeps promises does as much

Protected = Collection[JobId]  # whose promise is kept


@dataclass(slots=True)
class SharingGroups:
    """The group that runs, and until when its turn lasts."""

    group: frozenset[JobId] = frozenset()
    _until: float = -inf
    _there: frozenset[JobId] = frozenset()
    _ran: dict[JobId, float] = field(default_factory=dict)

    def choose(
        self,
        now: float,
        working: Mapping[JobId, ResidentSpeed],
        speeds: ResidentSpeeds,
        broken_s: Mapping[JobId, float],
    ) -> frozenset[JobId]:
        """The jobs that run now; `broken_s` are seconds in which each was slower than promised."""
        self._ran = {job: self._ran.get(job, now) for job in working}
        protected = {job for job in working if broken_s.get(job, 0.0) >= PROTECTED_S}
        if not self._goes_on(now, working, speeds, protected):
            group = self._make(now, working, speeds, protected)
            self.group = group if is_worth(group, working, speeds) else frozenset(working)
            self._until, self._there = now + TURN_S, frozenset(working)
        self._ran.update(dict.fromkeys(self.group, now))
        return self.group

    def _goes_on(
        self,
        now: float,
        working: Mapping[JobId, ResidentSpeed],
        speeds: ResidentSpeeds,
        protected: Protected,
    ) -> bool:
        """True if the group that runs is to go on."""
        if now >= self._until or self._there != working.keys():
            return False
        if len(self.group) == len(working):
            return not protected  # they run although a promise is broken: see whether they must
        return can_run(self.group, working, speeds, protected) is not False

    def _make(
        self,
        now: float,
        working: Mapping[JobId, ResidentSpeed],
        speeds: ResidentSpeeds,
        protected: Protected,
    ) -> frozenset[JobId]:
        order = sorted(working, key=lambda job: self._rank(now, working[job], speeds))
        group = frozenset(order[:1])
        untried = []
        for job in order[1:]:
            fits = can_run(group | {job}, working, speeds, protected)
            if fits:
                group |= {job}
            elif fits is None:
                untried.append(job)
        if not untried:
            return group
        # A job that many hardly slow is likely to slow others little.
        best = max(untried, key=lambda job: (speeds.pace_in_largest_group(job), -order.index(job)))
        return (
            group
            if can_run(group | {best}, working, speeds, protected) is False
            else group | {best}
        )

    def _rank(
        self, now: float, resident: ResidentSpeed, speeds: ResidentSpeeds
    ) -> tuple[int, float, str]:
        """Jobs that have waited for long, then the shortest.

        Of about the same length, within a factor of two, the oldest.
        """
        alone = speeds.alone.get(resident.job)
        if now - self._ran[resident.job] > PATIENCE_S:
            return 1, resident.steps_since, resident.job
        return (
            2 + max(int(log2(max(resident.left_s(alone), SHORT_S))), 0),
            resident.steps_since,
            resident.job,
        )


def is_worth(
    group: frozenset[JobId], working: Mapping[JobId, ResidentSpeed], speeds: ResidentSpeeds
) -> bool:
    """True if the device does about as much for a group as for all at once."""
    everybody = frozenset(working)
    at_once = [speeds.pace_in(everybody, job) for job in everybody]
    known = [pace for pace in at_once if pace is not None]
    if len(known) < len(at_once):
        return False  # what that would cost is unknown
    paces = [speeds.pace_in(group, job) for job in group]
    return sum(1.0 if pace is None else pace for pace in paces) >= KEPT * sum(known)


def can_run(
    group: frozenset[JobId],
    working: Mapping[JobId, ResidentSpeed],
    speeds: ResidentSpeeds,
    protected: Protected,
) -> bool | None:
    """True if its protected members keep what they were promised; None if unknown.

    Nor does a group run that was seen to do no more together than one after the other.
    """
    if len(group) == 1:
        return True
    known = {job: speeds.pace_in(group, job) for job in group}
    paces = [pace for pace in known.values() if pace is not None]
    if len(paces) == len(group) and sum(paces) < WORTH:
        return False
    unknown = False
    for job in group.intersection(protected):
        pace = known[job]
        if pace is None:
            unknown = True
        elif pace * AIM * (working[job].promise or inf) < 1.0:
            return False
    return None if unknown else True
