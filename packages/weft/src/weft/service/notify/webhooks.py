"""State changes of jobs, from events of the log, and others who are notified of them.

A hook is an address with a format: signed JSON for programs, a line of chat for Slack and its
like, or mail. Every hook follows the log by itself from the last event that was sent, so a slow
or dead receiver delays nothing else, and a restart of the service loses nothing: a message may come
twice, with the same number.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal, assert_never, get_args
from urllib.parse import urlsplit

from weft.app.serve.private_file import read_private, write_private
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.events import event as facts
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.frozen import frozen
from weft.runtime.loop.driver import Driver
from weft.service.access.redaction import mask, secrets_of
from weft.service.jobs.job_view import name_fields
from weft.service.notify.mail import SCHEME, MailServer, addresses, may_be_about
from weft.service.responses.job_row import JobName
from weft.service.responses.json_values import plain


@frozen
class StateChange:
    """A job is in another state than before."""

    job: JobName
    state: str
    event: str
    reason: str = ""
    owner: str = ""
    notify: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return the body of the request."""
        job = plain(self.job)
        return {"event": self.event, "state": self.state, "reason": self.reason, "job": job}


def changes_of(driver: Driver, event: facts.Event) -> Iterator[StateChange]:
    """The changes that one event means."""
    for job, state, reason in _states(event):
        record = driver.ledger.jobs.get(job)
        # A job that was cancelled while it ran is not preempted once it has left.
        if record is not None and not (isinstance(event, facts.Stopped) and record.outcome):
            kind = type(event).__name__
            if isinstance(event, facts.Stopped) and record.suspended is not None:
                state = "suspended"
            state = state or driver.job(job).state
            masked = mask(reason, secrets_of(record.job))
            name = JobName(**name_fields(record.job))
            launch = record.job.launch or Launch(())
            yield StateChange(name, state, kind, masked, launch.owner, launch.notify)


def _states(event: facts.Event) -> Iterator[tuple[JobId, str, str]]:  # noqa: C901, PLR0912 - one case an event
    match event:
        case facts.Submitted(job):
            yield job.id, "pending", ""
        case facts.Started(job_id) | facts.Awoke(job_id):
            yield job_id, "running", ""
        case facts.Slept(job_id):
            yield job_id, "", "it sleeps"
        case facts.SleepFailed(job_id, _, reason):
            yield job_id, "checkpointing", reason
        case facts.Stopped(job_id):
            yield job_id, "preempted", ""
        case facts.Finished(job_id):
            yield job_id, "succeeded", ""
        case facts.Failed(job_id, _, reason, retry):
            yield job_id, "pending" if retry else "failed", reason
        case facts.StartFailed(job_id, _, reason):
            yield job_id, "pending", reason
        case facts.Cancelled(job_id, reason):
            yield job_id, "cancelled", reason
        case facts.Suspended(job_id, by):
            yield job_id, "", f"suspended by {by}"
        case facts.Resumed(job_id) | facts.PriorityChanged(job_id):
            yield job_id, "", ""
        case facts.ResizeFailed(job_id, _, _, reason):
            yield job_id, "checkpointing", reason
        case facts.DeadlineMissed(job_id):
            yield job_id, "", "its deadline has passed"
        case facts.Decided():
            for job_id, to in event.changes.items():
                state = "checkpointing" if to is None else "starting"
                if job_id in event.live:
                    continue
                yield job_id, state, event.reasons.get(job_id, "")
            for job_id, reason in event.rejected.items():
                yield job_id, "failed", f"rejected: {reason}"
        case facts.Noticed(job_id, _, "idle", text):
            yield job_id, "", text
        case (
            facts.Reported()
            | facts.Measured()
            | facts.Saved()
            | facts.Noticed()
            | facts.PolicyChanged()
            | facts.Resizable()
            | facts.Resized()
            | facts.NodeUp()
            | facts.NodeDown()
            | facts.LoanRecalled()
            | facts.Refitted()
            | facts.Foretold()
            | facts.Woken()
            | facts.Observed()
            | facts.StartedAhead()
        ):
            pass  # no job is in another state after these alone
        case _:
            assert_never(event)


log = logging.getLogger(__name__)

TRIES = 6
FIRST_PAUSE_S = 0.5
TIMEOUT_S = 10.0
MOST_HOOKS = 32


