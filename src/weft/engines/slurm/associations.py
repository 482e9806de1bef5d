"""Who may use which account, partition and QOS, by Slurm's own accounting: what sacctmgr says.

Sites without slurmdbd, or that do not hold jobs to it (`AccountingStorageEnforce`), have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from weft.core.errors import InvalidConfig
from weft.engines.slurm.script import SbatchOptions
from weft.frozen import frozen

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
    """Whether a site refuses jobs whose user has no association."""
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
