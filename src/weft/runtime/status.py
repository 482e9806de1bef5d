"""Where a job stands, in the words people read."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.model import Stage
from weft.core.state import State
from weft.runtime.ledger import JobRecord

WORDS = {Stage.STARTING: "starting", Stage.RUNNING: "running", Stage.STOPPING: "checkpointing"}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's record and its state.

    `state` is pending, starting, running, checkpointing, preempted, succeeded, failed or
    cancelled. Preempted jobs have run and wait for devices; pending ones wait for their first
    run, or to be tried again after a failure.
    """

    record: JobRecord
    state: str


def status_of(record: JobRecord, state: State) -> JobStatus:
    """The status of one job."""
    job = record.job.id
    if record.outcome or job not in state.table:
        return JobStatus(record, record.outcome)
    table = state.table
    row = table.row(job)
    stage = Stage(int(table.get(row, "stage")))
    if stage is not Stage.PENDING:
        return JobStatus(record, WORDS[stage])
    failed_last = table.get(row, "retries") and table.get(row, "failed") == table.get(
        row, "ran_since"
    )
    return JobStatus(record, "preempted" if record.starts and not failed_last else "pending")