@frozen
class Hook:
    """One receiver; empty `tenant` and `states` mean all. `seq` is the last event that was sent.

    One `on_request` is notified of jobs that ask for it alone: of their ends without `states`. One
    for `needs` is notified of what needs a person instead; `sent` is what it was sent, and when.
    """

    id: str
    url: str
    secret: str
    tenant: str = ""
    states: tuple[str, ...] = ()
    created: float = 0.0
    seq: int = 0
    format: Format = "weft"
    on_request: bool = False
    needs: bool = False
    sent: Mapping[str, float] = field(default_factory=dict)

    def wants(self, job: Job, way: str) -> bool:
        """True if a job that asks for this way of being notified is heard here."""
        fits = self.on_request and WAYS[self.format] == way
        owner = job.launch.owner if job.launch is not None else ""
        reached = self.format != "mail" or may_be_about(self.url, owner)
        return fits and reached and self.tenant in ("", job.tenant)


class Hooks:
    """Every hook, in the file `path`; None keeps them in memory."""

    def __init__(self, path: Path | None, mail: MailServer | None = None) -> None:
        self._path = path
        self.mail = mail
        rows = read_private(path) if path is not None else None
        self._hooks = _read(path, rows) if rows is not None else {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._driver: Driver | None = None
        # Its own threads: the driver writes its log with the loop's.
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="webhook")

    def all(self) -> list[Hook]:
        return list(self._hooks.values())

    def open(self, driver: Driver) -> None:
        """Begin to tell; from the event loop."""
        self._driver = driver
        for hook in self.all():
            self._begin(hook.id)

    async def close(self) -> None:
        """Stop notifying; messages not sent yet are sent after the next start."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._keep(self._hooks)

    def add(
        self,
        url: str,
        tenant: str,
        states: tuple[str, ...],
        secret: str,
        format: Format = "weft",
        *,
        on_request: bool = False,
        needs: bool = False,
    ) -> Hook:
        """Notify `url` from now on; an address that begins with `mailto:` gets mail."""
        if url.startswith(SCHEME):
            format = "mail"
        self._check(url, format)
        if needs and (states or on_request or (format == "mail" and not may_be_about(url, ""))):
            raise InvalidConfig(
                "a receiver of what needs a person is not about single jobs or their users",
                hint="leave out states, on-request and {user}",
            )
        if len(self._hooks) >= MOST_HOOKS:
            raise InvalidConfig(f"there are {MOST_HOOKS} webhooks already", hint="remove one")
        seq = self._driver.seq if self._driver is not None else 0
        secret = secret or secrets.token_urlsafe(32)
        terms = (tenant, states, time.time(), seq, format, on_request, needs)
        hook = Hook(secrets.token_hex(4), url, secret, *terms)
        self._keep({**self._hooks, hook.id: hook})
        self._begin(hook.id)
        return hook

    def remove(self, hook: str) -> None:
        if hook not in self._hooks:
            raise UnknownName(f"no webhook {hook!r}", hint="`weft webhook list` shows all")
        if task := self._tasks.pop(hook, None):
            task.cancel()
        self._keep({name: other for name, other in self._hooks.items() if name != hook})

    def note_sent(self, hook: str, sent: Mapping[str, float]) -> None:
        """Keep what a receiver was sent of what needs a person."""
        if hook in self._hooks:
            known = self._hooks[hook].sent
            self._hooks[hook] = replace(self._hooks[hook], sent=sent)
            if known.keys() != sent.keys():
                self._keep(self._hooks)

    def note_failure(self, hook: Hook, why: str) -> None:
        """Say that a message about what needs a person did not arrive."""
        log.warning("webhook=%s needs not sent: %s", hook.id, why)

    def _begin(self, hook: str) -> None:
        if self._driver is not None and not self._hooks[hook].needs:
            self._tasks[hook] = asyncio.create_task(self._follow(self._driver, hook))

    async def _follow(self, driver: Driver, name: str) -> None:
        async for rows in driver.subscribe(self._hooks[name].seq):
            for seq, at, event in rows:
                hook = self._hooks[name]
                for change in changes_of(driver, event):
                    if wanted(hook, change):
                        await self._tell(hook, seq, at, change)
                self._hooks[name] = replace(hook, seq=seq)

    async def _tell(self, hook: Hook, seq: int, at: float, change: StateChange) -> None:
        pause = FIRST_PAUSE_S
        for attempt in range(1, TRIES + 1):
            loop = asyncio.get_running_loop()
            why = await loop.run_in_executor(self._threads, self._send, hook, seq, at, change)
            if not why:
                break
            log.warning("webhook=%s event=%d try=%d failed: %s", hook.id, seq, attempt, why)
            if attempt < TRIES:
                await asyncio.sleep(pause)
                pause *= 2.0
        self._hooks[hook.id] = replace(self._hooks[hook.id], seq=seq)
        self._keep(self._hooks)

    def _check(self, url: str, format: Format) -> None:
        if format != "mail":
            check_url(url)
            return
        if not url.startswith(SCHEME):
            raise InvalidConfig(f"{url[:100]!r} is no mail address", hint="mailto:ann@example.org")
        addresses(url)
        if self.mail is None:
            raise InvalidConfig(
                "there is no mail server", hint="start the service with --smtp and --mail-from"
            )

    def _send(self, hook: Hook, seq: int, at: float, change: StateChange) -> str:
        if hook.format == "slack":
            return send(hook, seq, as_slack(change))
        if hook.format == "weft":
            return send(hook, seq, as_json(seq, at, change))
        if self.mail is None:
            return "the service was started without --smtp"
        mail = as_mail(seq, at, change, self.mail.sender, addresses(hook.url, change.owner))
        return self.mail.send(mail)

    def _keep(self, hooks: dict[str, Hook]) -> None:
        if self._path is not None and (hooks or self._path.exists()):
            write_private(self._path, [asdict(hook) for hook in hooks.values()])
        self._hooks = hooks


def wanted(hook: Hook, change: StateChange) -> bool:
    """True if a hook asked for this change."""
    if hook.tenant and change.job.tenant != hook.tenant:
        return False
    if hook.format == "mail" and not may_be_about(hook.url, change.owner):
        return False
    if hook.on_request and WAYS[hook.format] not in change.notify:
        return False
    states = hook.states or (tuple(SIGNS) if hook.on_request else ())
    return not states or change.state in states


def signature(secret: str, stamp: str, body: bytes) -> str:
    """HMAC-SHA256 of `STAMP.BODY`, so that an old message cannot be sent again as a new one."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def send(hook: Hook, seq: int, body: bytes) -> str:
    """Post a message; why that failed, empty if it did not. Redirects are not followed."""
    parts = urlsplit(hook.url)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    stamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "weft",
        "X-Weft-Event": str(seq),
        "X-Weft-Timestamp": stamp,
        "X-Weft-Signature": f"sha256={signature(hook.secret, stamp, body)}",
    }
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return "" if 200 <= status < 300 else f"it answered {status}"


