"""Whose batch jobs are whose: who submits a job, and who may have submitted one with its tag.

A tag is a comment that everyone can read and write, so that a job counts as an attempt only where
the user who submitted it is the attempt's own.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, JobId
from weft.engines.fleet.port import name_job
from weft.engines.machine.users import user_of
from weft.engines.slurm.answers import SlurmJob
from weft.wire.attempt import USER, job_folder, read_json
from weft.wire.identity import Identity


class Submitters:
    """The `users` of tenants, where each submits its own; none where the service submits all.

    `state` is where the folder of each job says whom it runs as.
    """

    def __init__(self, state: Path, users: Mapping[str, Identity]) -> None:
        self._state, self.users = state, users
        self._uids: dict[JobId, int] = {}

    def check(self) -> None:
        """Raise InvalidConfig for a user whom Slurm would not know."""
        for name, user in self.users.items():
            try:
                pwd.getpwuid(user.uid)
            except KeyError as error:
                raise InvalidConfig(
                    f"tenant {name!r} runs as user {user.uid}, whom this machine does not know, so "
                    "that Slurm would refuse its jobs",
                    hint="name a user that all machines of the cluster have, or serve with "
                    "--engine slurm:submit_as=service",
                ) from error

    def find(self, job: JobId) -> Identity | None:
        """Who submits this job; None for the service."""
        if not self.users:
            return None
        job = name_job(job)
        self._uids.pop(job, None)  # a name may be another tenant's job by now
        uid = self._uid(job)
        for user in self.users.values():
            if user.uid == uid:
                return user
        raise EngineError(
            f"job {job!r} runs as user {uid}, who is no tenant's any more",
            hint="an admin changes the users of `weft serve`",
        )

    def name_of(self, job: Job) -> str:
        """The user whose batch job this one will be, as Slurm calls him."""
        user = user_of(self.users, job)
        return pwd.getpwuid(os.geteuid() if user is None else user.uid).pw_name

    def submitted(self, job: JobId, batch: SlurmJob) -> bool:
        """Whether a batch job with this job's tag can be ours."""
        own = os.geteuid()
        return batch.uid in (own, self._uid(name_job(job)) if self.users else own)

    def _uid(self, job: JobId) -> int:
        if job not in self._uids:
            body = read_json(job_folder(self._state, job) / USER)
            if body is None:
                return -1
            self._uids[job] = int(body["uid"])
        return self._uids[job]
