"""The reasons why jobs wait, from what is true at this moment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from weft.core.model.cluster import Node
from weft.core.model.gang_nodes import count_large_nodes, place_on_nodes
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Sharing, name_of
from weft.core.plan.about import About, Controls
from weft.core.plan.kept_back import awaited_by, find_kept_back
from weft.core.plan.reasons import (
    Blocker,
    Reason,
    asks_for,
    describe_demand,
    describe_host,
    device_word,
    name_some,
    say_away,
    say_free,
    say_held,
    say_lent,
    say_nodes_free,
)
from weft.core.scheduler import Scheduler
from weft.core.state.capacity import EPS, Capacity
from weft.core.state.cells import TableColumns
from weft.core.state.table import JobTable
from weft.frozen import frozen
from weft.runtime.deciding.live_policy import live_policy, stand_in
from weft.runtime.loop.admit import policy_of
from weft.runtime.records.entitlement import TenantTerms
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.sleep_records import describe_sleep
from weft.stack.layers import pause_s, place_on_host
from weft.stack.windows import ReservedWindow, find_windows, kept_away

if TYPE_CHECKING:
    from weft.runtime.loop.driver import Driver

DOWN = "down"
SOON_S = 2.0  # until the policy is asked again: no job is held back for that
DECIDING = "the decision that is being made"
FITS = (Blocker.TURN, Blocker.ROUND, Blocker.FALLBACK)  # said of jobs that what is free is for


@dataclass(slots=True)
class Holders:
    """The jobs that hold devices of a kind, by tenant, and how many GPUs all of them together."""

    jobs: dict[str, list[tuple[Job, float]]] = field(default_factory=dict)
    count: int = 0
    gpus: float = 0.0

    def add(self, job: Job, gpus: float) -> None:
        """One more that holds that many."""
        self.jobs.setdefault(job.tenant, []).append((job, gpus))
        self.count, self.gpus = self.count + 1, self.gpus + gpus


@frozen
class WaitExplainer:
    """One instant: the machines there are, what is free, which policy decides and when.

    `nodes` are all machines, those that are away too, and `words` what is the matter with those.
    `trouble` is why no policy decides, empty if one does; `failing` what is wrong with the
    policy while a safe order stands in for it. `kept_back` are jobs
    that no policy is asked about yet, `doubted` those that could start despite their reason,
    and `first` is the oldest of the waiting jobs with the highest priority. `windows` are
    devices that are kept for a tenant or for no one. `idles` is why the policy itself, without
    the rules around it, may leave devices idle. `own` are GPUs that tenants own.
    """

    free: Capacity
    nodes: Sequence[Node]
    about: About
    policy: str
    now: float
    wake_at: float | None = None
    trouble: str = ""
    kept_back: frozenset[JobId] = frozenset()
    failing: str = ""
    words: Mapping[NodeId, str] = field(default_factory=dict)
    doubted: frozenset[JobId] = frozenset()
    first: Job | None = None
    table: JobTable | None = None
    windows: Sequence[ReservedWindow] = ()
    idles: str = ""
    own: Mapping[str, float] = field(default_factory=dict)
    _known_reasons: dict[tuple[Demand, str, tuple[str, ...]], Reason] = field(
        default_factory=dict, init=False, compare=False
    )
    _looked: dict[Demand, Reason] = field(default_factory=dict, init=False, compare=False)
    _held: dict[str, Holders] = field(default_factory=dict, init=False, compare=False)

    def explain_wait(self, job: Job, text: str = "", blocker: Blocker = Blocker.SAID) -> Reason:
        """The one thing that keeps a job waiting; `text` is what the last decision told it."""
        if text and blocker not in (Blocker.NO_ROOM, Blocker.KEPT):
            return Reason(blocker, {"text": text}, text)
        if self.trouble:
            return Reason(Blocker.NOBODY, {"trouble": self.trouble})
        if job.demand.max == 0:
            return self._without_devices(job)
        barred = [window for window in self.windows if not window.admits(job, self.now)]
        key = job.demand, job.tenant, tuple(window.name for window in barred)
        if key not in self._known_reasons:  # many ask for the same; 500 nodes took 1 ms each
            self._known_reasons[key] = self._beside(job.demand, job.tenant, barred)
        why = self._known_reasons[key]
        if text and blocker is Blocker.KEPT:  # true only while something is free for it
            return Reason(blocker, {"text": text}, text) if why.blocker in FITS else why
        return Reason(why.blocker, why.values, f"{why.text}; {text}") if text else why

    def _beside(self, demand: Demand, tenant: str, barred: Sequence[ReservedWindow]) -> Reason:
        """The reason why a job of this demand waits, beside devices that are kept from it."""
        why = self._because(demand, tenant)
        if why.blocker not in FITS or not barred:
            return why
        with kept_away(self.free, barred):
            if self._find_reason(demand).blocker in FITS:
                return why
        up = self.free.cluster.index
        near = sorted(
            window.name for window in barred if any(node in up for node in window.devices)
        )
        return Reason(Blocker.RESERVED, {"asks": self.describe(demand), "kept": ", ".join(near)})

    def _because(self, demand: Demand, tenant: str) -> Reason:
        if demand not in self._looked:  # the same for every tenant
            self._looked[demand] = self._find_reason(demand)
        why = self._looked[demand]
        if why.blocker in (Blocker.GPUS, Blocker.NODES):
            all_taken = str(why.values["free"]).startswith("no")
            held = self._say_held(demand, tenant, all_taken=all_taken)
            lent = self._say_lent(self._least(demand) * demand.share, tenant)
            return Reason(why.blocker, {**why.values, "held": held + lent})
        return why

    def _say_lent(self, least: float, tenant: str) -> str:
        """Words for GPUs of a tenant that others hold with jobs that are not stopped."""
        held, firm = defaultdict[str, float](float), defaultdict[str, float](float)
        for holders in self._holders().values() if self.own.get(tenant) else ():
            for who, jobs in holders.jobs.items():
                held[who] += math.fsum(gpus for _, gpus in jobs)
                firm[who] += math.fsum(gpus for job, gpus in jobs if not job.stoppable)
        own = self.own.get(tenant, 0.0)
        lent = math.fsum(
            min(firm[who], max(held[who] - self.own.get(who, 0.0), 0.0))
            for who in firm
            if who != tenant
        )
        lent = min(lent, own - held[tenant])
        return say_lent(lent, own) if lent > EPS and held[tenant] + least <= own + EPS else ""

    def _say_held(self, demand: Demand, tenant: str, *, all_taken: bool) -> str:
        """The jobs that hold what it could use; other tenants' jobs are not named."""
        named: list[tuple[str, float]] = []
        count, theirs = 0, 0.0
        for kind, held in self._holders().items():
            if not demand.kinds or kind in demand.kinds:
                own = held.jobs.get(tenant, [])
                named += ((name_of(job), gpus) for job, gpus in own)
                count += held.count - len(own)
                theirs += held.gpus - math.fsum(gpus for _, gpus in own)
        return say_held(named, (count, theirs), all_taken=all_taken)

    def _holders(self) -> dict[str, Holders]:
        if not self._held and self.table is not None:
            kinds = {node.id: node.kind for node in self.nodes}  # those that drain as well
            for row in self.table.held.nonzero()[0].tolist():  # few, where very many wait
                on = self.table.allocations[row]
                if on is not None and on.gpus:
                    kind = kinds.get(on.slices[0].node, "")
                    held = self._held.setdefault(kind, Holders())
                    held.add(self.table.jobs[row], on.counted_gpus)
        return self._held

    def _find_reason(self, demand: Demand) -> Reason:
        if why := self._away(demand) or self._taken(demand):
            return why
        single = self._least(demand) == 1 or demand.share < 1.0
        return self._kept_back(self.describe(demand), single=single)

    def _without_devices(self, job: Job) -> Reason:
        asks = describe_host(job)
        if not self.free.cluster.nodes:
            return self._say_away(asks, self.nodes, len(self.nodes))
        if place_on_host(self.free, job) is None:
            return Reason(Blocker.CPU_JOBS, {"asks": asks})
        return self._kept_back(asks, single=job.cpus == 1.0)

    def _away(self, demand: Demand) -> Reason | None:
        up = self.free.cluster.index
        could = [node for node in self.nodes if not demand.kinds or node.kind in demand.kinds]
        away = [node for node in could if node.id not in up]
        there = self.free.cluster.gpus_by_kind
        most = max((there.get(node.kind, 0) for node in could), default=0)
        enough = most >= self._least(demand)
        if demand.nodes:
            enough = count_large_nodes(demand, self.free.cluster.nodes) >= demand.nodes
        if not away or enough:
            return None
        return self._say_away(self.describe(demand), away, len(could))

    def _say_away(self, asks: str, away: Sequence[Node], could: int) -> Reason:
        states = sorted({self.words.get(node.id, DOWN) for node in away})
        numbers = {
            "asks": asks,
            "which": say_away(len(away), could),
            "are": "is" if len(away) == 1 else "are",
            "states": " or ".join(states),
        }
        return Reason(Blocker.AWAY, numbers)

    def _taken(self, demand: Demand) -> Reason | None:
        kinds = [k for k in self.free.kinds if not demand.kinds or k in demand.kinds]
        free = {kind: float(self.free.idle(kind)) for kind in kinds}
        shares = demand.share < 1.0 and any(self.free.with_room(k, demand.share) for k in kinds)
        most = max(free.values(), default=0.0)
        if most + EPS < self._least(demand) and not shares:
            most_free = say_free(most, several_kinds=len(kinds) > 1)
            return Reason(
                Blocker.GPUS, {"asks": self.describe(demand), "free": most_free, "held": ""}
            )
        if demand.nodes and (why := self._too_few_nodes(kinds, demand)):
            return why
        if any(self._hosted(kind, demand) for kind in kinds):
            return None
        return self._host_taken(kinds, demand)

    def _too_few_nodes(self, kinds: Sequence[str], demand: Demand) -> Reason | None:
        """Too few nodes of a kind with its part of a gang free on each."""
        if any(place_on_nodes(self.free, kind, demand) for kind in kinds):
            return None
        each = demand.per_node
        sizes = {kind: range(each, self.free.cluster.node_size(kind) + 1) for kind in kinds}
        counts = (sum(self.free.count_nodes_with(k, n) for n in sizes[k]) for k in kinds)
        most_free = say_nodes_free(max(counts, default=0), each, several_kinds=len(kinds) > 1)
        return Reason(Blocker.NODES, {"asks": self.describe(demand), "free": most_free, "held": ""})

    def _hosted(self, kind: str, demand: Demand) -> bool:
        """True if enough free devices of a kind have their part of the host beside them."""
        if demand.share < 1.0:
            share, sharing = demand.share, Sharing(demand.share)
            return any(
                self.free.fits(Allocation((self.free.slice_of(node, 1 << gpu, share),), sharing))
                for node, gpu in self._devices_with_room(kind, share)
            )
        if demand.nodes:
            return self._count_hosted(kind, demand.per_node) >= demand.nodes
        return self._count_hosted(kind) >= self._least(demand)

    def _devices_with_room(self, kind: str, share: float) -> Iterator[tuple[int, int]]:
        """Devices of a kind, in part or wholly free, that have room for a share."""
        yield from self.free.with_room(kind, share)
        for i, node in enumerate(self.free.cluster.nodes):
            mask = self.free.idle_mask(i) if node.kind == kind else 0
            if mask:
                yield i, (mask & -mask).bit_length() - 1

    def _count_hosted(self, kind: str, each: int = 0) -> int:
        """Free devices of a kind that have their part of the host; or nodes with `each` of them."""
        count_all = 0
        for i, node in enumerate(self.free.cluster.nodes):
            count = self.free.on(i) if node.kind == kind else 0
            while count and not self.free.fits(Allocation((self.free.slice(i, count),))):
                count -= 1
            count_all += count >= each if each else count
        return count_all

    def _host_taken(self, kinds: Sequence[str], demand: Demand) -> Reason:
        """The part of the host that is missing where devices are free."""
        asks, count = self.describe(demand), self._least(demand) * demand.share
        short_of_cpus, cpus, mem_gb = False, 0.0, 0.0
        for i, node in enumerate(self.free.cluster.nodes):
            if node.kind in kinds:
                left, _ = self.free.host(i)
                cpus, mem_gb = count * node.cpus / node.gpus, count * node.mem_gb / node.gpus
                short_of_cpus |= left + EPS < demand.share * node.cpus / node.gpus
        if short_of_cpus:
            return Reason(Blocker.CPUS, {"asks": asks, "need": cpus})
        return Reason(Blocker.MEMORY, {"asks": asks, "need": mem_gb})

    def _kept_back(self, asks: str, *, single: bool) -> Reason:
        values = {"asks": asks, "are": "is" if single else "are", "policy": self.policy}
        if self.failing:
            return Reason(Blocker.FALLBACK, {**values, "trouble": self.failing})
        seconds = math.inf if self.wake_at is None else max(self.wake_at - self.now, 0.0)
        if seconds <= SOON_S or (self.about.every is not None and self.wake_at is not None):
            when = f"the next decision, in {seconds:.0f} s" if seconds >= 1.0 else DECIDING
            return Reason(Blocker.ROUND, {**values, "when": when})
        why = f"policy {self.policy!r} has not given {'it' if single else 'them'} out yet"
        if self.idles:
            why = f"under policy {self.policy!r} {self.idles}"
        when = "when something changes" if self.wake_at is None else f"in {seconds:.0f} s"
        return Reason(Blocker.TURN, {**values, "why": why, "when": when})

    def _least(self, demand: Demand) -> int:
        return demand.min if Controls.COUNT in self.about.controls else demand.gpus

    def describe(self, demand: Demand) -> str:
        """Describe a job's request in words."""
        return describe_demand(demand, self._least(demand), (node.kind for node in self.nodes))


