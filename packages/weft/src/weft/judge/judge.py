"""The whole judgement: a log is played once, and every check watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

from weft.frozen import frozen
from weft.judge.books import JobAccount, TenantAccount, TenantsWatch, account_jobs, compare
from weft.judge.finding import CHECKS, Finding, Weight, count_wrong
from weft.judge.foretold import StartsWatch
from weft.judge.idle import IdlenessWatch
from weft.judge.lawful import LawfulWatch
from weft.judge.log_lines import EventLog, LogLine
from weft.judge.promises import PromiseBook, PromiseWatch
from weft.judge.replay import LogWatch, PlayedLog
from weft.judge.stops import SlowerWatch, StopsWatch

DAY_S = 86_400.0
LAST_DAYS = 30.0  # of a service's log, where nothing else is asked for


@frozen
class Verdict:
    """Findings of the judge from `begin` to `end`, and what it counted.

    `promises` are made and kept, by what was promised and who decided; `starts` from when until
    when jobs were to start, and when they did. `numbers` are by check.
    """

    where: str
    lines: int
    begin: float
    end: float
    whole: bool
    findings: tuple[Finding, ...]
    promises: Mapping[tuple[str, str], tuple[int, int]]
    starts: tuple[tuple[float, float, float], ...]
    numbers: Mapping[str, Mapping[str, float]]
    books: Mapping[str, JobAccount]
    tenants: Mapping[str, TenantAccount]

    @property
    def wrong(self) -> int:
        """The number of findings that say that something is wrong."""
        return count_wrong(self.findings)

    def count(self) -> Counter[tuple[str, str, Weight]]:
        """Findings by check, kind and weight."""
        return Counter((f.check, f.what, f.weight) for f in self.findings)


def judge(log: EventLog, days: float = inf) -> Verdict:
    """Play a log again and judge its last days; what was before is only played."""
    since = -inf if days == inf else log.end - days * DAY_S
    replay, book = PlayedLog(), PromiseBook()
    idle, stops, foretold = IdlenessWatch(), StopsWatch(), StartsWatch(book)
    tenants = TenantsWatch()
    watches: list[LogWatch] = [LawfulWatch(), idle, stops, SlowerWatch(), PromiseWatch(book)]
    watches += [foretold, tenants]
    judged, begin = 0, None
    for line in _lines(log, replay):
        if line.at < since:
            replay.play_line(line)
            continue
        judged, begin = judged + 1, line.at if begin is None else begin
        if line.at > replay.now and replay.line:
            for watch in watches:
                watch.pause(replay, line.at)
        for watch in watches:
            watch.before(replay, line)
        replay.play_line(line)
        for watch in watches:
            watch.after(replay, line)
    for watch in watches:
        watch.close(replay)
    findings = [f for f in (*replay.findings, *compare(replay, log.records)) if f.at >= since]
    order = {check: number for number, check in enumerate(CHECKS)}
    findings.sort(key=lambda f: (-f.weight, order[f.check], f.at, f.line))
    books = account_jobs(replay)
    numbers = {
        "stops": {
            "stops": float(stops.count),
            "swaps": float(stops.swaps),
            "GPU-hours since the last checkpoint": stops.unsaved_gpu_s / 3600.0,
        },
        "idle": {
            "job-hours beside idle GPUs, with a reason": idle.by_reason_s / 3600.0,
            "job-hours beside idle GPUs, by the policy's own rule": idle.by_policy_s / 3600.0,
        },
        "foretold": {"hours off at worst": foretold.worst_s / 3600.0},
        "books": {
            "jobs": float(len(books)),
            "GPU-hours": sum(account.gpu_s for account in books.values()) / 3600.0,
            "restarts": float(sum(account.restarts for account in books.values())),
        },
    }
    return Verdict(
        log.where,
        judged,
        replay.now if begin is None else begin,
        replay.now,
        replay.whole,
        tuple(findings),
        book.rows,
        tuple(foretold.points),
        numbers,
        books,
        tenants.accounts,
    )


def _lines(log: EventLog, replay: PlayedLog) -> Iterator[LogLine]:
    """Lines with events; what is missing or cannot be read is reported."""
    last: int | None = None
    for line in log:
        if last is None:
            replay.whole = line.number <= 1
        elif line.number != last + 1:
            text = f"{line.number - last - 1} lines are missing from {last + 1} on"
            replay.line = last + 1
            replay.report_impossible("missing lines", (), text)
        last = line.number
        if isinstance(line, LogLine):
            yield line
        else:
            replay.line = line.number
            replay.report_impossible("unreadable", (), f"the line cannot be read: {line.why}")
