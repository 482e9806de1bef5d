"""No job stops for nothing: whom each stop served, and whether it had to be."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from statistics import median

from weft.core.events import event as facts
from weft.core.model.job import Allocation, Job, JobId, Slice, Tier
from weft.core.plan.reasons import Blocker
from weft.core.stops import SLEEPS
from weft.judge.devices import Device, DeviceClaims, devices_of, gpus_of
from weft.judge.finding import STOPS, Finding, Weight
from weft.judge.lives import Life
from weft.judge.log_lines import LogLine
from weft.judge.replay import LogWatch, PlayedLog
from weft.judge.rules import held_by, kept_from, limits, windows
from weft.plural import say_gpus

# Rules that take devices from a job whether another one takes them or not.
RULES = (
    *(Blocker.QUOTA, Blocker.TOO_LARGE, Blocker.SHARE, Blocker.RESERVED, Blocker.SPOT),
    *(Blocker.CELLS, Blocker.IDLE_CELLS, Blocker.SPARED, Blocker.FAILED, Blocker.MOVED),
)
SWAP = "swap"
OFTEN, BRIEF_S = 4, 60.0
SLOWER, LASTS_S, REPORTS = 0.95, 900.0, 3


class StopsWatch(LogWatch):
    """Every decision that takes devices from a job that runs."""

    def __init__(self) -> None:
        self.count = self.swaps = 0
        self.unsaved_gpu_s = 0.0
        self._before: dict[str, Allocation] = {}
        self._ran: dict[str, list[float]] = {}
        self._over: set[str] = set()

    def before(self, replay: PlayedLog, line: LogLine) -> None:
        """Remember what jobs hold that the line may take away."""
        event = line.event
        if isinstance(event, facts.Decided) and event.changes:
            self._before = dict(replay.held())
            self._over = {
                tenant
                for (tenant, kind), most in limits(replay).items()
                if held_by(replay, tenant, kind) > most + 1e-6
            }

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        event = line.event
        if not isinstance(event, facts.Decided):
            return
        for name, to in event.changes.items():
            was, life = self._before.get(name), replay.jobs.get(name)
            if to is None and was is not None and life is not None and was.gpus:
                self._stopped(replay, event, life, was)

    def _stopped(
        self, replay: PlayedLog, event: facts.Decided, life: Life, was: Allocation
    ) -> None:
        name = life.job.id
        attempt = max(life.attempts.values(), key=lambda a: a.number, default=None)
        ran_s = replay.now - attempt.started if attempt and attempt.started is not None else 0.0
        self.count += 1
        self._ran.setdefault(name, []).append(ran_s)
        if event.sleeps.get(name) not in SLEEPS:
            since = max(life.saved or 0.0, replay.now - ran_s)
            self.unsaved_gpu_s += (replay.now - since) * gpus_of(was)
        if not replay.knows_nodes or self._by_rule(replay, event, life, was):
            return
        freed = {*devices_of(was)}
        takers = {
            other: on
            for other, on in event.changes.items()
            if on is not None and other in replay.jobs and not freed.isdisjoint(devices_of(on))
        }
        claims = replay.claims()
        if not takers and not _blocked(claims, was, replay):
            text = f"what it held, {say_gpus(was.gpus)}, stays idle, and no job starts there"
            self._report(replay, "for nothing", (name,), text, _weight(replay))
            return
        if takers and self._elsewhere(replay, was, takers):
            text = f"{', '.join(takers)} would have had room elsewhere"
            self._report(replay, "needless", (name, *takers), text, _weight(replay))
            return
        self._swapped(replay, event, life, was)

    def _by_rule(
        self, replay: PlayedLog, event: facts.Decided, life: Life, was: Allocation
    ) -> bool:
        """Return true if a rule around the policy took its devices."""
        if event.blockers.get(life.job.id) in RULES or life.job.tenant in self._over:
            return True
        return any(
            window.forbids_start(life.job, replay.now) and any(map(window.covers, devices_of(was)))
            for window in windows(replay)
        )

    def _elsewhere(
        self, replay: PlayedLog, was: Allocation, takers: Mapping[JobId, Allocation]
    ) -> bool:
        """Return true if all takers fit on as few nodes of the same kind, had the job stayed."""
        held = [(name, on) for name, on in replay.held() if name not in takers]
        claims = DeviceClaims.of([*held, ("", was)])
        for name, on in sorted(takers.items(), key=lambda taker: -taker[1].gpus):
            place = _place(replay, claims, on, kept_from(replay, replay.jobs[name].job))
            if place is None:
                return False
            claims.add(name, place)
        return True

    def _swapped(
        self, replay: PlayedLog, event: facts.Decided, life: Life, was: Allocation
    ) -> None:
        """An equal job that came later starts, and has had as much as this one."""
        job, name = life.job, life.job.id
        for other, on in event.changes.items():
            taker = replay.jobs.get(other)
            if on is None or taker is None or other in self._before or taker is life:
                continue
            if not equal(job, taker.job) or taker.submitted < life.submitted or on.gpus != was.gpus:
                continue
            if _seconds(taker.job) < _seconds(job):
                continue  # it says that it is shorter, which many policies prefer
            self.swaps += 1
            reclaimed = event.blockers.get(name) is Blocker.RECLAIMED
            if taker.gpu_s >= life.gpu_s or reclaimed:
                why = "" if not reclaimed else ", and its reason says that an owner got them"
                text = f"{other}, its equal and younger, starts in its place{why}"
                self._report(replay, SWAP, (name, other), text, Weight.WRONG)
            return

    def close(self, replay: PlayedLog) -> None:
        """Jobs that were hit again and again."""
        for name, runs in self._ran.items():
            if len(runs) >= OFTEN and median(runs) < BRIEF_S:
                text = f"it was stopped {len(runs)} times, after {median(runs):.0f} s at the median"
                line = replay.jobs[name].line
                finding = Finding(STOPS, "again", replay.now, line, (name,), text, Weight.DOUBT)
                replay.findings.append(finding)

    def _report(
        self, replay: PlayedLog, what: str, jobs: tuple[str, ...], text: str, weight: Weight
    ) -> None:
        replay.findings.append(Finding(STOPS, what, replay.now, replay.line, jobs, text, weight))


def equal(job: Job, other: Job) -> bool:
    """Return true if jobs ask for the same and have the same standing."""
    ours = (job.demand, job.priority, job.tier, job.tenant, job.model, job.preemptible)
    theirs = (other.demand, other.priority, other.tier, other.tenant, other.model)
    return ours == (*theirs, other.preemptible) and job.deadline == other.deadline


def _seconds(job: Job) -> float:
    """The length that a job states; infinite where it states none."""
    return float(job.hints.get("duration_s", inf))


def _weight(replay: PlayedLog) -> Weight:
    """A policy that leaves devices idle by its own rules may have stopped for those."""
    return Weight.WRONG if replay.terms is not None and not replay.terms.idles else Weight.DOUBT


def _blocked(claims: DeviceClaims, was: Allocation, replay: PlayedLog) -> bool:
    """Return true if the job could not have stayed: its devices or hosts are used or gone."""
    if any(part.node not in replay.nodes for part in was.slices):
        return True
    if was.sharing.tier is Tier.OPPORTUNISTIC:
        return any(device in claims.owners for device in devices_of(was))
    both = DeviceClaims.of([*replay.held(), ("", was)])
    return any(True for _ in both.faults(replay.nodes))


def _place(
    replay: PlayedLog, claims: DeviceClaims, on: Allocation, kept: frozenset[Device]
) -> Allocation | None:
    """Other idle devices of the kind, on at most as many nodes; None where there are none."""
    kind = next((n.kind for p in on.slices if (n := replay.nodes.get(p.node))), "")
    sizes = sorted((len(part.gpus) for part in on.slices), reverse=True)
    nodes = [node for node in replay.nodes.values() if node.kind == kind]
    slices: list[Slice] = []
    for size in sizes:
        fits = [
            n
            for n in nodes
            if claims.idle_on(n, kept) >= size and n.id not in {s.node for s in slices}
        ]
        if not fits or on.sharing.share < 1.0:
            return None
        node = min(fits, key=lambda n: claims.idle_on(n, kept))
        taken = {*claims.owners, *kept}
        free = [gpu for gpu in range(node.gpus) if (node.id, gpu) not in taken]
        model = on.slices[0]
        part = len(free[:size]) / max(len(model.gpus), 1)
        slices.append(Slice(node.id, tuple(free[:size]), model.cpus * part, model.mem_gb * part))
    return Allocation(tuple(slices), on.sharing)


class SlowerWatch(LogWatch):
    """Changes of a job's devices after which it is slower, and which were not undone."""

    def __init__(self) -> None:
        self._rates: dict[str, list[float]] = {}
        self._on: dict[str, Allocation] = {}
        self._past: dict[str, tuple[Allocation, float, int, float]] = {}

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        """Reports of jobs, by what they held."""
        event = line.event
        if not isinstance(event, facts.Reported):
            return
        report, life = event.report, replay.jobs.get(event.job)
        rate = report.goodput or (
            report.batch / report.step_s if report.batch and report.step_s else 0
        )
        if not rate or life is None or life.on is None or event.attempt != life.current:
            return
        name, on = event.job, life.on
        known = self._on.get(name)
        if known is None or known.devices != on.devices:
            rates = self._rates.get(name, [])
            if known is not None and len(rates) >= REPORTS:
                self._past[name] = (known, median(rates), replay.line, replay.now)
            else:
                self._past.pop(name, None)
            self._on[name], self._rates[name] = on, []
        self._rates[name].append(float(rate))
        self._compare(replay, name, on)

    def _compare(self, replay: PlayedLog, name: str, on: Allocation) -> None:
        if name not in self._past or len(self._rates[name]) < REPORTS:
            return
        before, rate, line, at = self._past[name]
        now = median(self._rates[name])
        if replay.now - at < LASTS_S or now >= SLOWER * rate or on.gpus < before.gpus:
            return
        del self._past[name]
        what = "grew" if on.gpus > before.gpus else "moved"
        sizes = f"from {before.gpus} to {say_gpus(on.gpus)}"
        text = f"it {what} {sizes}, and does {now / rate:.0%} of before"
        finding = Finding(STOPS, "slower", at, line, (name,), text, Weight.DOUBT)
        replay.findings.append(finding)
