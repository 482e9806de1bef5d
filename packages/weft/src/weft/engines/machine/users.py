"""The users of this machine that jobs run as, and folders that only these can enter.

It has a section for each tenant, or for each account that a token names. `user` is a name from
/etc/passwd, with the groups it has there; or `uid` with `gid` (default: the same number) and
`groups`. `home` and `umask` may be given.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.job import Job
from weft.wire.attempt import USER, job_folder, write_whole
from weft.wire.identity import UMASK, Identity
from weft.wire.shared_files import PASS, let_walk, share_folder

ENTER = 0o710  # the group may walk in
OWN = 0o700
PRIVATE = 0o600


def user_of(users: Mapping[str, Identity], job: Job) -> Identity | None:
    """The user of the job's account, or else of its tenant; None where no user is mapped.

    Raises InvalidConfig for a job of someone without a user: it must not run as the service.
    """
    if not users:
        return None
    account = job.launch.account if job.launch is not None else ""
    user = users.get(account or job.tenant)
    if user is None:
        whose = f"account {account!r}" if account else f"tenant {job.tenant!r}"
        raise InvalidConfig(
            f"job {job.id!r}: {whose} has no user on this machine",
            hint=f"an admin adds [{account or job.tenant}] to the users of `weft serve`",
        )
    return user


def check_users(users: Mapping[str, Identity], state: Path, *, by_client: bool = False) -> None:
    """Raise InvalidConfig where jobs could not run as these users, or not reach their folders.

    `by_client` says that the users themselves start their jobs.
    """
    if not users:
        return
    others = any(user.uid != os.geteuid() for user in users.values())
    if os.geteuid() != 0 and others and not by_client:
        raise InvalidConfig(
            "only a service that runs as root can run jobs as other users",
            hint="start it as root, or leave --users out; on Slurm see submit_as=client",
        )
    for folder in state.absolute().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise InvalidConfig(
                f"users of jobs cannot reach {state}: {folder} is closed to them",
                hint=f"`chmod o+x {folder}`, or name another --state folder such as /var/lib/weft",
            )


def let_through(state: Path) -> None:
    """Let users of jobs walk to their own folders; what lies there is closed by itself."""
    for file in state.iterdir():
        if stat.S_ISREG(file.lstat().st_mode):
            file.chmod(PRIVATE)
    for folder in (state, state / "jobs"):
        folder.chmod(PASS)


def make_folder(folder: Path, state: Path, job: str, checkpoints: Path, user: Identity) -> None:
    """An attempt's folder: the service's own, with a way for `user` to its socket and checkpoints.

    A job can neither read nor change what its agent writes.
    """
    own = job_folder(state, job)
    folder.mkdir(parents=True, exist_ok=True)
    for made in (own, folder):
        if _may_give(user):
            os.chown(made, os.geteuid(), user.gid)
            made.chmod(ENTER)
        else:
            let_walk(made, user.uid)
    write_whole(own / USER, {"uid": user.uid, "gid": user.gid})
    if checkpoints.parent == own and not checkpoints.exists():
        give_folder(checkpoints, user)


def give_folder(folder: Path, user: Identity) -> None:
    """A folder of the user's own in one of the service's: nothing inside can be trusted.

    Without the right to give it away, it stays the service's and the user may write in it, or
    that user's own folder is to take its place (`weft.engines.slurm.handover`).
    """
    folder.mkdir(mode=OWN, exist_ok=True)
    if not _may_give(user):
        share_folder(folder, user.uid)
        return
    os.chown(folder, user.uid, user.gid)
    folder.chmod(OWN)


def _may_give(user: Identity) -> bool:
    return os.geteuid() in (0, user.uid)


def may_walk_to(path: Path, user: Identity | None) -> bool:
    """True if `user` may look at `path`, so that an error may say what is there; None: always."""
    return user is None or all(_may_enter(folder, user) for folder in path.absolute().parents)


def _may_enter(folder: Path, user: Identity) -> bool:
    try:
        facts = folder.stat()
    except OSError:
        return False
    if facts.st_uid == user.uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid in (user.gid, *user.groups):
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)


KEYS = ("user", "uid", "gid", "groups", "home", "umask")
MOST = 1 << 31


def find_users(source: Path | Mapping[str, Any] | None) -> dict[str, Identity]:
    """The users in a file or a table; none if there is neither."""
    if source is None:
        return {}
    return read_users(source) if isinstance(source, Path) else users_of(source, "the configuration")


def read_users(path: Path) -> dict[str, Identity]:
    """The users in a file, by tenant or account."""
    return users_of(read_table(path, "users"), str(path))


def users_of(table: Any, source: str) -> dict[str, Identity]:
    """The users in a table; errors name `source` and the key."""
    users = sections(table, source, "users", KEYS, 'user = "alice"')
    return {name: _user(fields, f"{source}: users.{name}") for name, fields in users.items()}


def read_table(path: Path, what: str) -> Any:
    """The content of a file, TOML or YAML by its name; `what` is in it, for errors."""
    try:
        text = path.read_text(encoding="utf-8")
        is_yaml = path.suffix in (".yaml", ".yml")
        return parse_yaml(text, str(path)) if is_yaml else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"cannot read {what} from {path}: {error}") from error


def sections(
    table: Any, source: str, what: str, keys: Sequence[str], example: str
) -> dict[str, Mapping[str, Any]]:
    """The sections of a table, one for each tenant, with no other settings than `keys`."""
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{source}: {what} is not a table", hint="one section for each tenant")
    named = {str(name): fields for name, fields in table.items()}
    for name, fields in named.items():
        where = f"{source}: {what}.{name}"
        if not isinstance(fields, Mapping):
            raise InvalidConfig(f"{where} is not a table", hint=f"such as {example}")
        if unknown := [str(key) for key in fields if key not in keys]:
            raise InvalidConfig(
                f"{where} has no setting {unknown[0]!r}{did_you_mean(unknown[0], keys)}",
                hint=f"there are {', '.join(keys)}",
            )
    return named


def _user(fields: Mapping[str, Any], where: str) -> Identity:
    base = _by_name(fields["user"], where) if "user" in fields else None
    uid = _number(fields, "uid", where, base.uid if base else None)
    identity = replace(
        base or Identity(uid, uid),
        uid=uid,
        gid=_number(fields, "gid", where, base.gid if base else uid),
        groups=_groups(fields["groups"], where)
        if "groups" in fields
        else base.groups
        if base
        else (),
        home=str(fields.get("home", base.home if base else "")),
        umask=_umask(fields["umask"], where) if "umask" in fields else UMASK,
    )
    if 0 in (identity.uid, identity.gid, *identity.groups) and os.geteuid() == 0:
        raise InvalidConfig(f"{where} would run jobs as root", hint="name another user and group")
    return identity


def _by_name(name: Any, where: str) -> Identity:
    try:
        entry = pwd.getpwnam(str(name))
    except KeyError as error:
        raise InvalidConfig(
            f"{where}.user: there is no user {name!r} here", hint="give uid and gid as numbers"
        ) from error
    groups = tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
    return Identity(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)


def _groups(groups: Any, where: str) -> tuple[int, ...]:
    if not isinstance(groups, list):
        raise InvalidConfig(f"{where}.groups is {groups!r}, expected a list", hint='["video", 500]')
    return tuple(_group(group, where) for group in groups)


def _group(group: Any, where: str) -> int:
    if isinstance(group, str):
        try:
            return grp.getgrnam(group).gr_gid
        except KeyError as error:
            raise InvalidConfig(f"{where}.groups: there is no group {group!r} here") from error
    return _number({"groups": group}, "groups", where, 0)


def _number(fields: Mapping[str, Any], key: str, where: str, default: int | None) -> int:
    number = fields.get(key, default)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < MOST:
        trouble = "is missing" if number is None else f"is {number!r}, expected a whole number"
        raise InvalidConfig(f"{where}.{key} {trouble}", hint="give `user` or `uid`")
    return number


def _umask(digits: Any, where: str) -> int:
    try:
        mask = int(str(digits), 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777:
        raise InvalidConfig(f"{where}.umask is {digits!r}, expected octal digits such as 077")
    return mask
