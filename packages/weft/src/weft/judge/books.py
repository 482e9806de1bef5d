"""Books: GPU time, waits and restarts worked out from the log, against what the service says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from weft.core.events import event as facts
from weft.frozen import frozen
from weft.judge.finding import BOOKS, Finding
from weft.judge.lives import Life
from weft.judge.log_lines import LogLine
from weft.judge.replay import LogWatch, PlayedLog

EPS = 1e-3


@frozen
class JobAccount:
    """Totals of one job over the log."""

    job: str
    tenant: str
    outcome: str
    submitted: float
    started: float | None
    ended: float | None
    starts: int
    gpu_s: float
    ran_s: float

    @property
    def waited_s(self) -> float | None:
        """Until its first start; None before."""
        return None if self.started is None else self.started - self.submitted

    @property
    def restarts(self) -> int:
        return max(self.starts - 1, 0)


def account_jobs(replay: PlayedLog) -> dict[str, JobAccount]:
    """Every job's, up to the end of the log or a later time."""
    return {name: _account(life, replay.now) for name, life in replay.jobs.items()}


def _account(life: Life, until: float) -> JobAccount:
    life.count_until(max(until, life.counted))
    return JobAccount(
        life.job.id,
        life.job.tenant,
        life.outcome,
        life.submitted,
        life.first_start,
        life.ended,
        life.starts,
        life.gpu_s,
        life.ran_s,
    )


@dataclass(slots=True)
class TenantAccount:
    """GPU-seconds that a tenant's jobs had and were entitled to; `met_s` is both at once."""

    jobs: int = 0
    gpu_s: float = 0.0
    entitled_s: float = 0.0
    met_s: float = 0.0


class TenantsWatch(LogWatch):
    """Every tenant's account."""

    def __init__(self) -> None:
        self.accounts: dict[str, TenantAccount] = {}

    def after(self, replay: PlayedLog, line: LogLine) -> None:
        del replay
        if isinstance(line.event, facts.Submitted):
            self._of(line.event.job.tenant).jobs += 1

    def pause(self, replay: PlayedLog, until: float) -> None:
        """Count what tenants use and are entitled to meanwhile."""
        seconds = until - replay.now
        used: dict[str, float] = {}
        wanted: dict[str, float] = {}
        for life in replay.present():
            tenant, demand = life.job.tenant, life.job.demand
            used[tenant] = used.get(tenant, 0.0) + life.rate
            if not life.outcome and not life.suspended:
                wanted[tenant] = wanted.get(tenant, 0.0) + demand.gpus * demand.share
        due = entitled(replay, wanted)
        for tenant, gpus in used.items():
            account = self._of(tenant)
            account.gpu_s += gpus * seconds
            account.entitled_s += due.get(tenant, 0.0) * seconds
            account.met_s += min(gpus, due.get(tenant, 0.0)) * seconds

    def _of(self, tenant: str) -> TenantAccount:
        return self.accounts.setdefault(tenant, TenantAccount())


def entitled(replay: PlayedLog, wanted: Mapping[str, float]) -> dict[str, float]:
    """GPUs that tenants may expect now: of what they own, of their groups', and of the rest."""
    quota, lend = replay.rules("quota"), replay.rules("lend")
    weights = {**_numbers(quota, "weights"), **_numbers(lend, "weights")}
    limits, own = _numbers(quota, "limits"), _numbers(lend, "own")
    parents = lend.get("parents", {})
    given = dict.fromkeys(wanted, 0.0)
    groups: dict[str, list[str]] = {tenant: [tenant] for tenant in wanted}
    for line in groups.values():
        while isinstance(parents, Mapping) and line[-1] in parents:
            line.append(str(parents[line[-1]]))
    depths = {name: 1 + line.index(name) for line in groups.values() for name in line}
    room = float(sum(node.gpus for node in replay.nodes.values()))
    for owner in [*sorted(own, key=lambda name: depths.get(name, 0)), ""]:
        members = [tenant for tenant in wanted if not owner or owner in groups[tenant]]
        left = own.get(owner, inf) - sum(given[tenant] for tenant in members)
        left = max(min(left, room - sum(given.values())), 0.0)
        hungry = {who: min(wanted[who], limits.get(who, inf)) - given[who] for who in members}
        while left > EPS * EPS and (hungry := {w: n for w, n in hungry.items() if n > EPS * EPS}):
            total = sum(weights.get(who, 1.0) for who in hungry)
            step = min(left / total, *(n / weights.get(who, 1.0) for who, n in hungry.items()))
            for who in hungry:
                given[who] += step * weights.get(who, 1.0)
                hungry[who] -= step * weights.get(who, 1.0)
            left -= step * total
    return given


def _numbers(rule: Mapping[str, object], name: str) -> dict[str, float]:
    written = rule.get(name, {})
    return {str(k): float(v) for k, v in written.items()} if isinstance(written, Mapping) else {}


def compare(replay: PlayedLog, records: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    """Report where records of ended jobs, as plain values, differ from the log."""
    for record in records:
        name = str(record["job"]["id"])
        life = replay.jobs.get(name)
        if life is None:
            if replay.whole:
                text = "there is a record of a job that the log does not have"
                yield Finding(BOOKS, "unknown job", replay.now, 0, (name,), text)
            continue
        meter = record.get("gpu_s", {})
        compared: dict[str, tuple[object, object]] = {
            "outcome": (life.outcome, record.get("outcome", "")),
            "submitted": (life.submitted, float(record["submitted"])),
            "started": (life.first_start, record.get("started")),
            "ended": (life.ended, record.get("ended")),
            "starts": (life.starts, record.get("starts", 0)),
            "gpu_s": (life.gpu_s, float(meter.get("base", 0.0))),
        }
        for word, (ours, value) in compared.items():
            if not _same(ours, value):
                text = f"its {word} is {_say(ours)} by the log, and the service says {_say(value)}"
                yield Finding(BOOKS, f"other {word}", replay.now, life.line, (name,), text)


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= EPS + 1e-9 * abs(ours)
    return ours == theirs


def _say(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
