"""Sentences for an administrator about who may do what here."""

from __future__ import annotations

import os
import pwd

from weft.app.serve.live import Live
from weft.service.access.tokens import TokenFile, is_loopback


def trust_warnings(live: Live, tokens: TokenFile) -> list[str]:
    """One sentence for each thing that is open; none where nothing is."""
    me = _name(os.geteuid())
    warnings = []
    if not len(tokens):
        what = f"run jobs as {me}" if live.isolation == "none" else "change everything"
        warnings.append(
            f"no tokens: any user of this machine may {what}; "
            "`weft token create --role admin` makes the first"
        )
    if live.isolation == "none":
        warnings.append(
            f"all jobs run as {me}: tenants can read each other's files; "
            + (
                "give each a user with --users"
                if os.geteuid() == 0
                else "only root can change that"
            )
        )
    if not is_loopback(live.settings.host) and live.settings.tls_cert is None:
        warnings.append(
            f"tokens come to {live.settings.host} in plain text: serve with --tls-cert and "
            "--tls-key, or behind a proxy that does"
        )
    return warnings


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
