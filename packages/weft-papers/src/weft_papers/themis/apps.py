"""The agents: what an app is, how fair it would finish with more GPUs, and what it would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from weft.core.model.job import Job, JobId
from weft.frozen import frozen

UNKNOWN_S = 3600.0  # length of a job that nothing is known about


@frozen
class AppJob:
    """A job of an app: seconds left on what it asked for, and GPUs it holds now."""

    job: Job
    left_s: float
    holds: int = 0

    @property
    def gpu_s_left(self) -> float:
        """GPU-seconds left."""
        return self.left_s * self.job.demand.gpus

    @property
    def more(self) -> range:
        """Numbers of GPUs that it could use beside what it holds."""
        demand = self.job.demand
        if not self.holds:
            return range(demand.min, demand.max + 1)
        return range(1, demand.max - self.holds + 1 if self.job.stoppable else 1)


@frozen
class App:
    """Jobs that belong together, in order of submission.

    `arrived` is when the first of them was submitted, `done` the GPU-seconds behind them;
    `rivals` the number of apps there were on average since.
    """

    name: str
    members: tuple[AppJob, ...]
    arrived: float
    rivals: float
    done: float = 0.0

    @property
    def held_gpus(self) -> int:
        """GPUs of all its jobs."""
        return sum([member.holds for member in self.members])

    @property
    def demand(self) -> int:
        """The most GPUs that it can use."""
        return sum([member.job.demand.max for member in self.members])

    def rho(self, gpus: int, cluster: int, now: float, slowdown: float = 1.0) -> float:
        """Finish time with that many GPUs over that on a private part of the cluster.

        Infinite with none. T_shared = elapsed + L t_iter(B), T_indep = T_cluster N_avg; `slowdown`
        is S(B), how many times as long iterations take where the GPUs are.
        """
        if gpus <= 0:
            return np.inf
        left = sum([member.gpu_s_left for member in self.members])
        demand, longest = self.demand, self._longest()
        shared = now - self.arrived + slowdown * max(left / min(gpus, demand), longest)
        alone = (left + self.done) / max(min(cluster, demand), 1)
        return shared / max(max(alone, longest) * self.rivals, 1e-9)

    def least_rho(self, cluster: int, now: float) -> float:
        """Return rho with what the app holds, or with its least gang if it holds nothing."""
        least = min([member.job.demand.min for member in self.members])
        return self.rho(self.held_gpus or least, cluster, now)

    def _longest(self) -> float:
        """No job ends sooner than on all that it can use."""
        return max([m.gpu_s_left / m.job.demand.max for m in self.members], default=0.0)

    def bids(
        self, offer: int, cluster: int, now: float, node: int = 0, slowdown: float = 1.0
    ) -> dict[int, float]:
        """The value 1 / rho of each useful number of GPUs more.

        More than a `node` has are slower by `slowdown`.
        """
        sizes = {n: self.held_gpus + n for n in self.useful(offer) if n}
        return {
            n: 1.0 / self.rho(gpus, cluster, now, slowdown if gpus > node else 1.0)
            for n, gpus in sizes.items()
        }

    def can_use(self, offer: int) -> bool:
        """Return true if a job of it could run, or grow, on that many GPUs."""
        return any(member.more and member.more[0] <= offer for member in self.members)

    def useful(self, offer: int) -> list[int]:
        """Numbers of GPUs up to `offer` that its jobs can make use of, whole gangs each."""
        sizes = {0}
        for member in self._in_order():
            sizes |= {n + m for n in sizes for m in member.more if n + m <= offer}
        return sorted(sizes)

    def split(self, gpus: int) -> dict[JobId, int]:
        """Divide that many more GPUs among its jobs: all gangs first, then what is left over."""
        given: dict[JobId, int] = {}
        for member in self._in_order():
            least = member.job.demand.min
            if not member.holds and least <= gpus:
                given[member.job.id] = least
                gpus -= least
        for member in self._in_order():
            has = given.get(member.job.id, member.holds)
            more = min(gpus, member.more.stop - 1 + member.holds - has)
            if has and more > 0:
                given[member.job.id] = has + more
                gpus -= more
        return given

    def _in_order(self) -> Sequence[AppJob]:
        """The longest job first: the app ends with its last."""
        if len(self.members) == 1:
            return self.members
        return sorted(self.members, key=lambda member: -member.left_s)


def rank_apps(apps: Sequence[App], cluster: int, now: float) -> list[App]:
    """Rank apps: those that hold nothing, then the others; the least fair finish first.

    Of equals the earlier comes first. By arrival alone the last holder, which is the oldest, would
    win again whenever its lease ends.
    """
    return sorted(
        apps, key=lambda app: (app.held_gpus > 0, -app.least_rho(cluster, now), app.arrived)
    )


@frozen
class Crowd:
    """The integral over time of the number of apps, until `at`."""

    at: float = 0.0
    area: float = 0.0
    count: int = 0
    seen: Mapping[str, float] = field(default_factory=dict)

    def advance(self, now: float, apps: Sequence[str]) -> Crowd:
        """Return the crowd at `now`, with the apps of now; newcomers note the integral so far."""
        area = self.area + self.count * (now - self.at)
        seen = {name: self.seen.get(name, area) for name in apps}
        return Crowd(now, area, len(apps), seen)

    def average(self, name: str, arrived: float) -> float:
        """The mean number of apps since one arrived; the present one at first."""
        span = self.at - arrived
        since = self.area - self.seen[name]
        return max(since / span, 1.0) if span > 0.0 and since > 0.0 else float(self.count)
