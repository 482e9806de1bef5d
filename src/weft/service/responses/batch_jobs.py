"""What the API answers to clients that submit batch jobs."""

from __future__ import annotations

from weft.frozen import frozen_by_name


@frozen_by_name
class BatchJobToSubmit:
    """A batch job that is offered to its user's client; `secret` names it in the report."""

    secret: str
    script: str


@frozen_by_name
class BatchJobs:
    """What a client is to submit, the batch jobs it is to end, and how many jobs are `left`."""

    submit: list[BatchJobToSubmit]
    cancel: list[str]
    left: int