def check_url(url: str) -> None:
    """Raise InvalidConfig for what cannot be posted to."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidConfig(f"{url[:100]!r} is not an http or https address")


def _read(path: Path | None, rows: Any) -> dict[str, Hook]:
    try:
        hooks = [Hook(**{**row, "states": tuple(row["states"])}) for row in rows]
    except (TypeError, KeyError) as error:
        raise InvalidConfig(f"{path} does not hold webhooks: {error!r}") from error
    if bad := [hook.format for hook in hooks if hook.format not in FORMATS]:
        raise InvalidConfig(f"{path}: a webhook has no known format: {bad[0]!r}")
    return {hook.id: hook for hook in hooks}


# How a state change of a job is written for receivers: JSON, a line of chat, a mail.

Format = Literal["weft", "slack", "mail"]
FORMATS: tuple[str, ...] = get_args(Format)
WAYS = {"weft": "webhook", "slack": "slack", "mail": "mail"}  # as jobs ask for them
SIGNS = {"succeeded": ":white_check_mark:", "failed": ":x:", "cancelled": ":no_entry_sign:"}
LONGEST = 3000
SUBJECT = 150


def as_json(seq: int, at: float, change: StateChange) -> bytes:
    """Everything that is known, for programs."""
    return json.dumps({"id": seq, "at": at, **change.body()}).encode()


def as_slack(change: StateChange) -> bytes:
    """Return the message as one line, as Slack, Mattermost and others take it."""
    sign = SIGNS.get(change.state, ":information_source:")
    name = f"*{escape(change.job.name)}* {_verb(change)} {change.state}"
    reason = f": {escape(change.reason)}" if change.reason else ""
    text = f"{sign} {name}{reason} (`{escape(change.job.id)}`, {escape(change.job.tenant)})"
    return json.dumps({"text": text[:LONGEST]}).encode()


def as_mail(seq: int, at: float, change: StateChange, sender: str, to: list[str]) -> EmailMessage:
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


def _verb(change: StateChange) -> str:
    return "has" if change.state in ("succeeded", "failed") else "is"


def escape(text: str) -> str:
    """Text that Slack shows as it is, without mentioning anyone."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
