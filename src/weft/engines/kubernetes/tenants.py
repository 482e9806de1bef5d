"""The namespaces of tenants: a file, TOML or YAML, with a section for each tenant.

`namespace` is where its pods are, and `acts_as` the service account there whose rights they are
made with (default: weft). `account`, `pull_secret`, `mounts` and `secrets` are the pods' own, as
the engine's options of these names, which hold where a section says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig
from weft.core.model.priorities import PRIORITIES
from weft.engines.kubernetes.pods import Site, read_mounts
from weft.engines.machine.users_file import read_table, sections

KEYS = ("namespace", "acts_as", "account", "pull_secret", "mounts", "secrets")
ACTS_AS = "weft"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def read_tenants(path: Path, others: Site, state: Path) -> dict[str, Site]:
    """What the pods of each tenant have in common; `others` says what a section does not."""
    tenants = sections(read_table(path, "tenants"), str(path), "tenants", KEYS, 'namespace = "ml"')
    if not tenants:
        raise InvalidConfig(f"{path} names no tenant", hint="write a section for each")
    sites: dict[str, Site] = {}
    for tenant, fields in tenants.items():
        site = _site(fields, others, state, f"{path}: tenants.{tenant}")
        if other := next(
            (t for t, earlier in sites.items() if earlier.namespace == site.namespace), ""
        ):
            raise InvalidConfig(
                f"{path}: tenants {other!r} and {tenant!r} have one namespace, {site.namespace!r}",
                hint="give each its own: what separates them is the namespace",
            )
        sites[tenant] = site
    return sites


def read_names(text: str, where: str) -> tuple[str, ...]:
    """Names of objects, joined by `+`."""
    names = tuple(filter(None, text.split("+")))
    for name in names:
        if not ACCOUNT.fullmatch(name):
            raise InvalidConfig(f"{where} has {name!r}", hint="write NAME+NAME")
    return names


def read_classes(text: str) -> dict[str, str]:
    """Priority classes joined by `+`: `PRIORITY:NAME` for jobs of that one, `NAME` for others."""
    classes: dict[str, str] = {}
    for piece in filter(None, text.split("+")):
        word, _, name = piece.rpartition(":")
        if word in classes or word not in ("", *PRIORITIES) or not ACCOUNT.fullmatch(name):
            raise InvalidConfig(
                f"priority_class has {piece!r}",
                hint=f"write NAME+PRIORITY:NAME; priorities are {', '.join(PRIORITIES)}",
            )
        classes[word] = name
    return classes


def account_name(site: Site) -> str:
    """The full name of the service account whose rights are used; empty for the service's own."""
    return f"system:serviceaccount:{site.namespace}:{site.acts_as}" if site.acts_as else ""


def _site(fields: Mapping[str, Any], others: Site, state: Path, where: str) -> Site:
    mounts = others.mounts
    if "mounts" in fields:
        mounts = read_mounts(str(fields["mounts"]), state)
    return replace(
        others,
        namespace=_name(fields, "namespace", "", NAMESPACE, where),
        acts_as=_name(fields, "acts_as", ACTS_AS, ACCOUNT, where),
        account=_name(fields, "account", others.account, ACCOUNT, where),
        pull_secret=_name(fields, "pull_secret", others.pull_secret, ACCOUNT, where),
        mounts=mounts,
        secrets=read_names(str(fields["secrets"]), f"{where}.secrets")
        if "secrets" in fields
        else others.secrets,
    )


def _name(
    fields: Mapping[str, Any], key: str, default: str, shape: re.Pattern[str], where: str
) -> str:
    if key not in fields and key != "namespace":
        return default
    name = str(fields.get(key, ""))
    if not shape.fullmatch(name):
        raise InvalidConfig(f"{where}.{key} is {name!r}", hint="a name as Kubernetes takes it")
    return name
