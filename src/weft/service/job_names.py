"""Which job is meant: by its id, the part after its tenant, its name, a beginning, or @last.

Ids that a tenant's people choose begin with the tenant (`vision:run-1`), so that no answer tells
whether another tenant has a job of that id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from itertools import islice, takewhile

from weft.app.serve.live import JobRecord
from weft.core.errors import did_you_mean
from weft.core.model import JobId
from weft.service.auth import Caller
from weft.service.describe import name_of
from weft.service.refusals import Refused

LAST = "@last"
SHOWN = 5
LONGEST = 160
SLACK = 1000


def own_id(asked: str | None, tenant: str, who: Caller) -> str | None:
    """The id of a new job: a tenant's people choose among their tenant's own."""
    if asked is None:
        return None
    whose, colon, _ = asked.rpartition(":")
    if colon and whose != tenant:
        raise Refused(422, f"id: it begins with {whose!r}, not with its tenant", "", "id")
    return asked if colon or who.everywhere else f"{tenant}:{asked}"


class JobNames:
    """Every job by id and by name, as the log tells of them."""

    def __init__(self, jobs: Callable[[], dict[JobId, JobRecord]]) -> None:
        self._present = jobs
        self._newest: JobId | None = None
        self._ids: list[JobId] = []
        self._names: defaultdict[str, list[JobId]] = defaultdict(list)

    @property
    def _jobs(self) -> dict[JobId, JobRecord]:
        return self._present()

    def find(self, text: str, who: Caller) -> JobId:
        """The job that `who` means; Refused if there is none, or more than one."""
        exact = self._exact(text, who)
        if exact is not None:
            return exact
        self._catch_up()
        meant = self._last(who) if text == LAST else self._named(text, who)
        if len(meant) == 1:
            return meant[0]
        short = text[:LONGEST]
        if not meant:
            close = "" if text == LAST else did_you_mean(short, self._recent(who))
            raise Refused(404, f"there is no job {short!r}{close}", "`weft jobs` lists yours")
        some = ", ".join(meant[-SHOWN:])
        raise Refused(409, f"{short!r} may be any of {len(meant)} jobs", f"say which: {some}")

    def find_all(self, text: str, who: Caller) -> list[JobId]:
        """The jobs of the sweep or app that `who` means, or else the one job."""
        app = self.find_app(text, who)
        if app is None:
            return [self.find(text, who)]
        return [job for job, one in self._jobs.items() if one.job.app == app and who.sees(one.job)]

    def find_app(self, text: str, who: Caller) -> str | None:
        """The sweep or app of this name, or the only one that begins with it."""
        known = {one.job.app for one in self._jobs.values() if one.job.app and who.sees(one.job)}
        if text in known or self._exact(text, who) is not None:
            return text if text in known else None
        found = [app for app in known if app.startswith(text)]
        return found[0] if len(found) == 1 else None

    def _exact(self, text: str, who: Caller) -> JobId | None:
        for job in (JobId(text), JobId(f"{who.tenant}:{text}")):
            record = self._jobs.get(job)
            if record is not None and who.sees(record.job):
                return job
        return None

    def _named(self, text: str, who: Caller) -> list[JobId]:
        """Those of that name, of which one that has not ended is meant; else by beginning."""
        named = self._visible(self._names.get(text, []), who)
        if named:
            active = [job for job in named if not self._jobs[job].outcome]
            return active if len(active) == 1 else named
        found = self._beginning(text) + self._beginning(f"{who.tenant}:{text}")
        return self._visible(found, who)

    def _beginning(self, text: str) -> list[JobId]:
        first = bisect_left(self._ids, text)
        past = bisect_left(self._ids, text + chr(0x10FFFF))
        return self._ids[first:past]

    def _last(self, who: Caller) -> list[JobId]:
        """The one that was handed in last, by this very person where that is known."""
        mine = (job for job in reversed(self._jobs) if who.sees(self._jobs[job].job))
        if who.name:
            mine = (job for job in mine if self._jobs[job].job.user == who.name)
        return list(islice(mine, 1))

    def _recent(self, who: Caller) -> list[JobId]:
        return self._visible(list(islice(reversed(self._jobs), 500)), who)[:50]

    def _visible(self, jobs: list[JobId], who: Caller) -> list[JobId]:
        return [job for job in jobs if job in self._jobs and who.sees(self._jobs[job].job)]

    def _catch_up(self) -> None:
        """Take in the jobs since the newest that is known; all of them once many were pruned."""
        jobs = self._jobs
        if len(self._ids) > 2 * len(jobs) + SLACK:
            self._newest = None
            self._ids.clear()
            self._names.clear()
        fresh = list(takewhile(lambda job: job != self._newest, reversed(jobs)))[::-1]
        known = set(self._ids) if len(fresh) == len(jobs) else set()  # the newest was pruned
        fresh = [job for job in fresh if job not in known]
        if not fresh:
            return
        self._newest = next(reversed(jobs), None)
        for job in fresh:
            for name in {name_of(jobs[job].job), job.rpartition(":")[2]}:
                self._names[name].append(job)
        self._ids += fresh
        self._ids.sort()
