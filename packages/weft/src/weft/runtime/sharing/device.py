"""Decides which residents of one device run at this moment, and which are frozen.

Ordinarily all run. To learn a job's speed alone the others are frozen for a second or two, at most
2 % of the time. Jobs that together do no more than turns would take turns. Beside a job that was
firmly promised a slowdown the others are frozen for a part of each second, as large as it must be.
Others run in groups that keep what they were promised.
No clock and no I/O: `tick` takes the time and the observations, and returns which jobs to freeze.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.runtime.sharing.groups import SharingGroups
from weft.runtime.sharing.speeds import WARM_S, ResidentSpeed, ResidentSpeeds

# ---- Keeps firm promises: a job behind its promise has the device until it has
# caught up
#
# What counts is how far a job got, so jobs that come and go meanwhile do not matter. First
# all jobs without a promise wait; where that is not enough, also those with later
# promises.


AIM = 0.6  # of the promised loss: jobs being frozen slow it for a moment longer
MOST_BEHIND_S = 1.0  # that is made up for
YIELDS_S = 0.4  # behind: later promises wait, too
TOLD_S = 1.5  # the least to tell how fast a holder is while all run
SILENT_S = 3.0  # without a step: it is starved, not slow to report


@dataclass(slots=True)
class FirmPromises:
    """Seconds by which each holder of a firm promise is behind what it was promised.

    No job gets ahead of it: what a job has had is no reason to slow it later.
    """

    _behind_s: dict[JobId, float] = field(default_factory=dict)
    _counted: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # until when, steps
    _all_ran: frozenset[JobId] = frozenset()  # all jobs, if none waited since the last time
    _beside: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # done, passed: s
    _there: frozenset[JobId] = frozenset()

    def find_frozen(
        self, now: float, working: Mapping[JobId, ResidentSpeed], speeds: ResidentSpeeds
    ) -> frozenset[JobId]:
        """Jobs that must wait so that promises are kept; none where no speed alone is known."""
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
        """A job is measured alone: that does not count against the others."""
        self._counted.clear()

    def _count(self, now: float, holders: list[ResidentSpeed], speeds: ResidentSpeeds) -> None:
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


def firm_of(working: Mapping[JobId, ResidentSpeed]) -> list[ResidentSpeed]:
    """Jobs promised a slowdown that counts also while they are frozen."""
    return [
        resident for resident in working.values() if resident.promise is not None and resident.firm
    ]


def _firmest(resident: ResidentSpeed) -> tuple[float, float, str]:
    """The firmest promise first, and of several the first that came."""
    return resident.promise or inf, -resident.age_s, resident.job


# ---- Which residents of one device run at this moment, and which are frozen


PROBE_S = 2.0  # in which the others are frozen
LONGEST_PROBE_S = 3.0  # where others begin to train meanwhile
PROBE_PART = 0.02  # of the time
FIRST_APART_S = 30.0  # between the first two of a job; later they are twice as far apart each time
AGAIN_S = 5.0  # after one that told nothing
FIRST_PROBES_S = 4.0  # at once, where a job was promised something
WORTH = 1.05  # what residents must do together; with turns it is 1
TURN_S = 5.0  # at least
ALONE_S = 1.2  # the least to tell how fast a job is alone
JUDGED_S = 3.0  # of the last steps: whether a promise is kept now


@frozen
class ResidentStanding:
    """The state of a resident, for people: what it was promised, and what is measured.

    `broken_s` are the seconds in which its promise was not kept.
    """

    promise: float | None
    pace: float | None
    broken_s: float
    mode: str


@dataclass(slots=True)
class DeviceControl:
    """Control of the residents of one device."""

    speeds: ResidentSpeeds = field(default_factory=ResidentSpeeds)
    mode: str = "together"
    _residents: dict[JobId, ResidentSpeed] = field(default_factory=dict)
    _awake: frozenset[JobId] = frozenset()
    _running: frozenset[JobId] = frozenset()  # those of them that work
    _since: float = 0.0
    _last: float = -inf
    _credit_s: float = 0.0
    _probe: tuple[JobId, float] | None = None  # whose speed alone is measured, and until when
    _probe_end: float = 0.0  # however often it starts over
    _probed: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # next, and interval
    _turn: tuple[JobId, float] | None = None
    _groups: SharingGroups = field(default_factory=SharingGroups)
    _broken_s: dict[JobId, float] = field(default_factory=dict)
    _promises: FirmPromises = field(default_factory=FirmPromises)

    def tick(self, now: float, residents: Mapping[JobId, ResidentSpeed]) -> frozenset[JobId]:
        """The residents that are to be frozen from now until the next tick."""
        self._meet(now, residents)
        self.speeds.learn(now, self._residents, self._awake, self._since, ALONE_S)
        working = {
            job: resident for job, resident in self._residents.items() if resident.is_training
        }
        self._count_broken(now, working)
        self._last = now
        awake = frozenset(residents)
        if len(working) > 1:
            awake -= self._choose_frozen(now, working)
        running = awake & working.keys()
        if running != self._running:
            self._since = now
        self._awake, self._running = awake, running
        return frozenset(residents) - awake

    def resident_state(self, job: JobId) -> ResidentStanding:
        resident = self._residents[job]
        return ResidentStanding(
            resident.promise, self.pace(job), self._broken_s.get(job, 0.0), self.mode
        )

    def pace(self, job: JobId) -> float | None:
        """The part of its speed alone that a job keeps while all run; None if not known."""
        pace = self.speeds.pace(job)
        return self._promises.pace(job) if pace is None else pace

    def beside_now(self, job: JobId) -> tuple[tuple[JobId, ...], float | None]:
        """The jobs that a resident runs beside now, and the part of its speed that it keeps."""
        group = frozenset(
            resident.job for resident in self._residents.values() if resident.is_training
        )
        if self.mode == "groups":
            group &= self._awake
        if job not in group or len(group) < 2:
            return (), None
        rate, alone = self.speeds.groups.get(group, {}).get(job), self.speeds.alone.get(job)
        pace = self.pace(job) if self.mode != "groups" else None
        if self.mode == "groups" and rate is not None and alone is not None:
            pace = min(rate / alone, 1.0)
        return tuple(sorted(group - {job})), pace

    # ---- residents

    def _meet(self, now: float, residents: Mapping[JobId, ResidentSpeed]) -> None:
        before = {job for job, resident in self._residents.items() if resident.is_training}
        working = {job for job, resident in residents.items() if resident.is_training}
        dt = max(now - self._last, 0.0) if self._last > -inf else 0.0
        if len(working) > 1:
            self._credit_s = min(self._credit_s + PROBE_PART * dt, FIRST_PROBES_S)
        if working != before or residents.keys() != self._residents.keys():
            promised = any(
                resident.promise is not None and resident.firm for resident in residents.values()
            )
            if promised and working - before and len(working) > 1:
                self._credit_s = FIRST_PROBES_S
            self.speeds.restart_measuring(residents.keys())
            self._turn, self.mode = None, "together"
            if self._probe is not None and working != before:
                job, _ = self._probe  # it starts over: a newcomer ran beside it for a moment
                self._probe = (job, min(now + PROBE_S, self._probe_end)) if job in working else None
            self._probed = {job: at for job, at in self._probed.items() if job in residents}
            self._broken_s = {job: s for job, s in self._broken_s.items() if job in residents}
        if working != before:
            self._since = now
        self._residents = dict(residents)
        self._awake &= residents.keys()

    # ---- frozen residents

    def _choose_frozen(
        self, now: float, working: Mapping[JobId, ResidentSpeed]
    ) -> frozenset[JobId]:
        probed = self._find_probed(now, working)
        if probed is not None:
            self._promises.pause()
            return frozenset(working) - {probed}
        if not firm_of(working) and any(
            resident.promise is not None for resident in working.values()
        ):
            counted = {
                job: resident for job, resident in working.items() if resident.measured.samples
            }
            self.mode = "groups"
            group = self._groups.choose(now, counted, self.speeds, self._broken_s)
            return frozenset(counted) - group
        total = self.speeds.total(working)
        if self._turn is None and total is not None and total < WORTH and self._is_free(working):
            self.mode = "turns"
        if self.mode == "turns":
            return frozenset(working) - {self._take_turn(now, working)}
        waiting = self._promises.find_frozen(now, working, self.speeds)
        self.mode = "guarded" if waiting else "together"
        return waiting

    def _is_free(self, working: Mapping[JobId, ResidentSpeed]) -> bool:
        """True if no job was promised anything: turns would break it."""
        return not firm_of(working)

    def _find_probed(self, now: float, working: Mapping[JobId, ResidentSpeed]) -> JobId | None:
        """The job whose speed alone is measured now, if any."""
        if self._probe is not None:
            job, until = self._probe
            if now < until and job in working:
                return job
            self._probe = None
            if job not in self.speeds.alone:
                self._probed[job] = now + AGAIN_S, FIRST_APART_S
        if self._credit_s < PROBE_S or self.mode == "turns":
            return None
        promised = [resident.job for resident in firm_of(working)]
        due = [job for job in promised or working if self._is_due(now, working[job])]
        if not due:
            return None
        job = min(due, key=lambda j: (self._probed.get(j, (0.0, 0.0)), j))
        interval = self._probed.get(job, (0.0, FIRST_APART_S))[1]
        self._probed[job] = now + interval, 2.0 * interval
        self._credit_s -= PROBE_S
        self._probe, self._probe_end = (job, now + PROBE_S), now + LONGEST_PROBE_S
        return job

    def _is_due(self, now: float, resident: ResidentSpeed) -> bool:
        """A speed that is not known, or that was measured long ago."""
        job = resident.job
        if now - resident.steps_since < WARM_S:
            return False
        if job not in self.speeds.alone:
            return self._probed.get(job, (0.0, 0.0))[0] <= now
        return self._probed.setdefault(job, (now + 60.0, 60.0))[0] <= now

    def _take_turn(self, now: float, working: Mapping[JobId, ResidentSpeed]) -> JobId:
        """The job that has the device: the one that is likely to need it for the shortest time."""
        if self._turn is not None and self._turn[0] in working and now < self._turn[1]:
            return self._turn[0]
        alone = self.speeds.alone
        job = min(working, key=lambda j: (working[j].left_s(alone.get(j)), j))
        self._turn = job, now + TURN_S
        return job

    # ---- whether promises are kept

    def _count_broken(self, now: float, working: Mapping[JobId, ResidentSpeed]) -> None:
        dt = now - self._last
        if not 0.0 < dt < 5.0 or len(working) < 2:
            return
        for job, resident in working.items():
            if resident.promise is None or not (resident.firm or job in self._awake):
                continue  # frozen jobs wait
            alone, lately = self.speeds.alone.get(job), self._rate_lately(now, resident)
            if (
                alone is not None
                and lately is not None
                and alone > lately * resident.promise * 1.02
            ):
                self._broken_s[job] = self._broken_s.get(job, 0.0) + dt

    def _rate_lately(self, now: float, resident: ResidentSpeed) -> float | None:
        """Steps per second: a firm promise also counts time in which it was frozen."""
        since = now - JUDGED_S if resident.firm else max(now - JUDGED_S / 2, self._since)
        return resident.measured.rate(since, now)
