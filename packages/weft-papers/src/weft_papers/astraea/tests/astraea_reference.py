"""Astraea as its simulator works, tick by tick: written from the description, shares no code.

Completions are seen at the next tick and dated back to when they happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DAY_BUCKETS = 24


@dataclass
class Ref:
    """A job under way."""

    number: int
    tenant: str
    gpus: int
    submit: int
    duration: float
    executed: float = 0.0
    in_lease: float = 0.0
    deserved: float = 0.0
    state: str = "future"
    waits_since: float = 0.0
    ever_ran: bool = False
    expiries: int = 0
    displaced: int = 0
    end: float | None = None

    @property
    def ltgf(self) -> float:
        return self.gpus * self.executed / self.deserved if self.deserved else 0.0

    @property
    def saved_ltgf(self) -> float:
        """The same without the present lease, of which nothing would be saved."""
        kept = self.executed - self.in_lease
        return self.gpus * kept / self.deserved if self.deserved else 0.0


@dataclass
class Cluster:
    """One pool of GPUs, and tenants with equal shares."""

    gpus: int
    jobs: list[Ref]
    lease: int = 900
    check: int = 10
    delay: int = 300
    starving: int = 21_600
    block: bool = True
    pending: list[Ref] = field(default_factory=list)
    running: list[Ref] = field(default_factory=list)

    def run(self) -> None:
        """Until every job has ended."""
        self.tenants = list(dict.fromkeys(job.tenant for job in self.jobs))
        self.quota = {u: self.gpus // len(self.tenants) for u in self.tenants}
        self.bucket = {u: [0.0, 0.0] for u in self.tenants}
        self.history: list[dict[str, list[float]]] = []
        now = 0
        while any(job.end is None for job in self.jobs):
            self._tick(now)
            now += self.check

    def _tick(self, now: int) -> None:
        if now % 3600 == 0:
            self.history.append(self.bucket)
            self.bucket = {u: [0.0, 0.0] for u in self.tenants}
        if now:
            self._advance()
        for job in self.running:  # shortened as it is walked: who follows is passed over
            if job.executed >= job.duration:
                self._finish(job, now)
            elif job.in_lease >= self.lease:
                self._park(job, now)
                job.expiries += 1
        early = [j for j in self.running if self._early(j)]
        for job in self.jobs:
            if job.state == "future" and job.submit <= now:
                job.state, job.waits_since = "pending", job.submit
                self.pending.append(job)
        self._choose(now, early)

    def _advance(self) -> None:
        alive = self.pending + self.running
        for job in alive:
            fellows = sum(other.tenant == job.tenant for other in alive)
            job.deserved += self.check * min(job.gpus, self.quota[job.tenant] / fellows)
        for job in self.running:
            job.executed += self.check
            job.in_lease += self.check
            self.bucket[job.tenant][0] += self.check * job.gpus
        for tenant in self.tenants:
            self.bucket[tenant][1] += self.check * self.quota[tenant]

    def _finish(self, job: Ref, now: int) -> None:
        job.end = now - (job.executed - job.duration)
        job.executed = job.duration
        job.state = "done"
        self.running.remove(job)

    def _early(self, job: Ref) -> bool:
        if job.expiries:
            return job.in_lease < self.delay
        return 120 <= job.in_lease < self.delay

    def _park(self, job: Ref, now: int) -> None:
        self.running.remove(job)
        self.pending.append(job)
        job.state, job.waits_since, job.in_lease = "pending", now, 0.0

    def _choose(self, now: int, early: list[Ref]) -> None:
        lists: dict[str, tuple[list[Ref], bool]] = {}
        for u in self.tenants:
            mine = [j for j in self.pending if j.tenant == u]
            hungry = [j for j in mine if now - j.waits_since >= self.starving]
            rest = [j for j in mine if j not in hungry]
            hungry.sort(key=lambda j: j.submit)
            rest.sort(key=lambda j: (j.ltgf, j.submit))
            lists[u] = (hungry + rest, bool(hungry))
        allowed = self._grant({u: [j.gpus for j in each] for u, (each, _) in lists.items()})
        for u, (each, starved) in lists.items():
            spare = [j for j in early if j.tenant == u]
            victims = sorted(spare, key=lambda j: (-j.saved_ltgf, -j.submit))
            for job in each:
                while not job.ever_ran and victims and self._used(u) + job.gpus > allowed[u]:
                    self._displace(victims.pop(0), now)
                if self._used(u) + job.gpus <= allowed[u] and job.gpus <= self._free():
                    self.pending.remove(job)
                    self.running.append(job)
                    job.state, job.ever_ran, job.in_lease = "running", True, 0.0
                elif self.block or starved:
                    break

    def _free(self) -> int:
        return self.gpus - sum(j.gpus for j in self.running)

    def _used(self, tenant: str) -> int:
        return sum(j.gpus for j in self.running if j.tenant == tenant)

    def _displace(self, victim: Ref, now: int) -> None:
        victim.executed -= victim.in_lease
        victim.displaced += 1
        self._park(victim, now)

    def _grant(self, wants: dict[str, list[int]]) -> dict[str, float]:
        free = self._free()
        used = dict.fromkeys(self.tenants, 0.0)
        for job in self.running:
            used[job.tenant] += job.gpus
        past = {}
        for u in self.tenants:
            had = sum(b[u][0] for b in self.history[-DAY_BUCKETS:])
            due = sum(b[u][1] for b in self.history[-DAY_BUCKETS:])
            past[u] = [had, due, had / due if due else 1.0]
        active = [u for u in self.tenants if wants[u]]
        left = {u: list(wants[u]) for u in active}
        while free > 0 and active:
            u = min(active, key=lambda v: used[v] / self.quota[v])
            if used[u] / self.quota[u] >= 0.2:
                u = min(active, key=lambda v: past[v][2])
            while left[u] and left[u][0] > free:
                left[u].pop(0)
            if not left[u]:
                active.remove(u)
                continue
            gpus = left[u].pop(0)
            free -= gpus
            used[u] += gpus
            past[u][0] += gpus * self.lease
            past[u][2] = past[u][0] / (past[u][1] + self.quota[u] * self.lease)
        return used
