"""When jobs should end: what they would have had alone on their share, averaged over time."""

from __future__ import annotations

from weft.frozen import frozen

MOMENTUM = 0.9


@frozen
class Series:
    """Targets of a job, each from the round it was set until the next one.

    `first` and `last` are rounds of the first and the last target, `value` is the last, and `area`
    the sum of those before it, each times the rounds it held.
    """

    first: int
    last: int
    value: float
    area: float = 0.0

    def append(self, at: int, value: float) -> Series:
        """One more target."""
        area = self.area + self.value * (at - self.last)
        return Series(self.first, at, value, area)

    def average(self, at: int) -> float:
        """Mostly the mean over the rounds until `at`, and a tenth the last target."""
        rounds = at - self.first
        if rounds <= 0:
            return self.value
        mean = (self.area + self.value * (at - self.last)) / rounds
        return MOMENTUM * mean + (1.0 - MOMENTUM) * self.value


def share(gpus: float, jobs: int) -> float:
    """The part of its time that each job would have a machine of its own; gangs do not count."""
    return min(1.0, gpus / jobs) if jobs else 1.0


def target(submitted: float, past_s: float, left_s: float, phi: float) -> float:
    """When a job ends that has a part `phi` of what it asks for, from its submission on."""
    return submitted + (past_s + left_s) / phi
