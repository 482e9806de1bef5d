"""What must be true after a crash soak: nothing lost, doubled or left behind; ledger equals log."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.books import Comparison
from benchmarks.soak_jobs import HARMLESS_TO_ITSELF, MAY_BE_BELIEVED
from benchmarks.soak_service import knowledge
from weft.core.codec.plain_values import encode
from weft.core.events.event import (
    Awoke,
    Decided,
    Event,
    Failed,
    Finished,
    NodeDown,
    Slept,
    Started,
    StartFailed,
    Stopped,
    Submitted,
    Suspended,
)
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, JobId
from weft.core.scheduler import Scheduler
from weft.judge.finding import BOOKS, LAWFUL, Weight
from weft.judge.judge import judge
from weft.judge.log_lines import read_log
from weft.judge.stops import SWAP
from weft.judge.words import say_finding
from weft.policies.fifo import Fifo
from weft.runtime.deciding.replay import decide_again
from weft.runtime.records.job_records import JobRecord
from weft.runtime.recovery.recover import Recovered, recover
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore


class Promised(Protocol):
    """What the service promised to who ran the soak."""

    folder: Path
    submitted: list[str]
    cancelled: set[str]
    harmful: dict[str, str]

    @property
    def state(self) -> Path:
        """The service's folder."""
        ...


def check(it: Promised) -> dict[str, Any]:
    """Raise AssertionError for every promise that was broken; what was seen."""
    store = SqliteStore(it.state / "events.db")
    try:
        return _check(it, store)
    finally:
        store.close()


def _check(it: Promised, store: SqliteStore) -> dict[str, Any]:
    log = store.since(0)
    known = recover(store, _scheduler)
    jobs = known.ledger.jobs  # those that ended are read from the store
    lost = [job for job in it.submitted if job not in jobs]
    assert not lost, f"accepted but not there: {lost}"
    assert not (it.folder / "work" / "DOUBLE").exists(), "a rank ran twice at once"
    overlaps = overlapping(it.state / "audit.jsonl")
    assert not overlaps, f"attempts of one job overlapped: {overlaps}"
    for job, record in jobs.items():
        _check_job(it, job, record)
    for withdrawn in it.cancelled:
        allowed = ("cancelled", "failed") if withdrawn in it.harmful else ("cancelled",)
        assert jobs[JobId(withdrawn)].outcome in (*allowed, "succeeded"), withdrawn
    _check_nothing_is_left(it)
    days, counted = known.ledger.used(log[-1][1]), gpu_seconds(log)
    used = {tenant: day.gpu_s for tenant, day in days.items()}
    for tenant in used.keys() | counted.keys():
        difference = abs(used.get(tenant, 0.0) - counted.get(tenant, 0.0))
        assert difference < 1e-6, f"{tenant}: ledger and log differ by {difference} GPU-seconds"
    compared = _compare_books(known, log)
    verdict = judge(read_log(it.state))
    unlawful = [say_finding(f) for f in verdict.findings if f.check in (LAWFUL, BOOKS)]
    assert not unlawful, "\n".join(unlawful)
    turns = decide_again(log, knowledge=knowledge())
    different = [turn for turn in turns if turn.then != turn.now]
    assert not different, f"{len(different)} decisions differ on replay, first {different[0]}"
    quarantine = it.state / "quarantine"
    return {
        "events": len(log),
        "values compared": compared,
        "judged wrong": [say_finding(f) for f in verdict.findings if f.weight is Weight.WRONG],
        "swaps": sum(finding.what == SWAP for finding in verdict.findings),
        "decisions": sum(turn.then is not None for turn in turns),
        "jobs": len(jobs),
        "accepted": len(it.submitted),
        "cancelled": sum(record.outcome == "cancelled" for record in jobs.values()),
        "harmful": len(it.harmful),
        "quarantined": sum("quarantined" in record.reason for record in jobs.values()),
        "set_aside": len(list(quarantine.iterdir())) if quarantine.exists() else 0,
        "starts": sum(record.starts for record in jobs.values()),
        "resizes": resizes(log),
        "suspensions": suspensions(log),
        "of arrays": sum(record.job.max_parallel > 0 for record in jobs.values()),
        "shared": sum(record.job.demand.share < 1.0 for record in jobs.values()),
        "gpu_s": round(sum(used.values()), 1),
    }