def waits_of(driver: Driver) -> WaitExplainer:
    """An explainer of why jobs of a live scheduler wait now."""
    scheduler, decisions = driver.scheduler, driver.decisions
    failing = decisions.trouble or decisions.given_up
    about, state = scheduler.policy.about, scheduler.state
    table = state.table
    looks = table.conditional or table.suspended
    kept_back = find_kept_back(table).nonzero()[0] if looks else ()
    if decisions.trouble:
        about = live_policy(stand_in(driver.policy)).about
    nodes = driver.nodes()
    return WaitExplainer(
        free=state.free,
        nodes=[node for node, _ in nodes],
        about=about,
        policy=scheduler.policy.about.name,
        now=driver.now,
        wake_at=driver.now if decisions.asking else state.wake_at,
        trouble=decisions.undecided,
        kept_back=frozenset(table.jobs[row].id for row in kept_back),
        failing=failing,
        words={node.id: word for node, word in nodes if word != "up"},
        doubted=decisions.doubted,
        first=_find_first(table, kept_back),
        table=table,
        windows=[window for window in find_windows(driver.policy) if driver.now < window.end],
        idles=policy_of(replace(driver.policy, wrappers=())).about.idles,
        own=TenantTerms.of(driver.policy).own,
    )


def _find_first(table: JobTable, kept_back: Iterable[int]) -> Job | None:
    """The oldest job of the highest priority among those that wait to be started."""
    waits = table.held == 0.0
    waits[list(kept_back)] = False
    rows = waits.nonzero()[0]
    if not len(rows):
        return None
    return table.jobs[int(rows[table.column(TableColumns.PRIORITY)[rows].argmax()])]


