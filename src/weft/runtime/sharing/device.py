"""Who of the residents of one device runs at this moment, and who is frozen.

Ordinarily all run. To learn a job's speed alone the others are frozen for a second or two, at most
2 % of the time. Jobs that together do no more than turns would take turns. Beside a job that was
firmly promised a slowdown the others are frozen for a part of each second, as large as it must be,
and for good where that is not enough. Others run in groups that keep what they were promised.
No clock and no I/O: `tick` is told the time and what was seen, and says who is to be frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.runtime.sharing.groups import Groups
from weft.runtime.sharing.speeds import WARM_S, Resident, Speeds

PROBE_S = 2.0  # in which the others are frozen
PROBE_PART = 0.02  # of the time
FIRST_APART_S = 30.0  # between the first two of a job; later they are twice as far apart each time
AGAIN_S = 5.0  # after one that told nothing
FIRST_PROBES_S = 4.0  # at once, where somebody was promised something
WORTH = 1.05  # what residents must do together; with turns it is 1
TURN_S = 5.0  # at least
ALONE_S = 1.2  # the least to tell how fast a job is alone
PAYBACK_S = 3.0  # without neighbours when a promise turns out to be broken
MOST_ALLOWED_S = 1.0  # that neighbours may run at a stretch
JUDGED_S = 3.0  # of the last steps: whether a promise is kept now
TRIM_S = 3.0  # between corrections of a duty cycle
LEAST_TRIM = 0.3  # of a duty cycle: neighbours that break a promise even so stand still
STILL_S = 30.0  # until they are tried again
AIM = 0.96  # of the promised slowdown: a duty cycle is not exact


@frozen
class Standing:
    """How a resident fares, for people: what it was promised, and what is measured.

    `broken_s` are the seconds in which its promise was not kept.
    """

    promise: float | None
    pace: float | None
    broken_s: float
    mode: str


@dataclass(slots=True)
class DeviceControl:
    """One device."""

    speeds: Speeds = field(default_factory=Speeds)
    mode: str = "together"
    _residents: dict[JobId, Resident] = field(default_factory=dict)
    _awake: frozenset[JobId] = frozenset()
    _since: float = 0.0
    _last: float = -inf
    _credit_s: float = 0.0
    _probe: tuple[JobId, float] | None = None  # whose speed alone is measured, and until when
    _probed: dict[JobId, tuple[float, float]] = field(default_factory=dict)  # next, and interval
    _turn: tuple[JobId, float] | None = None
    _groups: Groups = field(default_factory=Groups)
    _broken_s: dict[JobId, float] = field(default_factory=dict)
    _trim: float = 1.0  # of the duty cycle, by how well it keeps the promise
    _trimmed: float = 0.0
    _allowed_s: float = 0.0  # that neighbours of a firm one may still run
    _tick_s: float = 0.25

    def tick(self, now: float, residents: Mapping[JobId, Resident]) -> frozenset[JobId]:
        """Who of the residents is to be frozen from now until the next tick."""
        self._meet(now, residents)
        self.speeds.learn(now, self._residents, self._awake, self._since, ALONE_S)
        working = {job: resident for job, resident in self._residents.items() if resident.works}
        self._count_broken(now, working)
        self._tick_s = min(now - self._last, 1.0) if self._last > -inf else 0.25
        self._last = now
        awake = frozenset(residents)
        if len(working) > 1:
            awake -= self._choose_frozen(now, working)
        if awake != self._awake:
            self._awake, self._since = awake, now
        return frozenset(residents) - awake

    def standing(self, job: JobId) -> Standing:
        """How a resident fares."""
        resident = self._residents[job]
        return Standing(
            resident.promise, self.speeds.pace(job), self._broken_s.get(job, 0.0), self.mode
        )

    def company(self, job: JobId) -> tuple[tuple[JobId, ...], float | None]:
        """Beside whom a resident runs now, and the part of its speed alone that it keeps there."""
        group = frozenset(resident.job for resident in self._residents.values() if resident.works)
        if self.mode == "groups":
            group &= self._awake
        if job not in group or len(group) < 2:
            return (), None
        rate, alone = self.speeds.groups.get(group, {}).get(job), self.speeds.alone.get(job)
        pace = self.speeds.pace(job) if self.mode != "groups" else None
        if self.mode == "groups" and rate is not None and alone is not None:
            pace = min(rate / alone, 1.0)
        return tuple(sorted(group - {job})), pace

    # ---- who is there

    def _meet(self, now: float, residents: Mapping[JobId, Resident]) -> None:
        before = {job for job, resident in self._residents.items() if resident.works}
        working = {job for job, resident in residents.items() if resident.works}
        dt = max(now - self._last, 0.0) if self._last > -inf else 0.0
        if len(working) > 1:
            self._credit_s = min(self._credit_s + PROBE_PART * dt, FIRST_PROBES_S)
        if working != before or residents.keys() != self._residents.keys():
            promised = any(
                resident.promise is not None and resident.firm for resident in residents.values()
            )
            if promised and working - before and len(working) > 1:
                self._credit_s = FIRST_PROBES_S
            if self._probe is not None:
                self._probed.pop(self._probe[0], None)  # it could not be ended
            self.speeds.begin(residents.keys())
            self._probe, self._turn, self.mode = None, None, "together"
            self._probed = {job: at for job, at in self._probed.items() if job in residents}
            self._since = now
            self._broken_s = {job: s for job, s in self._broken_s.items() if job in residents}
        self._residents = dict(residents)
        self._awake &= residents.keys()

    # ---- who is frozen

    def _choose_frozen(self, now: float, working: Mapping[JobId, Resident]) -> frozenset[JobId]:
        probed = self._find_probed(now, working)
        if probed is not None:
            return frozenset(working) - {probed}
        if not _firm_of(working) and any(
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
        return self._slow_down(now, working)

    def _is_free(self, working: Mapping[JobId, Resident]) -> bool:
        """Whether nobody was promised anything: turns would break it."""
        return not _firm_of(working)

    def _find_probed(self, now: float, working: Mapping[JobId, Resident]) -> JobId | None:
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
        promised = [resident.job for resident in _firm_of(working)]
        due = [job for job in promised or working if self._is_due(now, working[job])]
        if not due:
            return None
        job = min(due, key=lambda j: (self._probed.get(j, (0.0, 0.0)), j))
        interval = self._probed.get(job, (0.0, FIRST_APART_S))[1]
        self._probed[job] = now + interval, 2.0 * interval
        self._credit_s -= PROBE_S
        self._probe = job, now + PROBE_S
        return job

    def _is_due(self, now: float, resident: Resident) -> bool:
        """A speed that is not known, or that was measured long ago."""
        job = resident.job
        if now - resident.steps_since < WARM_S:
            return False
        if job not in self.speeds.alone:
            return self._probed.get(job, (0.0, 0.0))[0] <= now
        return self._probed.setdefault(job, (now + 60.0, 60.0))[0] <= now

    def _take_turn(self, now: float, working: Mapping[JobId, Resident]) -> JobId:
        """Who has the device: whoever is likely to need it for the shortest time."""
        if self._turn is not None and self._turn[0] in working and now < self._turn[1]:
            return self._turn[0]
        alone = self.speeds.alone
        job = min(working, key=lambda j: (working[j].left_s(alone.get(j)), j))
        self._turn = job, now + TURN_S
        return job

    def _slow_down(self, now: float, working: Mapping[JobId, Resident]) -> frozenset[JobId]:
        """The neighbours of who was promised more than it has, for a part of each period."""
        duty = self.find_duty(working)
        if duty >= 1.0:
            self.mode, self._trim = "together", 1.0
            return frozenset()
        if self.mode != "guarded":
            # What the firm one lost until now is paid back first.
            self.mode, self._trimmed, self._allowed_s = "guarded", now, -duty * PAYBACK_S
        firm = self._find_firm(working)
        if self._trim == 0.0 and now - self._trimmed >= STILL_S:
            self._trim, self._trimmed = 1.0, now
        self._correct(now, working, firm)
        self._allowed_s = min(self._allowed_s + duty * self._tick_s, MOST_ALLOWED_S)
        if self._allowed_s < self._tick_s:
            return frozenset(working) - firm
        self._allowed_s -= self._tick_s
        return frozenset()

    def _correct(
        self, now: float, working: Mapping[JobId, Resident], firm: frozenset[JobId]
    ) -> None:
        """Freeze the others for longer where that is not enough, and less where it is too much."""
        (job,) = firm
        alone, lately = self.speeds.alone[job], working[job].measured.rate(now - TRIM_S, now)
        promise = working[job].promise
        if now - self._trimmed < TRIM_S or not lately or promise is None or not self._trim:
            return
        self._trimmed = now
        slowdown = alone / lately
        if slowdown > promise * AIM:
            allowed, lost = 1.0 - 1.0 / (promise * AIM), 1.0 - 1.0 / slowdown
            less = self._trim * min(max(allowed, 0.0) / lost, 0.8)
            self._trim = less if self._trim > LEAST_TRIM else 0.0
        elif slowdown < 1.0 + 0.6 * (promise - 1.0):
            self._trim = min(self._trim * 1.1, 3.0)

    def _find_firm(self, working: Mapping[JobId, Resident]) -> frozenset[JobId]:
        """Who is never slowed: the firmest promise, the first that came of several."""
        first = min(
            _firm_of(working),
            key=lambda resident: (resident.promise or inf, -resident.age_s, resident.job),
        )
        return frozenset({first.job})

    def find_duty(self, working: Mapping[JobId, Resident]) -> float:
        """The part of the time in which neighbours may run so that the firmest promise is kept."""
        if not _firm_of(working):
            return 1.0
        (job,) = self._find_firm(working)
        pace, promise = self.speeds.pace(job), working[job].promise or inf
        if pace is None or pace >= 1.0:
            return 1.0
        lost = 1.0 - 1.0 / max(promise * AIM, 1.0)
        return min(self._trim * lost / (1.0 - pace), 1.0)

    # ---- whether promises are kept

    def _count_broken(self, now: float, working: Mapping[JobId, Resident]) -> None:
        dt = now - self._last
        if not 0.0 < dt < 5.0 or len(working) < 2:
            return
        for job, resident in working.items():
            if resident.promise is None or not (resident.firm or job in self._awake):
                continue  # who is frozen waits
            alone, lately = self.speeds.alone.get(job), self._rate_lately(now, resident)
            if (
                alone is not None
                and lately is not None
                and alone > lately * resident.promise * 1.02
            ):
                self._broken_s[job] = self._broken_s.get(job, 0.0) + dt

    def _rate_lately(self, now: float, resident: Resident) -> float | None:
        """Steps a second: a firm promise also counts time in which it was frozen."""
        since = now - JUDGED_S if resident.firm else max(now - JUDGED_S / 2, self._since)
        return resident.measured.rate(since, now)


def _firm_of(working: Mapping[JobId, Resident]) -> list[Resident]:
    """Who was promised a slowdown that counts also while it is frozen."""
    return [
        resident for resident in working.values() if resident.promise is not None and resident.firm
    ]
