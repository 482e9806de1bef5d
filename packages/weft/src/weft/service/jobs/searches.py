"""Sweeps that search: trials that fall behind give way, and the next trials are chosen.

All that decides is a fold of the log, the trials and what they reported, so that a service that
was restarted goes on as it would have.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from weft.app.search.halving import Behind, best_of, find_behind, rungs, values_at
from weft.app.search.optuna_sampler import PastTrial, sample
from weft.core.errors import EngineError, InvalidConfig, WeftError
from weft.core.events.event import Cancelled
from weft.core.model.job import Job, JobId
from weft.core.model.search import SearchKind, SearchTerms
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.runtime.loop.job_commands import loses_work, resume, suspend
from weft.runtime.records.job_records import JobRecord
from weft.service.access.rate_limit import check_jobs
from weft.service.access.tokens import Caller
from weft.service.context import Context
from weft.service.http.replies import HttpProblem
from weft.service.requests.job_file import JobFile, fill, job_of
from weft.service.requests.sweep import TRIALS_AT_ONCE, Sweep, space_of, write_values
from weft.service.routes.jobs.jobs import active_of, check_guaranteed

log = logging.getLogger(__name__)

BY = "its search"
RECALLED_S, PAGE = 7 * 86_400.0, 500
PART = 50  # trials looked at before others have their turn
REST = 9.0  # searches take a tenth of the loop at most
ADDING_S = 1.0  # for one search to choose trials before the next has its turn


@dataclass
class OpenSearch:
    """A search that may still have something to do, and its trials that ended, which is for good.

    `file` is what its later trials are made of, once it was read.
    """

    terms: SearchTerms
    ended: dict[JobId, SweepTrial] = field(default_factory=dict)
    file: JobFile | None = None


@dataclass
class Searches(Repeated):
    """The searches of a service."""

    every_s = 1.0
    trouble = "sweeps that search neither stop nor choose trials"
    service: Context
    _open: dict[str, OpenSearch] = field(default_factory=dict)
    _seen: int = -1  # the number of the last job that was looked at

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
            began = time.thread_time()
            if not await self._settle(app, search):
                del self._open[app]
            await asyncio.sleep(REST * (time.thread_time() - began))

    async def _settle(self, app: str, search: OpenSearch) -> bool:
        """Let a search go on; false once that is over. What is wrong with it is its own trouble."""
        try:
            if search.terms.kind is SearchKind.OPTUNA:
                return await self._add(app, search)
            return await self._stop(app, search)
        except Exception as error:
            passes = isinstance(error, OSError | WeftError) and not isinstance(error, InvalidConfig)
            # Not its whole text: what a job file should not have held is in it.
            why = error.what if isinstance(error, WeftError) else type(error).__name__
            end = "is tried again" if passes else "is over: its next trial cannot be made"
            log.warning("the search of sweep %s %s: %s", app, end, why)
            if not passes:
                self.service.searches_over[app] = f"the search {end}: {why}"
            return passes

    async def _find(self) -> None:
        """Find the searches among the jobs that are new: those of the last days after a start.

        All trials of one may have ended by now, with the next one still to choose.
        """
        jobs, now = self.service.driver.ledger.jobs, self.service.driver.now
        since = 0.0 if self._seen >= 0 else now - RECALLED_S
        while self._seen + 1 < (following := jobs.following):
            records = await self.service.read(jobs.page_reader(PAGE, after=self._seen, since=since))
            for record in records:
                search = None if record.job.launch is None else record.job.launch.search
                if search is not None and search.kind in (SearchKind.ASHA, SearchKind.OPTUNA):
                    self._open.setdefault(record.job.app, OpenSearch(search))
            self._seen = records[-1].number if records else following - 1

    async def _stop(self, app: str, search: OpenSearch) -> bool:
        """Let trials that are behind give way, and those that no longer are come back."""
        driver, terms = self.service.driver, search.terms
        trials = await self._trials(app, search)
        reached = {trial.job.id: trial.values for trial in trials}
        behind = await self.service.read(partial(find_behind, reached, terms))
        active = [trial for trial in trials if not trial.outcome]
        for trial in active:
            why = behind.get(trial.job.id)
            if why is not None and trial.suspended is None:
                await put_aside(driver, trial.job.id, why, terms)
            elif why is None and (trial.suspended or "").startswith(BY):
                await resume(driver, trial.job.id)
        left = [trial for trial in active if trial.job.id not in behind]
        for trial in () if left else active:  # none can come back any more
            await driver.write_down(Cancelled(trial.job.id, behind[trial.job.id].say(terms.metric)))
        return bool(left)

    async def _add(self, app: str, search: OpenSearch) -> bool:
        """Submit the next trials, unless a person has cancelled one; false once all are there."""
        terms, until = search.terms, time.monotonic() + ADDING_S
        trials = await self._trials(app, search)
        if not trials or any(trial.cancelled for trial in trials):
            return False
        body = search.file = search.file or JobFile.model_validate_json(terms.body)
        if body.sweep is None or not body.sweep.space:
            return False
        while len(trials) < terms.trials:
            active = sum(not trial.outcome for trial in trials)
            if active >= (body.max_parallel or TRIALS_AT_ONCE) or time.monotonic() > until:
                return True
            past = [trial.past() for trial in trials]
            job = await self._choose(app, len(trials), body, body.sweep, trials[0].job, past)
            if not self._admits(job):
                return True
            await self.service.driver.submit(job)
            trials.append(SweepTrial(job, ""))
        return False

    async def _choose(
        self, app: str, index: int, body: JobFile, sweep: Sweep, first: Job, past: list[PastTrial]
    ) -> Job:
        """The next trial, from what those before it reached."""
        space, maximize = space_of(sweep.space or {}), sweep.goal == "max"
        work = partial(sample, space, past, maximize, sweep.seed)
        try:
            values = write_values(await self.service.work.sample.do(lambda: work))
        except EngineError as error:  # it took too much, or ended its process: so would the next
            raise InvalidConfig(error.what) from error
        job = job_of(
            fill(body, app, index, values),
            tenant=first.tenant,
            user=first.user,
            account="" if first.launch is None else first.launch.account,
            owner="" if first.launch is None else first.launch.owner,
            parameters=values,
            search=None if first.launch is None else first.launch.search,
        )
        return replace(job, after=first.after, deadline=first.deadline)

    def _admits(self, job: Job) -> bool:
        """True if its tenant may have one more job now, as if it were submitted by a request."""
        if not len(self.service.tokens):
            return True
        who = Caller("user", job.tenant, job.user)
        try:
            check_guaranteed([job], self.service, who)
            active = active_of(self.service.driver, job.tenant)
            check_jobs(self.service.limits, [job], active, who)
        except HttpProblem:
            return False
        return True

    async def _trials(self, app: str, search: OpenSearch) -> list[SweepTrial]:
        """The trials of a sweep that were submitted, in order."""
        jobs, steps, trials = self.service.driver.ledger.jobs, rungs(search.terms), []
        for index in range(search.terms.trials):
            name = JobId(f"{app}.{index}")
            trial = search.ended.get(name)
            if trial is None:
                record = jobs.get(name)
                if record is None or record.job.app != app:
                    break  # they are submitted in order
                trial = SweepTrial.of(record, search.terms, steps)
            if trial.outcome:
                search.ended[name] = trial
            trials.append(trial)
            if index % PART == PART - 1:
                await asyncio.sleep(0.0)
        return trials


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """A trial as far as a search looks at it: its `values` at the rungs and the `best` of all."""

    job: Job
    outcome: str
    reason: str = ""
    suspended: str | None = None
    values: tuple[float, ...] = ()
    best: float | None = None

    @classmethod
    def of(cls, record: JobRecord, search: SearchTerms, steps: Sequence[float]) -> SweepTrial:
        series = record.metrics.series.get(search.metric)
        points = () if series is None else series.curve()
        curve = [(step, math.nan if value is None else value) for step, value, _ in points]
        return cls(
            record.job,
            record.outcome,
            record.reason,
            record.suspended,
            values_at(curve, steps),
            best_of([point for point in curve if math.isfinite(point[1])], search),
        )

    @property
    def cancelled(self) -> bool:
        """True if a person cancelled it."""
        return (self.outcome, self.reason) == ("cancelled", "cancelled")

    def past(self) -> PastTrial:
        """The trial as a sampler knows it."""
        given = {} if self.job.launch is None else dict(self.job.launch.parameters)
        return PastTrial(given, self.best, bool(self.outcome))


async def put_aside(driver: Driver, job: JobId, why: Behind, search: SearchTerms) -> None:
    """Let a trial give its devices away, such that it may come back if it can."""
    reason = why.say(search.metric)
    if loses_work(driver, job):
        await driver.write_down(Cancelled(job, reason))
    else:
        await suspend(driver, job, f"{BY} ({reason})")