def why_waits(waits: WaitExplainer, scheduler: Scheduler, record: JobRecord) -> Reason | None:
    """The reason why a job of a live scheduler waits, which may have failed before.

    None for one that waits no more, as its end is being written down. Of one that sleeps it says
    where, and how soon it is back.
    """
    reason = _why_waits(waits, scheduler, record)
    sleeps = describe_sleep(scheduler.state, record.job.id) if reason is not None else ""
    if reason is None or not sleeps or sleeps.split(",")[0] in reason.text:
        return reason
    return Reason(reason.blocker, reason.values, f"{reason.text}; {sleeps}")


def _why_waits(waits: WaitExplainer, scheduler: Scheduler, record: JobRecord) -> Reason | None:
    table, job = scheduler.state.table, record.job
    if job.id not in table:
        return None
    if record.suspended is not None:
        return Reason(Blocker.SUSPENDED, {"by": record.suspended})
    if why := why_kept_back(job, table, parallel=job.id in waits.kept_back):
        return why
    row = table.row(job.id)
    retries = table.get(row, TableColumns.RETRIES)
    left = (
        table.get(row, TableColumns.FAILED) + pause_s(job, retries) - waits.now if retries else 0.0
    )
    if left > 0.0:
        what = f" ({first})" if (first := record.reason.partition("\n")[0][:120]) else ""
        return Reason(Blocker.FAILED, {"what": what, "seconds": left})
    # Why it was moved, once; what was kept from it may be so no more.
    past = record.blocker in (Blocker.MOVED, Blocker.GAVE_WAY, Blocker.RESERVED)
    old = past or job.id in waits.doubted
    why = _add_first(
        waits, job, waits.explain_wait(job, "" if old else record.said, record.blocker)
    )
    if record.blocker is Blocker.GAVE_WAY and record.said:
        return Reason(why.blocker, why.values, f"{why.text}; it {record.said.partition(';')[0]}")
    return why


