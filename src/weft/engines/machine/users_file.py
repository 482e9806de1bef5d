"""The users of this machine that tenants' jobs run as: a file, TOML or YAML.

It has a section for each tenant, or for each account that a token names. `user` is a name from
/etc/passwd, with the groups it has there; or `uid` with `gid` (default: the same number) and
`groups`. `home` and `umask` may be given.
"""

from __future__ import annotations

import grp
import os
import pwd
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.wire.identity import UMASK, Identity

KEYS = ("user", "uid", "gid", "groups", "home", "umask")
MOST = 1 << 31


def find_users(told: Path | Mapping[str, Any] | None) -> dict[str, Identity]:
    """The users in a file or a table; nobody if there is neither."""
    if told is None:
        return {}
    return read_users(told) if isinstance(told, Path) else users_of(told, "the configuration")


def read_users(path: Path) -> dict[str, Identity]:
    """The users in a file, by tenant or account."""
    try:
        text = path.read_text(encoding="utf-8")
        is_yaml = path.suffix in (".yaml", ".yml")
        table = parse_yaml(text, str(path)) if is_yaml else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"cannot read users from {path}: {error}") from error
    return users_of(table, str(path))


def users_of(table: Any, source: str) -> dict[str, Identity]:
    """The users in a table; errors name `source` and the key."""
    if not isinstance(table, Mapping):
        raise InvalidConfig(f"{source}: users is not a table", hint="one section for each tenant")
    return {str(name): _user(one, f"{source}: users.{name}") for name, one in table.items()}


def _user(told: Any, where: str) -> Identity:
    if not isinstance(told, Mapping):
        raise InvalidConfig(f"{where} is not a table", hint='such as user = "alice"')
    if unknown := [str(key) for key in told if key not in KEYS]:
        raise InvalidConfig(
            f"{where} has no setting {unknown[0]!r}{did_you_mean(unknown[0], KEYS)}",
            hint=f"there are {', '.join(KEYS)}",
        )
    base = _by_name(told["user"], where) if "user" in told else None
    uid = _number(told, "uid", where, base.uid if base else None)
    found = replace(
        base or Identity(uid, uid),
        uid=uid,
        gid=_number(told, "gid", where, base.gid if base else uid),
        groups=_groups(told["groups"], where) if "groups" in told else base.groups if base else (),
        home=str(told.get("home", base.home if base else "")),
        umask=_umask(told["umask"], where) if "umask" in told else UMASK,
    )
    if 0 in (found.uid, found.gid, *found.groups) and os.geteuid() == 0:
        raise InvalidConfig(f"{where} would run jobs as root", hint="name another user and group")
    return found


def _by_name(name: Any, where: str) -> Identity:
    try:
        entry = pwd.getpwnam(str(name))
    except KeyError as error:
        raise InvalidConfig(
            f"{where}.user: there is no user {name!r} here", hint="give uid and gid as numbers"
        ) from error
    groups = tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
    return Identity(entry.pw_uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)


def _groups(told: Any, where: str) -> tuple[int, ...]:
    if not isinstance(told, list):
        raise InvalidConfig(f"{where}.groups is {told!r}, expected a list", hint='["video", 500]')
    return tuple(_group(one, where) for one in told)


def _group(told: Any, where: str) -> int:
    if isinstance(told, str):
        try:
            return grp.getgrnam(told).gr_gid
        except KeyError as error:
            raise InvalidConfig(f"{where}.groups: there is no group {told!r} here") from error
    return _number({"groups": told}, "groups", where, 0)


def _number(told: Mapping[str, Any], key: str, where: str, default: int | None) -> int:
    found = told.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < MOST:
        said = "is missing" if found is None else f"is {found!r}, expected a whole number"
        raise InvalidConfig(f"{where}.{key} {said}", hint="give `user` or `uid`")
    return found


def _umask(told: Any, where: str) -> int:
    try:
        found = int(str(told), 8)
    except ValueError:
        found = -1
    if not 0 <= found <= 0o777:
        raise InvalidConfig(f"{where}.umask is {told!r}, expected octal digits such as 077")
    return found
