"""Messages about what needs a person, to receivers that an admin added for that; none twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from email.message import EmailMessage

from weft.runtime.loop.background import Repeated
from weft.service.needs_reader import NeedsReader
from weft.service.notify.mail import addresses
from weft.service.notify.webhooks import LONGEST, SUBJECT, Hook, Hooks, escape, send
from weft.service.responses.answers import Need
from weft.service.responses.json_values import plain

FORGET_S = 6 * 3600.0  # after something was over: then it is news again


class NeedsNotices(Repeated):
    """Looks every minute whether something new needs a person."""

    every_s = 60.0
    trouble = "what needs a person is not sent"
    waits_first = True

    def __init__(self, hooks: Hooks, needs: NeedsReader) -> None:
        self._hooks, self._needs = hooks, needs

    async def poll(self) -> None:
        """Send each receiver what it has not been sent yet; what failed is sent the next time."""
        receivers = [hook for hook in self._hooks.all() if hook.needs]
        if not receivers:
            return
        needs, now = await self._needs.read(), time.time()
        for hook in receivers:
            mine = {name_need(n): n for n in needs if hook.tenant in ("", n.tenant)}
            new = [need for name, need in mine.items() if name not in hook.sent]
            sent = {name: at for name, at in hook.sent.items() if now - at < FORGET_S}
            if new and (why := await asyncio.to_thread(self._send, hook, now, new)):
                self._hooks.note_failure(hook, why)
                continue
            self._hooks.note_sent(hook.id, {**sent, **dict.fromkeys(mine, now)})

    def _send(self, hook: Hook, now: float, needs: Sequence[Need]) -> str:
        if hook.format == "slack":
            return send(hook, int(now), as_slack(needs))
        if hook.format == "weft":
            body = {"event": "Needs", "at": now, "needs": [plain(need) for need in needs]}
            return send(hook, int(now), json.dumps(body).encode())
        if self._hooks.mail is None:
            return "the service was started without --smtp"
        sender = self._hooks.mail.sender
        return self._hooks.mail.send(as_mail(needs, now, sender, addresses(hook.url)))


def name_need(need: Need) -> str:
    """A name that stays while the same thing needs a person, however its words change."""
    where = need.nodes[0] if need.nodes else need.about
    return "|".join((need.kind, need.tenant, where or need.text[:80]))


def as_slack(needs: Sequence[Need]) -> bytes:
    """A line for each, as Slack and others take it."""
    lines = [f":warning: {escape(need.text)}\n> {escape(need.step)}" for need in needs]
    return json.dumps({"text": "\n".join(lines)[:LONGEST]}).encode()


def as_mail(needs: Sequence[Need], now: float, sender: str, to: list[str]) -> EmailMessage:
    """A mail with an entry for each, and its next step."""
    mail = EmailMessage()
    more = f" (and {len(needs) - 1} more)" if len(needs) > 1 else ""
    mail["Subject"] = " ".join(f"[weft] {needs[0].text[: SUBJECT - 30]}{more}".split())
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Message-ID"] = f"<weft-needs-{int(now)}@{sender.rpartition('@')[2].strip('>')}>"
    mail["Auto-Submitted"] = "auto-generated"
    entries = [f"{need.text}\n  {need.step}\n" for need in needs]
    mail.set_content("\n".join([*entries, "`weft doctor` and the page list all of it.", ""]))
    return mail