def why_kept_back(job: Job, table: JobTable, *, parallel: bool) -> Reason | None:
    """For which other jobs it waits; `parallel` if as many of its app as may run at once."""
    if awaited := awaited_by(job, table):
        return Reason(Blocker.DEPENDENCY, {"jobs": name_some(awaited)})
    if parallel:
        return Reason(Blocker.PARALLEL, {"app": job.app, "limit": job.max_parallel})
    return None


def _add_first(waits: WaitExplainer, job: Job, why: Reason) -> Reason:
    """Add the job that one is kept back behind, if that is why, or that came before it."""
    first = waits.first
    if why.blocker is not Blocker.TURN or first is None or first.id == job.id:
        return why
    asks = waits.describe(first.demand)
    name = name_of(first) if first.tenant == job.tenant else "a job of another tenant"
    if first.priority > job.priority:
        if Controls.TIER in waits.about.controls or waits.about.whole:
            return why
        return Reason(Blocker.CLASS, {"job": name, "asks": asks})
    if not waits.idles or first.submitted > job.submitted:
        return why
    more = f"{name} came before it and waits for {asks}"
    return Reason(why.blocker, why.values, f"{why.text}; {more}")


def why_small(waits: WaitExplainer, job: Job, on: Allocation) -> str:
    """One sentence; empty for a job that is as large as it may be, or beside nothing free."""
    node = on.slices[0].node if on.slices else ""
    if on.gpus >= job.demand.max or job.demand.nodes or node not in waits.free.cluster.index:
        return ""
    kind = waits.free.cluster.kind_of(on)
    with kept_away(waits.free, [w for w in waits.windows if not w.admits(job, waits.now)]):
        free = waits.free.idle(kind)
    if not free:
        return ""
    why = "it grows only where that saves more time than the change costs"
    if Controls.COUNT not in waits.about.controls:
        why = f"policy {waits.policy!r} leaves jobs at the size they ask for"
    elif not job.stoppable:
        why = "a job that may not be stopped keeps its size"
    most = asks_for(job.demand.max, (kind,) if device_word((kind,)) != "GPU" else ())
    are = "is" if free == 1 else "are"
    return f"runs on {on.gpus} of up to {most}; {free} {are} free, but {why}"
