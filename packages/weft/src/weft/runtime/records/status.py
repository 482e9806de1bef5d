"""The state of a job, in the words people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from weft.core.errors import UnknownName, did_you_mean
from weft.core.model.job import JobId, Stage
from weft.core.state.cells import TableColumns
from weft.core.state.state import State
from weft.frozen import frozen
from weft.runtime.records.job_records import ALL, JobRecord, JobRecords
from weft.runtime.records.ledger import Ledger

COMPARED = 200
WORDS = {Stage.STARTING: "starting", Stage.RUNNING: "running", Stage.STOPPING: "checkpointing"}
READ = (TableColumns.STAGE, TableColumns.RETRIES, TableColumns.FAILED, TableColumns.RAN_SINCE)


@frozen
class JobStatus:
    """A job's record and its state.

    `state` is pending, starting, running, checkpointing, preempted, suspended, succeeded, failed
    or cancelled. Preempted jobs have run and wait for devices; pending ones wait for their first
    run, or to be tried again after a failure; suspended ones until someone resumes them.
    """

    record: JobRecord
    state: str


def find_record(ledger: Ledger, job: JobId) -> JobRecord:
    """A job's record; UnknownName, with the closest of the last jobs, if there is none."""
    record = ledger.jobs.get(job)
    if record is None:
        close = did_you_mean(job, ledger.jobs.latest(COMPARED))
        raise UnknownName(f"no job named {job!r}{close}", hint="`weft jobs` shows all")
    return record


def status_of(record: JobRecord, state: State) -> JobStatus:
    """The status of one job."""
    job = record.job.id
    if record.outcome:
        return JobStatus(record, record.outcome)
    table = state.table
    if job not in table:  # its end is being written down, and has not happened until then
        return JobStatus(record, _word(record, Stage.RUNNING if record.starts else Stage.PENDING))
    row = table.row(job)
    stage, retries, failed, since = (table.get(row, which) for which in READ)
    return JobStatus(record, _word(record, stage, retries > 0 and failed == since))


def words_but_pending(jobs: JobRecords, state: State) -> dict[JobId, str]:
    """The states of active jobs; those that are not among them are pending.

    Costs what the jobs cost that hold devices, ran or are suspended, however many others wait.
    """
    table = state.table
    rows = np.flatnonzero(table.column(TableColumns.STAGE) != Stage.PENDING)
    names = {table.jobs[row].id: None for row in rows.tolist()} | jobs.touched
    statuses = ((name, status_of(jobs.live[name], state)) for name in names if name in jobs.active)
    return {name: status.state for name, status in statuses if status.state != "pending"}


def count_words(jobs: JobRecords, words: Mapping[JobId, str], tenant: str = ALL) -> Counter[str]:
    """The number of active jobs of a tenant in each state, by `words_but_pending`."""
    counts = Counter(w for name, w in words.items() if tenant in (ALL, jobs.active[name]))
    everybody = len(jobs.active) if tenant == ALL else jobs.active_of[tenant]
    counts["pending"] = everybody - counts.total()
    return +counts


def _word(record: JobRecord, stage: float, failed_last: bool = False) -> str:
    ahead = record.sleeps is not None and not record.starts  # it was started before its turn
    if stage != Stage.PENDING and not (ahead and stage == Stage.STOPPING):
        return WORDS[Stage(int(stage))]
    if record.suspended is not None:
        return "suspended"
    return "preempted" if record.starts and not failed_last else "pending"