def _scheduler() -> Scheduler:
    return Scheduler(Fifo(), Cluster(()), knowledge=knowledge())


def _compare_books(known: Recovered, log: Iterable[tuple[int, float, Event]]) -> int:
    """Compare all accounts after this life with those of its log alone; how many values."""
    store = MemoryStore()
    store.append([(at, event) for _, at, event in log])
    books = Comparison()
    books.add("log alone", _books(known), _books(recover(store, _scheduler)))
    assert not books.wrong, "\n".join(books.wrong)
    return books.values


def _books(known: Recovered) -> dict[str, Any]:
    ledger, at = known.ledger, known.at
    days = {tenant: encode(day) for tenant, day in ledger.used(at).items()}
    jobs = {job: encode(record) for job, record in ledger.jobs.items()}
    lost = dict(ledger.tallies.lost_gpu_s)
    return {"jobs": jobs, "tenants": days, "shares": ledger.shares(at).save(), "lost": lost}


def _check_job(it: Promised, job: JobId, record: JobRecord) -> None:
    assert record.outcome, f"{job} never ended"
    harm = it.harmful.get(job, "")
    if harm and harm not in HARMLESS_TO_ITSELF:
        allowed = ("failed", "cancelled", *(("succeeded",) if harm in MAY_BE_BELIEVED else ()))
        assert record.outcome in allowed, f"{job} {harm}: {record.outcome}"
        return
    assert record.outcome != "failed", f"{job} {harm}: {record.reason}"
    if record.outcome == "succeeded" and not harm:
        goal = int(record.job.launch.command[5])  # type: ignore[union-attr]
        reached = int((it.folder / "work" / f"{job}.count").read_text())
        assert reached == goal, f"{job} counted to {reached} of {goal}"


def _check_nothing_is_left(it: Promised) -> None:
    left = [f"{pid}: {text}" for pid, text in processes_naming(str(it.folder))]
    assert not left, f"processes were left behind: {left}"
    marks = [path.name for path in (it.state / "live").iterdir()]
    assert not marks, f"attempts are still marked as running: {marks}"


