"""How a state change of a job reads to whoever is told: JSON, a line of chat, a mail."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Literal, get_args

from weft.service.notify.state_changes import Change

Format = Literal["weft", "slack", "mail"]
FORMATS: tuple[str, ...] = get_args(Format)
SIGNS = {"succeeded": ":white_check_mark:", "failed": ":x:", "cancelled": ":no_entry_sign:"}
LONGEST = 3000
SUBJECT = 150


def as_json(seq: int, at: float, change: Change) -> bytes:
    """Everything that is known, for programs."""
    return json.dumps({"id": seq, "at": at, **change.body()}).encode()


def as_slack(change: Change) -> bytes:
    """One line, as Slack, Mattermost and others take it."""
    sign = SIGNS.get(change.state, ":information_source:")
    name = f"*{_escape(change.job.name)}* {_verb(change)} {change.state}"
    reason = f": {_escape(change.reason)}" if change.reason else ""
    text = f"{sign} {name}{reason} (`{_escape(change.job.id)}`, {_escape(change.job.tenant)})"
    return json.dumps({"text": text[:LONGEST]}).encode()


def as_mail(seq: int, at: float, change: Change, sender: str, to: list[str]) -> EmailMessage:
    """A short mail; the same change is the same message, however often it is sent."""
    mail = EmailMessage()
    subject = f"[weft] {change.job.name} {_verb(change)} {change.state}"
    mail["Subject"] = " ".join(subject.split())[:SUBJECT]
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Message-ID"] = f"<weft-{seq}-{int(at)}@{sender.rpartition('@')[2].strip('>')}>"
    mail["Auto-Submitted"] = "auto-generated"
    when = datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")
    lines = [
        f"Job      {change.job.id}",
        f"Name     {change.job.name}",
        f"Tenant   {change.job.tenant}",
    ]
    lines += [f"State    {change.state}", f"At       {when}"]
    lines += [f"Reason   {change.reason}"] if change.reason else []
    job = change.job.id
    more = f"`weft job {job} --events` says more, `weft logs {job}` what it printed."
    mail.set_content("\n".join([*lines, "", more, ""]))
    return mail


def _verb(change: Change) -> str:
    return "has" if change.state in ("succeeded", "failed") else "is"


def _escape(text: str) -> str:
    """Text that Slack shows as it is and nobody is called by."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
