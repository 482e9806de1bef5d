"""Speeds of the residents of a device alone and together, from the steps that were counted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from weft.core.knowledge.measured import MeasuredAttempt
from weft.core.model.job import JobId
from weft.frozen import frozen

SETTLE_S = 0.3  # after a job was frozen or woken: kernels in flight end
WARM_S = 3.0  # after its first step a job compiles, fills caches, grows its memory
BRISK_S = 1.0  # after its first step the speed of a job means something
TOGETHER_S = 2.0  # the least to tell how fast jobs are together
TRIED_S = 1.2  # the least to tell whether a group keeps what was promised
LONGEST_S = 10.0  # of a window
UNSEEN_S = 60.0  # of running without a step: its steps cannot be counted
NEW = 0.5  # weight of the last measurement of a speed alone

# The part of its speed alone that a job keeps beside others, by what is remembered of programs.
Predict = Callable[[JobId, frozenset[JobId]], float | None]


def predict_nothing(job: JobId, others: frozenset[JobId]) -> float | None:  # noqa: ARG001 - as others take
    """Predict no speed: None."""
    return None


@frozen
class ResidentSpeed:
    """A job on a device as it is now; `promise` is the slowdown that it may have, None for any.

    A `firm` promise counts the time in which it is frozen, another one only that in which it runs.
    `age_s` is how long it has run.
    """

    job: JobId
    attempt: int
    measured: MeasuredAttempt
    promise: float | None = None
    age_s: float = 0.0
    firm: bool = True

    @property
    def steps_since(self) -> float:
        """The time at which its first counted step was done; infinite before."""
        samples = self.measured.samples
        return samples[0][0] if samples else inf

    @property
    def is_training(self) -> bool:
        """True if it has begun to train, as its steps tell, or its age where none are seen.

        While it waits for memory it does not: nothing that its neighbours do would speed it up.
        """
        if self.measured.waits is not None:
            return False
        return len(self.measured.samples) > 1 or self.age_s >= UNSEEN_S

    def left_s(self, rate: float | None) -> float:
        """Seconds that it still needs alone: as its total tells, else as many as it has had."""
        total, done = self.measured.total_steps, self.measured.steps
        if not done or not rate:
            return max(self.age_s, 1.0)
        return (total - done if total and total > done else done) / rate


@dataclass(slots=True)
class ResidentSpeeds:
    """Steps per second of each resident, alone and beside the others that work now."""

    alone: dict[JobId, float] = field(default_factory=dict)
    together: dict[JobId, float] = field(default_factory=dict)
    groups: dict[frozenset[JobId], dict[JobId, float]] = field(default_factory=dict)
    predict: Predict = predict_nothing

    def restart_measuring(self, members: Collection[JobId]) -> None:
        """Others are there than before: what they did together says nothing now."""
        self.together.clear()
        self.alone = {job: rate for job, rate in self.alone.items() if job in members}
        here = frozenset(members)
        self.groups = {group: rates for group, rates in self.groups.items() if group <= here}

    def learn(
        self,
        now: float,
        residents: Mapping[JobId, ResidentSpeed],
        awake: Collection[JobId],
        since: float,
        least_alone_s: float,
    ) -> None:
        """Take in what was done `since` just those of `awake` were not frozen."""
        working = [residents[job] for job in awake if residents[job].is_training]
        if len(working) == 1:
            self._learn_alone(working[0], now, since, least_alone_s)
            return
        group = frozenset(resident.job for resident in working)
        everybody = all(
            resident.job in awake for resident in residents.values() if resident.is_training
        )
        for resident in working:
            rate = _rate(resident, now, since, TRIED_S, BRISK_S)
            if rate is not None:
                self.groups.setdefault(group, {})[resident.job] = rate
            rate = _rate(resident, now, since, TOGETHER_S)
            if everybody and rate is not None:
                self.together[resident.job] = rate

    def _learn_alone(
        self, resident: ResidentSpeed, now: float, since: float, least_s: float
    ) -> None:
        rate = _rate(resident, now, since, least_s)
        if rate is not None and rate > 0.0:
            was = self.alone.get(resident.job, rate)
            self.alone[resident.job] = was + NEW * (rate - was)

    def pace(self, job: JobId) -> float | None:
        """The part of its speed alone that a job keeps beside the others; None if not known."""
        alone, together = self.alone.get(job), self.together.get(job)
        if alone is None or together is None:
            return None
        return min(together / alone, 1.0)

    def pace_in(self, group: frozenset[JobId], job: JobId) -> float | None:
        """A job's pace in a group: as measured, as predicted, or as pairs of them tell."""
        alone = self.alone.get(job)
        if alone is None:
            return None
        rate = self.groups.get(group, {}).get(job)
        if rate is not None:
            return min(rate / alone, 1.0)
        known = self.predict(job, group - {job})
        if known is not None:
            return known
        pace = 1.0
        for other in group - {job}:
            beside = self.groups.get(frozenset({job, other}), {}).get(job)
            if beside is None:
                return None
            pace *= min(beside / alone, 1.0)
        return pace

    def pace_in_largest_group(self, job: JobId) -> float:
        """The part of its speed alone that a job kept in the largest group it was seen in."""
        seen = [group for group, rates in self.groups.items() if job in rates]
        pace = self.pace_in(max(seen, key=len), job) if seen else None
        return 0.0 if pace is None else pace

    def total(self, jobs: Collection[JobId]) -> float | None:
        """The work that these do together, where one alone does 1.

        None while some are not known.
        """
        paces = [self.pace(job) for job in jobs]
        known = [pace for pace in paces if pace is not None]
        return sum(known) if len(known) == len(paces) else None


def _rate(
    resident: ResidentSpeed, now: float, since: float, least_s: float, warm_s: float = WARM_S
) -> float | None:
    """Steps per second over the last while in which nothing changed; None if that is too short."""
    begin = max(since + SETTLE_S, resident.steps_since + warm_s, now - LONGEST_S)
    return resident.measured.rate(begin, now) if now - begin >= least_s else None
