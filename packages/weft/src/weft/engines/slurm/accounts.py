"""Account, QOS and partition of Slurm jobs, their permissions, and the user who submits.

A tenant has a list of each, the usual one first: `vision:vis+vis-urgent/nlp:nlp` gives tenant
vision two and nlp one. A job chooses among its tenant's by the variables that sbatch reads itself.

Sites without slurmdbd, or that do not hold jobs to it (`AccountingStorageEnforce`), have none.

A tag is a comment that everyone can read and write, so that a job counts as an attempt only where
the user who submitted it is the attempt's own.
"""

from __future__ import annotations

import os
import pwd
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from weft.core.errors import EngineError, InvalidConfig
from weft.core.model.job import Job, JobId
from weft.engines.fleet.port import name_job
from weft.engines.machine.users import user_of
from weft.engines.slurm.answers import SlurmJob
from weft.engines.slurm.script import SbatchOptions
from weft.frozen import frozen
from weft.wire.attempt import USER, job_folder, read_json
from weft.wire.identity import Identity

# By the fields of SbatchOptions.
VARIABLES = {"account": "SBATCH_ACCOUNT", "qos": "SBATCH_QOS", "partition": "SBATCH_PARTITION"}
Lists = Mapping[str, tuple[str, ...]]


@frozen
class Charges:
    """Lists by field and tenant; `others` is what tenants without one have."""

    others: SbatchOptions
    lists: Mapping[str, Lists] = field(default_factory=dict)

    def options(self, tenant: str, asked: Mapping[str, str]) -> SbatchOptions:
        """Return a job's options; InvalidConfig if it asks for what its tenant does not have."""
        others = self.others
        return replace(
            others,
            account=self._choose("account", others.account, tenant, asked),
            qos=self._choose("qos", others.qos, tenant, asked),
            partition=self._choose("partition", others.partition, tenant, asked),
        )

    def _choose(self, name: str, usual: str, tenant: str, asked: Mapping[str, str]) -> str:
        allowed = self.lists.get(name, {}).get(tenant) or (usual,)
        chosen = asked.get(VARIABLES[name]) or allowed[0]
        if chosen not in allowed:
            raise InvalidConfig(
                f"tenant {tenant!r} may not use {name} {chosen!r} ({VARIABLES[name]})",
                hint=f"it has {', '.join(filter(None, allowed)) or 'none of its own'}"
                f"; an admin changes --engine slurm:{lists_of(name)}=...",
            )
        return chosen

    def combinations(self) -> Iterable[tuple[str, SbatchOptions]]:
        """Every tenant with each of its choices, so that all can be tried beforehand."""
        for name, by_tenant in self.lists.items():
            for tenant, allowed in by_tenant.items():
                for choice in allowed:
                    yield tenant, self.options(tenant, {VARIABLES[name]: choice})


def lists_of(name: str) -> str:
    """The engine's parameter with the lists of a field."""
    return "qoses" if name == "qos" else f"{name}s"


def read_lists(text: str, name: str) -> Lists:
    """Lists as they are written in a parameter."""
    lists: dict[str, tuple[str, ...]] = {}
    for part in filter(None, text.split("/")):
        tenant, colon, names = part.partition(":")
        allowed = tuple(filter(None, names.split("+")))
        if not tenant or not colon or not allowed or tenant in lists:
            raise InvalidConfig(
                f"slurm: {lists_of(name)} has {part!r}",
                hint=f"write {lists_of(name)}=TENANT:NAME+NAME/TENANT:NAME",
            )
        lists[tenant] = allowed
    return lists


FIELDS = ("User", "Account", "Partition", "QOS", "DefaultQOS")
QUESTION = ("sacctmgr", "-nP", "show", "assoc", f"format={','.join(FIELDS)}")
ENFORCED = ("associations", "limits", "qos", "safe")  # the later ones mean the first as well


@frozen
class Association:
    """One row: a user in an account, in one partition or (empty) in any; `qos` are allowed."""

    account: str
    partition: str
    qos: tuple[str, ...]


Associations = Mapping[str, tuple[Association, ...]]  # by the user's name


def are_enforced(config: Mapping[str, str]) -> bool:
    """True if a site refuses jobs whose user has no association."""
    enforced = config.get("AccountingStorageEnforce", "").lower()
    by_database = config.get("AccountingStorageType", "").endswith("slurmdbd")
    return by_database and any(word in enforced for word in ENFORCED)


def read_associations(text: str) -> Associations:
    """The answer to `QUESTION`; rows of accounts without a user are left out."""
    by_user: defaultdict[str, list[Association]] = defaultdict(list)
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == len(FIELDS) and words[0]:
            user, account, partition, qos, usual = words
            allowed = tuple(filter(None, dict.fromkeys([usual, *qos.split(",")])))
            by_user[user].append(Association(account, partition, allowed))
    return {user: tuple(rows) for user, rows in by_user.items()}


def check_association(known: Associations, user: str, wanted: SbatchOptions) -> None:
    """Raise InvalidConfig for what Slurm's accounting does not allow this user.

    An empty account, partition or QOS is the user's default, which is always allowed.
    """
    rows: Iterable[Association] = known.get(user, ())
    _refuse_other("account", wanted.account, (row.account for row in rows), user)
    rows = [row for row in rows if wanted.account in ("", row.account)]
    if wanted.partition and all(row.partition for row in rows):
        _refuse_other("partition", wanted.partition, (row.partition for row in rows), user)
    rows = [row for row in rows if not wanted.partition or row.partition in ("", wanted.partition)]
    _refuse_other("qos", wanted.qos, (name for row in rows for name in row.qos), user)


def _refuse_other(what: str, wanted: str, allowed: Iterable[str], user: str) -> None:
    names = sorted(set(allowed))
    if (wanted and wanted in names) or (not wanted and names) or (not wanted and what != "account"):
        return
    if wanted:
        text = f"Slurm's user {user!r} may not use {what} {wanted!r}"
    else:
        text = f"Slurm's accounting does not know user {user!r}"
    raise InvalidConfig(
        text,
        hint=f"`sacctmgr show assoc user={user}` lists {', '.join(names) or 'nothing'}; an "
        "administrator of Slurm adds to it",
    )


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

    def submitting_user(self, job: JobId) -> Identity | None:
        """The user who submits this job; None for the service."""
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

    def may_own(self, job: JobId, batch: SlurmJob) -> bool:
        """True if a batch job with this job's tag can be ours."""
        own = os.geteuid()
        return batch.uid in (own, self._uid(name_job(job)) if self.users else own)

    def _uid(self, job: JobId) -> int:
        if job not in self._uids:
            body = read_json(job_folder(self._state, job) / USER)
            if body is None:
                return -1
            self._uids[job] = int(body["uid"])
        return self._uids[job]
