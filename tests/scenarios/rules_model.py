"""What rules promise, counted in the plainest way: sums over devices, and nothing of any policy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from weft.app.serve.rules import Quotas
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, JobId, Tier
from weft.frozen import frozen
from weft.plural import say_gpus
from weft.stack.windows import ReservedWindow, read_window

SLACK = 1e-6
PATIENCE_S = 600.0  # after which a job that cannot be stopped has devices kept for it
Device = tuple[str, int]


@frozen
class Running:
    """What a job holds, and since when it runs."""

    job: Job
    on: Allocation
    since: float

    @property
    def devices(self) -> frozenset[Device]:
        """Node and number."""
        return frozenset((part.node, gpu) for part in self.on.slices for gpu in part.gpus)


@frozen
class Undone:
    """A job that should have been started, by which promise, and why."""

    job: Job
    promise: str
    what: str


@frozen
class Moment:
    """Jobs that run or wait, in order of submission; `sized` if the policy chooses sizes.

    `whole` if it gives gangs one node.
    """

    now: float
    cluster: Cluster
    rules: Quotas
    running: Mapping[JobId, Running]
    waiting: tuple[Job, ...]
    sized: bool
    whole: bool = False

    # ---- what is never allowed

    def wrong(self, before: Moment) -> Iterator[str]:
        """Rules that are broken after a decision; `before` is how things were."""
        yield from self._over_limits(before)
        for run in self.running.values():
            yield from self._misplaced(run, before.running.get(run.job.id))
        for run in before.running.values():
            yield from self._stopped_though_firm(run)

    def _over_limits(self, before: Moment) -> Iterator[str]:
        for name, most in self.rules.limits.items():
            tenant, _, kind = name.partition("@")
            held, was = self.held(tenant, kind), before.held(tenant, kind)
            if held > most + SLACK and held > was + SLACK:
                yield f"{name} holds {say_gpus(held)} and may hold {most:g}"

    def _misplaced(self, run: Running, was: Running | None) -> Iterator[str]:
        fresh = was is None or was.devices != run.devices
        for window in self.windows():
            there = any(_has(window, device) for device in run.devices)
            if not there or window.admits(run.job, self.now):
                continue
            stays = window.when_done or (window.tenant and not run.job.stoppable)
            if not fresh and (stays or not window.holds(self.now)):
                continue
            yield f"{run.job.id} is on {sorted(run.devices)}, kept by {window.name} {window.text}"

    def _stopped_though_firm(self, run: Running) -> Iterator[str]:
        now = self.running.get(run.job.id)
        if run.job.stoppable or (now is not None and now.devices == run.devices):
            return
        closed = [w for w in self.windows() if w.holds(self.now) and not w.tenant]
        if not any(_has(window, device) for window in closed for device in run.devices):
            yield f"{run.job.id} may not be stopped, and was"

    # ---- what must not be left undone

    def undone(self) -> Iterator[Undone]:
        """Waiting jobs that should have been started."""
        for job in self.waiting:
            kinds = [kind for kind in self._kinds(job) if self._within_limits(job, kind)]
            room = {kind: self.idle(job, kind) for kind in kinds}
            if self._is_behind(job) or not kinds:
                continue
            idle = [kind for kind in kinds if room[kind] >= self.least(job) - SLACK]
            if idle:
                owned = all(self._owner_is_about_to_start(job, kind) for kind in idle)
                if not owned:
                    yield Undone(job, "idle", f"{job.id} waits, and {room} are idle for it")
            elif self._is_first_within_own(job):
                leave = self._borrowed(job, aged=True)
                back = {kind: self.idle(job, kind, leave) for kind in kinds}
                if any(back[kind] >= self.least(job) - SLACK for kind in kinds):
                    what = f"{job.id} waits within its own, and {back} could be taken back"
                    yield Undone(job, "own", what)

    def least(self, job: Job) -> float:
        """GPUs that it can begin with."""
        return (job.demand.min if self.sized else job.demand.gpus) * job.demand.share

    def idle(self, job: Job, kind: str, leaving: frozenset[JobId] = frozenset()) -> float:
        """What a job may use of devices of a kind, if these left theirs."""
        claims: defaultdict[Device, float] = defaultdict(float)
        for run in self.running.values():
            if run.job.id not in leaving:
                for device in run.devices:
                    claims[device] += run.on.sharing.share
        nodes = [0.0]
        for node in self.cluster.nodes:
            room = 0.0
            for gpu in range(node.gpus if node.kind == kind else 0):
                device = (node.id, gpu)
                left = 1.0 - claims[device]
                if self._is_kept_from(job, device) or left < job.demand.share - SLACK:
                    continue
                room = max(room, left) if job.demand.share < 1.0 else room + 1.0
            nodes.append(room)
        return max(nodes) if self.whole or job.demand.share < 1.0 else sum(nodes)

    def held(self, tenant: str, kind: str = "") -> float:
        """GPUs of a tenant, of one kind or all."""
        return sum(
            run.on.counted_gpus
            for run in self.running.values()
            if run.job.tenant == tenant and kind in ("", self.cluster.kind_of(run.on))
        )

    def windows(self) -> list[ReservedWindow]:
        """Those that are not over."""
        every = (read_window(name, text) for name, text in self.rules.windows.items())
        return [window for window in every if self.now < window.end]

    def _kinds(self, job: Job) -> tuple[str, ...]:
        return job.demand.kinds or self.cluster.kinds

    def _within_limits(self, job: Job, kind: str) -> bool:
        least = self.least(job)
        for name, of in ((job.tenant, ""), (f"{job.tenant}@{kind}", kind)):
            most = self.rules.limits.get(name)
            if most is not None and self.held(job.tenant, of) + least > most + SLACK:
                return False
        return True

    def _is_kept_from(self, job: Job, device: Device) -> bool:
        windows = self.windows()
        return any(_has(window, device) and not window.admits(job, self.now) for window in windows)

    def _is_behind(self, job: Job) -> bool:
        """Whether a place is kept for a job that is more important or has waited for long."""
        filler = job.tier is Tier.OPPORTUNISTIC
        for other in self.waiting:
            higher = other.priority > job.priority and not filler
            patient = self.now - other.submitted >= PATIENCE_S and not other.stoppable
            if higher or (patient and not job.stoppable and other.id != job.id):
                return True
        return False

    # ---- what is one's own

    def _owner_is_about_to_start(self, job: Job, kind: str) -> bool:
        """Whether a tenant waits within its own for what others hold, so that no one borrows it."""
        for other in self.waiting:
            borrowed = self._borrowed(other, aged=False)
            if other.id == job.id or not self._is_within(other, self._line(other.tenant)):
                continue
            may = kind in self._kinds(other) and self._within_limits(other, kind)
            if may and self.idle(other, kind, borrowed) >= self.least(other) - SLACK:
                return True
        return False

    def _is_first_within_own(self, job: Job) -> bool:
        first = next(waiting for waiting in self.waiting if waiting.tenant == job.tenant)
        return first.id == job.id and self._is_within(job, [job.tenant])

    def _is_within(self, job: Job, names: list[str]) -> bool:
        least = self.least(job)
        return any(self._held_by(name) + least <= self._quota(name) + SLACK for name in names)

    def _borrowed(self, job: Job, *, aged: bool) -> frozenset[JobId]:
        """Jobs that have to give way to one: each of a tenant beyond its own.

        Jobs on devices that are kept from that one are left alone.
        """
        over = {
            tenant: self._held_by(tenant) - self._quota(tenant)
            for tenant in {run.job.tenant for run in self.running.values()}
        }
        least_s = (300.0 if self.rules.min_run_s is None else self.rules.min_run_s) * aged
        borrowers = []
        for run in self.running.values():
            old = self.now - run.since >= least_s
            kept = any(self._is_kept_from(job, device) for device in run.devices)
            if (
                run.job.stoppable
                and old
                and not kept
                and run.on.counted_gpus <= over[run.job.tenant] + SLACK
            ):
                over[run.job.tenant] -= run.on.counted_gpus
                borrowers.append(run.job.id)
        return frozenset(borrowers) if self.rules.own else frozenset()

    def _line(self, name: str) -> list[str]:
        line = [name]
        while line[-1] in self.rules.parents:
            line.append(self.rules.parents[line[-1]])
        return line

    def _held_by(self, name: str) -> float:
        tenants = {run.job.tenant for run in self.running.values()}
        return sum(self.held(tenant) for tenant in tenants if name in self._line(tenant))

    def _quota(self, name: str) -> float:
        if name in self.rules.own or not self.rules.own:
            return self.rules.own.get(name, 0.0)
        members = (who for who, parent in self.rules.parents.items() if parent == name)
        return sum(self._quota(who) for who in members)


def _has(window: ReservedWindow, device: Device) -> bool:
    node, gpu = device
    if node not in window.devices:
        return False
    chosen = {str(name): gpus for name, gpus in window.devices.items()}[node]
    return chosen is None or gpu in chosen
