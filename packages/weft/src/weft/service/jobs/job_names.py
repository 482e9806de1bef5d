"""Finds the job that is meant: by its id, the part after its tenant, its name, a prefix, or @last.

Ids that a tenant's people choose begin with the tenant (`vision:run-1`), so that no answer tells
whether another tenant has a job of that id.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from itertools import islice, takewhile

from weft.core.errors import did_you_mean
from weft.core.model.job import Job, JobId, name_of
from weft.runtime.records.job_records import ALL, JobRecords
from weft.service.access.tokens import Caller
from weft.service.http.replies import HttpProblem

LAST = "@last"
SHOWN = 5
LONGEST = 160
SLACK = 1000
MOST = 100  # of those that have left, looked at for one text
MOST_OF_APP = 10_000
RECENT = 50  # compared with what was mistyped


def own_id(asked: str | None, tenant: str, who: Caller) -> str | None:
    """The id of a new job: a tenant's people choose among their tenant's own."""
    if asked is None:
        return None
    whose, colon, _ = asked.rpartition(":")
    if colon and whose != tenant:
        raise HttpProblem(422, f"id: it begins with {whose!r}, not with its tenant", "", "id")
    return asked if colon or who.everywhere else f"{tenant}:{asked}"


class JobNames:
    """Every job by id and by name: those in memory by an index of our own, others by the store's.

    The index grows as jobs come; those that went are skipped, and it is made again once many
    have.
    """

    def __init__(self, jobs: Callable[[], JobRecords]) -> None:
        self._present = jobs
        self._newest = -1
        self._ids: list[JobId] = []
        self._names: defaultdict[str, list[JobId]] = defaultdict(list)
        self._apps: defaultdict[str, _Apps] = defaultdict(_Apps)  # of each tenant, and of all

    @property
    def _jobs(self) -> JobRecords:
        return self._present()

    def resolve(self, text: str, who: Caller) -> JobId:
        """The job that `who` means; Refused if there is none, or more than one."""
        exact = self._exact(text, who)
        if exact is not None:
            return exact
        self.catch_up()
        meant = self._last(who) if text == LAST else self._named(text, who)
        if len(meant) == 1:
            return meant[0]
        short = text[:LONGEST]
        if not meant:
            close = "" if text == LAST else did_you_mean(short, self._recent(who))
            raise HttpProblem(404, f"there is no job {short!r}{close}", "`weft jobs` lists yours")
        some = ", ".join(meant[-SHOWN:])
        many = f"{len(meant)}{' or more' if len(meant) >= MOST else ''}"
        raise HttpProblem(409, f"{short!r} may be any of {many} jobs", f"say which: {some}")

    def find_all(self, text: str, who: Caller) -> list[JobId]:
        """The jobs of the sweep or app that `who` means, or else the one job."""
        app = self.find_app(text, who)
        if app is None:
            return [self.resolve(text, who)]
        whose, jobs = _tenant_of(who), self._jobs
        live = [job for job in self._apps[whose or ALL].jobs.get(app, ()) if job in jobs.live]
        past = jobs.ended.of_app(app, MOST_OF_APP, tenant=whose)
        return [*dict.fromkeys((*past, *live))][:MOST_OF_APP]

    def find_app(self, text: str, who: Caller) -> str | None:
        """The sweep or app of this name, or the only one that begins with it."""
        self.catch_up()
        whose, live = _tenant_of(who), self._jobs.live
        apps = self._apps[whose or ALL]
        known = {*apps.beginning(text, live), *self._jobs.ended.app_names(text, 2, tenant=whose)}
        if text in known or self._exact(text, who) is not None:
            return text if text in known else None
        return known.pop() if len(known) == 1 else None

    def _exact(self, text: str, who: Caller) -> JobId | None:
        for job in (JobId(text), JobId(f"{who.tenant}:{text}")):
            record = self._jobs.get(job)
            if record is not None and who.sees(record.job):
                return job
        return None

    def _named(self, text: str, who: Caller) -> list[JobId]:
        """Return jobs of that name, one that has not ended first; else those that begin so."""
        ended, whose = self._jobs.ended, _tenant_of(who)
        named = self._both(
            self._names.get(text, []), ended.find_by_name(text, MOST, tenant=whose), who
        )
        if named:
            active = [job for job in named if job in self._jobs.active]
            return active if len(active) == 1 else named
        job_ids: list[JobId] = []
        for start in (text, f"{who.tenant}:{text}"):
            past = ended.find_by_prefix(start, MOST, tenant=whose)
            job_ids += self._both(self._beginning(start), past, who)
        return job_ids

    def _beginning(self, text: str) -> list[JobId]:
        first = bisect_left(self._ids, text)
        past = bisect_left(self._ids, text + chr(0x10FFFF))
        return self._ids[first:past]

    def _last(self, who: Caller) -> list[JobId]:
        """The one that was submitted last, by this very person where that is known."""
        jobs = self._jobs
        mine = (
            record
            for record in reversed(jobs.live.values())
            if who.sees(record.job) and who.name in ("", record.job.user)
        )
        past = jobs.ended.latest(1, tenant=_tenant_of(who), user=who.name or None)
        both = [*islice(mine, 1), *(jobs[job] for job in past)]
        return [record.job.id for record in sorted(both, key=lambda record: record.number)[-1:]]

    def _recent(self, who: Caller) -> list[JobId]:
        live = self._visible(islice(reversed(self._jobs.live), 500), who)
        return (live + self._jobs.ended.latest(RECENT, tenant=_tenant_of(who)))[:RECENT]

    def _both(self, live: Iterable[JobId], past: Iterable[JobId], who: Caller) -> list[JobId]:
        here = self._visible(live, who)
        return [*(job for job in past if job not in self._jobs.live), *here]

    def _visible(self, jobs: Iterable[JobId], who: Caller) -> list[JobId]:
        live = self._jobs.live
        return [job for job in jobs if job in live and who.sees(live[job].job)]

    def catch_up(self) -> None:
        """Take in the jobs since the newest that is known; all of them once many have gone.

        It is done as jobs come: for 20,000 at once it holds the loop for 0.1 s.
        """
        live = self._jobs.live
        if len(self._ids) > 2 * len(live) + SLACK:
            self._newest = -1
            self._ids.clear()
            self._names.clear()
            self._apps.clear()
        fresh = [*takewhile(lambda record: record.number > self._newest, reversed(live.values()))][
            ::-1
        ]
        if not fresh:
            return
        self._newest = fresh[-1].number
        for record in fresh:
            for name in {name_of(record.job), record.job.id.rpartition(":")[2]}:
                self._names[name].append(record.job.id)
            if record.job.app:
                for whose in (record.job.tenant, ALL):
                    self._apps[whose].add(record.job)
        self._ids += [record.job.id for record in fresh]
        self._ids.sort()


class _Apps:
    """Sweeps and apps by name, with the jobs that came of each in order of submission."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[JobId]] = {}
        self._sorted: list[str] = []

    def add(self, job: Job) -> None:
        if job.app not in self.jobs:
            self.jobs[job.app] = []
            insort(self._sorted, job.app)
        self.jobs[job.app].append(job.id)

    def beginning(self, text: str, live: Container[JobId]) -> list[str]:
        """The app of that name and the next that begins with it, of those with jobs in `live`."""
        apps = takewhile(
            lambda app: app.startswith(text),
            islice(self._sorted, bisect_left(self._sorted, text), None),
        )
        there = (app for app in apps if any(job in live for job in reversed(self.jobs[app])))
        return [*islice(there, 2)]


def _tenant_of(who: Caller) -> str | None:
    return None if who.everywhere else who.tenant
