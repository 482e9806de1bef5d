"""Where a job stands, in the words people read."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.errors import UnknownName, did_you_mean
from weft.core.model.job import JobId, Stage
from weft.core.state.state import State
from weft.core.state.table import Column
from weft.frozen import frozen
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import Ledger

COMPARED = 200
WORDS = {Stage.STARTING: "starting", Stage.RUNNING: "running", Stage.STOPPING: "checkpointing"}
READ = (Column.STAGE, Column.RETRIES, Column.FAILED, Column.RAN_SINCE)


@frozen
class JobStatus:
    """A job's record and its state.

    `state` is pending, starting, running, checkpointing, preempted, suspended, succeeded, failed
    or cancelled. Preempted jobs have run and wait for devices; pending ones wait for their first
    run, or to be tried again after a failure; suspended ones until somebody resumes them.
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


def active_words(records: Mapping[JobId, JobRecord], state: State) -> dict[JobId, str]:
    """The state of every job that has not ended: all at once, for those who count them.

    A job that is being written down is in the table already and not yet in the records.
    """
    table = state.table
    stage, retries, failed, since = (table.column(which) for which in READ)
    lately = ((retries > 0) & (failed == since)).tolist()
    return {
        job.id: _word(record, at, late)
        for job, at, late in zip(table.jobs, stage.tolist(), lately, strict=True)
        if (record := records.get(job.id)) is not None
    }


def _word(record: JobRecord, stage: float, failed_last: bool = False) -> str:
    ahead = record.sleeps is not None and not record.starts  # it was started before its turn
    if stage != Stage.PENDING and not (ahead and stage == Stage.STOPPING):
        return WORDS[Stage(int(stage))]
    if record.suspended is not None:
        return "suspended"
    return "preempted" if record.starts and not failed_last else "pending"
