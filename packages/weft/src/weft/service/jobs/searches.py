"""Sweeps that search: trials that fall behind give way, and the next trials are chosen.

All that decides is a fold of the log, the trials and what they reported, so that a service that
was restarted goes on as it would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from weft.app.search.halving import Behind, Curve, best_of, find_behind
from weft.app.search.optuna_sampler import PastTrial, ask
from weft.core.events.event import Cancelled
from weft.core.model.job import Job, JobId
from weft.core.model.search import SearchKind, SearchTerms
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import loses_work, resume, suspend
from weft.runtime.records.job_records import JobRecord
from weft.service.context import Context
from weft.service.requests.job_file import JobFile, fill, job_of, search_of
from weft.service.requests.sweep import TRIALS_AT_ONCE, space_of, write_values

BY = "its search"
RECALLED_S, PAGE = 7 * 86_400.0, 500


@dataclass
class Searches(Repeated):
    """The searches of a service; it remembers what ended trials reached, which is for good."""

    every_s = 1.0
    trouble = "sweeps that search neither stop nor choose trials"
    service: Context
    _open: dict[str, SearchTerms] = field(default_factory=dict)
    _seen: int = -1  # the number of the last job that was looked at
    _ended: dict[str, dict[JobId, SweepTrial]] = field(default_factory=dict)

    @classmethod
    def of(cls, service: Context) -> Searches:
        """The searches of a service, settled from now on."""
        made = cls(service)
        made.open()
        return made

    async def poll(self) -> None:
        """Settle each sweep that searches and may still have something to do."""
        await self._find()
        for app, search in [*self._open.items()]:
            self._ended.setdefault(app, {})
            settle = self._add if search.kind is SearchKind.OPTUNA else self._stop
            if not await settle(app, search):
                del self._open[app], self._ended[app]

    async def _find(self) -> None:
        """Find the searches among the jobs that are new: those of the last days after a start.

        All trials of one may have ended by now, with the next one still to choose.
        """
        jobs, now = self.service.driver.ledger.jobs, self.service.driver.now
        since = 0.0 if self._seen >= 0 else now - RECALLED_S
        while self._seen + 1 < (following := jobs.following):
            records = await self.service.read(jobs.pager(PAGE, after=self._seen, since=since))
            for record in records:
                search = None if record.job.launch is None else record.job.launch.search
                if search is not None and search.kind in (SearchKind.ASHA, SearchKind.OPTUNA):
                    self._open[record.job.app] = search
            self._seen = records[-1].number if records else following - 1

    async def _stop(self, app: str, search: SearchTerms) -> bool:
        """Let trials that are behind give way, and those that no longer are come back."""
        driver = self.service.driver
        trials = [*self._trials(app, search)]
        behind = find_behind({trial.job.id: trial.curve for trial in trials}, search)
        active = [trial for trial in trials if not trial.outcome]
        for trial in active:
            why = behind.get(trial.job.id)
            if why is not None and trial.suspended is None:
                await put_aside(driver, trial.job.id, why, search)
            elif why is None and (trial.suspended or "").startswith(BY):
                await resume(driver, trial.job.id)
        left = [trial for trial in active if trial.job.id not in behind]
        for trial in () if left else active:  # none can come back any more
            await driver.write_down(
                Cancelled(trial.job.id, behind[trial.job.id].say(search.metric))
            )
        return bool(left)

    async def _add(self, app: str, search: SearchTerms) -> bool:
        """Submit the next trials, unless a person has cancelled one; false once all are there."""
        trials = [*self._trials(app, search)]
        body = JobFile.model_validate_json(search.body)
        sweep = body.sweep
        over = not trials or any(trial.cancelled for trial in trials)
        if over or sweep is None or not sweep.space:
            return False
        first = trials[0].job
        for index in range(len(trials), search.trials):
            active = sum(not trial.outcome for trial in trials)
            if active >= (body.max_parallel or TRIALS_AT_ONCE):
                return True
            past = [trial.past(search) for trial in trials]
            work = partial(
                ask, space_of(sweep.space), past, maximize=search.maximize, seed=sweep.seed
            )
            values = write_values(await self.service.read(work))
            job = job_of(
                fill(body, app, index, values),
                tenant=first.tenant,
                user=first.user,
                account="" if first.launch is None else first.launch.account,
                parameters=values,
                search=search_of(body),
            )
            job = replace(job, after=first.after, deadline=first.deadline)
            await self.service.driver.submit(job)
            trials.append(SweepTrial(job, ""))
        return False

    def _trials(self, app: str, search: SearchTerms) -> Iterator[SweepTrial]:
        """The trials of a sweep that were submitted, in order."""
        jobs, ended = self.service.driver.ledger.jobs, self._ended[app]
        for index in range(search.trials):
            name = JobId(f"{app}.{index}")
            if name in ended:
                yield ended[name]
                continue
            record = jobs.get(name)
            if record is None:
                continue
            trial = SweepTrial.of(record, search)
            if trial.outcome:
                ended[name] = trial
            yield trial


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """A trial as far as a search looks at it."""

    job: Job
    outcome: str
    reason: str = ""
    suspended: str | None = None
    curve: Curve = ()

    @classmethod
    def of(cls, record: JobRecord, search: SearchTerms) -> SweepTrial:
        """A trial from the record of its job."""
        series = record.metrics.series.get(search.metric)
        points = () if series is None else series.curve()
        curve = [(step, math.nan if value is None else value) for step, value, _ in points]
        return cls(record.job, record.outcome, record.reason, record.suspended, curve)

    @property
    def cancelled(self) -> bool:
        """True if a person cancelled it."""
        return (self.outcome, self.reason) == ("cancelled", "cancelled")

    def past(self, search: SearchTerms) -> PastTrial:
        """The trial as a sampler knows it."""
        best = best_of([point for point in self.curve if math.isfinite(point[1])], search)
        given = {} if self.job.launch is None else dict(self.job.launch.parameters)
        return PastTrial(given, best, bool(self.outcome))


async def put_aside(driver: Driver, job: JobId, why: Behind, search: SearchTerms) -> None:
    """Let a trial give its devices away, such that it may come back if it can."""
    reason = why.say(search.metric)
    if loses_work(driver, job):
        await driver.write_down(Cancelled(job, reason))
    else:
        await suspend(driver, job, f"{BY} ({reason})")