def processes_naming(text: str) -> Iterable[tuple[int, str]]:
    """Processes other than this one with `text` in their command line."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, UnicodeDecodeError):
                continue
            if text in line:
                yield int(entry.name), line


def overlapping(audit: Path) -> list[str]:
    """Jobs of which an attempt began before the one before it was over."""
    running: dict[str, int] = {}
    wrong = []
    for line in audit.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by a full disk
        job, attempt = entry["job"], entry["attempt"]
        if entry["what"] == "end":
            running.pop(job, None)
        elif job in running and running[job] > attempt:
            wrong.append(job)  # an older one after a newer one
        else:
            running[job] = attempt
    return wrong


class _Counted:
    """GPU-seconds counted from the log without the ledger's help."""

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        self._tenant: dict[str, str] = {}
        self._holds: dict[str, Allocation | None] = {}
        self._promises: dict[str, list[Allocation]] = {}
        self._runs: dict[str, tuple[int, float, float]] = {}
        self._asleep: dict[str, Allocation] = {}  # whose processes sleep, and on what

    def take(self, at: float, event: Event) -> None:
        match event:
            case Submitted(job=job):
                self._tenant[job.id] = job.tenant
            case Decided(changes=changes, sleeps=sleeps):
                for name, to in changes.items():
                    self._decided(at, name, to, sleeps=name in sleeps)
            case Suspended() | Slept() | Awoke():
                self._take_sleep(at, event)
            case NodeDown(node):
                self._holds = {job: _off(on, node) for job, on in self._holds.items()}
            case Started(job, attempt):
                if job not in self._runs:
                    self._runs[job] = attempt, at, _width(self._promises[job][attempt - 1])
            case (
                Stopped(job, attempt)
                | Finished(job, attempt)
                | Failed(job, attempt)
                | StartFailed(job, attempt)  # an engine that came back may not know that it did
            ):
                if len(self._promises.get(job, ())) == attempt:
                    self._holds[job] = None
                    self._asleep.pop(job, None)
                self._settle(at, job, attempt)

    def _take_sleep(self, at: float, event: Suspended | Slept | Awoke) -> None:
        on = self._holds.get(event.job)
        match event:
            case Suspended(job):
                self._lie_down(job)
                self._holds[job] = None
            case Slept(job, attempt):
                self._settle(at, job, attempt)
            case Awoke(job, attempt) if on is not None and job in self._asleep:
                del self._asleep[job]
                self._runs[job] = attempt, at, _width(on)

    def _lie_down(self, job: str) -> None:
        if (on := self._holds.get(job)) is not None:
            self._asleep[job] = on

    def _decided(self, at: float, name: str, to: Allocation | None, *, sleeps: bool) -> None:
        if to is None and sleeps:
            self._lie_down(name)
        was = self._holds.get(name)
        self._holds[name] = to
        if to is None:
            return
        asleep = self._asleep.get(name)
        if asleep is not None and asleep.devices == to.devices:
            self._promises[name][-1] = to  # it goes on where it sleeps
            return
        self._asleep.pop(name, None)
        if was is None or was.devices != to.devices:
            self._promises.setdefault(name, []).append(to)
            return
        self._promises[name][-1] = to
        attempt = len(self._promises[name])
        if self._settle(at, name, attempt):
            self._runs[name] = attempt, at, _width(to)  # the same run at another width

    def _settle(self, at: float, job: str, attempt: int) -> bool:
        run = self._runs.get(job)
        if run is None or run[0] != attempt:
            return False
        _, since, width = self._runs.pop(job)
        tenant = self._tenant[job]
        self.total[tenant] = self.total.get(tenant, 0.0) + (at - since) * width
        return True


def gpu_seconds(log: Iterable[tuple[int, float, Event]]) -> dict[str, float]:
    """GPU-seconds of each tenant."""
    counted = _Counted()
    for _, at, event in log:
        counted.take(at, event)
    return counted.total


def _off(on: Allocation | None, node: str) -> Allocation | None:
    """What a job holds after a node is gone: all of it, or nothing if it was there."""
    return None if on is None or any(part.node == node for part in on.slices) else on


def _width(on: Allocation) -> float:
    return on.counted_gpus


def suspensions(log: Iterable[tuple[int, float, Event]]) -> int:
    """Decisions that took all devices from a job which ran, and later gave it some again."""
    running: set[str] = set()
    suspended: set[str] = set()
    count = 0
    for _, _, event in log:
        match event:
            case Started(job):
                running.add(job)
            case Stopped(job) | Finished(job) | Failed(job):
                running.discard(job)
            case Decided(changes=changes):
                for name, to in changes.items():
                    if to is None and name in running:
                        suspended.add(name)
                    elif to is not None and name in suspended:
                        suspended.discard(name)
                        count += 1
            case _:
                pass
    return count


def resizes(log: Iterable[tuple[int, float, Event]]) -> int:
    """Decisions that gave a job another number of devices than it had before."""
    held: dict[str, int] = {}
    count = 0
    for _, _, event in log:
        if isinstance(event, Decided):
            for job, to in event.changes.items():
                if to is not None:
                    count += held.get(job, to.gpus) != to.gpus
                    held[job] = to.gpus
    return count
