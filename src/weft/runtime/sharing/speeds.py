"""How fast the residents of a device are alone and together, from the steps that were counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.knowledge.measured import Measured
from weft.core.model.job import JobId

SETTLE_S = 0.3  # after somebody was frozen or woken: kernels in flight end
WARM_S = 3.0  # after its first step a job compiles, fills caches, grows its memory
TOGETHER_S = 2.0  # the least to tell how fast jobs are together
LONGEST_S = 10.0  # of a window
UNSEEN_S = 60.0  # of running without a step: it is one whose steps nobody can count
NEW = 0.5  # weight of the last measurement of a speed alone


@dataclass(frozen=True, slots=True)
class Resident:
    """A job on a device as it is now; `promise` is the slowdown that it may have, None for any.

    `age_s` is how long it has run.
    """

    job: JobId
    attempt: int
    measured: Measured
    promise: float | None = None
    age_s: float = 0.0

    @property
    def steps_since(self) -> float:
        """When its first counted step was done; infinite before."""
        samples = self.measured.samples
        return samples[0][0] if samples else inf

    @property
    def works(self) -> bool:
        """Whether it has begun to train, as its steps tell, or its age where none are seen."""
        return len(self.measured.samples) > 1 or self.age_s >= UNSEEN_S

    def left_s(self, rate: float | None) -> float:
        """Seconds that it still needs alone: as its total tells, else as long as it has run."""
        total, done = self.measured.total_steps, self.measured.steps
        if total and done and rate and total > done:
            return (total - done) / rate
        return max(self.age_s, 1.0)


@dataclass(slots=True)
class Speeds:
    """Steps a second of each resident, alone and beside the others that work now."""

    alone: dict[JobId, float] = field(default_factory=dict)
    together: dict[JobId, float] = field(default_factory=dict)

    def begin(self, members: Collection[JobId]) -> None:
        """Others are there than before: what they did together says nothing now."""
        self.together.clear()
        self.alone = {job: rate for job, rate in self.alone.items() if job in members}

    def learn(
        self,
        now: float,
        residents: Mapping[JobId, Resident],
        awake: Collection[JobId],
        since: float,
        least_alone_s: float,
    ) -> None:
        """Take in what was done `since` just those of `awake` were not frozen."""
        working = [residents[job] for job in awake if residents[job].works]
        if len(working) == 1:
            self._learn_alone(working[0], now, since, least_alone_s)
        elif all(one.job in awake for one in residents.values() if one.works):
            for one in working:
                rate = _rate(one, now, since, TOGETHER_S)
                if rate is not None:
                    self.together[one.job] = rate

    def _learn_alone(self, one: Resident, now: float, since: float, least_s: float) -> None:
        rate = _rate(one, now, since, least_s)
        if rate is not None and rate > 0.0:
            was = self.alone.get(one.job, rate)
            self.alone[one.job] = was + NEW * (rate - was)

    def pace(self, job: JobId) -> float | None:
        """The part of its speed alone that a job keeps beside the others; None if not known."""
        alone, together = self.alone.get(job), self.together.get(job)
        if alone is None or together is None:
            return None
        return min(together / alone, 1.0)

    def total(self, jobs: Collection[JobId]) -> float | None:
        """What these do together, where one alone does 1; None while some are not known."""
        paces = [self.pace(job) for job in jobs]
        known = [pace for pace in paces if pace is not None]
        return sum(known) if len(known) == len(paces) else None


def _rate(one: Resident, now: float, since: float, least_s: float) -> float | None:
    """Steps a second over the last while in which nothing changed; None if that is too short."""
    begin = max(since + SETTLE_S, one.steps_since + WARM_S, now - LONGEST_S)
    return one.measured.rate(begin, now) if now - begin >= least_s else None
