"""Mail by a server of one's own: `smtp://[USER@]HOST[:PORT]`, or `smtps://` for TLS at once.

The password is in WEFT_SMTP_PASSWORD, since command lines and files are read by many.
"""

from __future__ import annotations

import os
import re
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import parseaddr
from urllib.parse import unquote, urlsplit

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

PASSWORD = "WEFT_SMTP_PASSWORD"  # noqa: S105 - the name of a variable
TIMEOUT_S = 20.0
SCHEME = "mailto:"
OWNER = "{user}"
MAILBOX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(\.[A-Za-z0-9_+-]+)*", re.ASCII)
PORTS = {"smtp": 25, "smtps": 465}


@frozen
class MailServer:
    """The server to which mail is submitted, and the sender. TLS is used wherever it is offered."""

    host: str
    port: int
    sender: str
    user: str = ""
    tls: bool = False

    @classmethod
    def read(cls, url: str, sender: str) -> MailServer | None:
        """From options of `weft serve`; None if there is no server."""
        if not url:
            return None
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS.get(parts.scheme, 0)
        except ValueError:
            port = 0
        if not port or not parts.hostname or parts.password:
            raise InvalidConfig(
                f"smtp is {url!r}, not the address of a mail server",
                hint=f"such as smtp://mail.example:587; a password goes into {PASSWORD}",
            )
        if not is_address(sender):
            raise InvalidConfig(
                f"mail-from is {sender!r}, not an address", hint="such as weft@gpu1.example"
            )
        user = unquote(parts.username or "")
        return cls(parts.hostname, port, sender, user, parts.scheme == "smtps")

    def send(self, mail: EmailMessage) -> str:
        """Hand a mail in; why that failed, empty if it did not."""
        try:
            with self._connected() as line:
                line.send_message(mail)
        except (OSError, smtplib.SMTPException) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _connected(self) -> smtplib.SMTP:
        trust = ssl.create_default_context()
        if self.tls:
            line: smtplib.SMTP = smtplib.SMTP_SSL(
                self.host, self.port, timeout=TIMEOUT_S, context=trust
            )
        else:
            line = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S)
        try:
            line.ehlo()
            if not self.tls and line.has_extn("starttls"):
                line.starttls(context=trust)
                line.ehlo()
            if self.user:
                line.login(self.user, os.environ.get(PASSWORD, ""))
        except BaseException:
            line.close()
            raise
        return line


def addresses(url: str, owner: str = "owner") -> list[str]:
    """The addresses that `mailto:a@x,b@y` names, with `{user}` for the owner of the job.

    InvalidConfig for what is no address.
    """
    people = unquote(url.removeprefix(SCHEME)).split(",")
    people = [address.strip().replace(OWNER, owner) for address in people]
    for address in people:
        if not is_address(address):
            raise InvalidConfig(
                f"{address[:100]!r} is not an address", hint="mailto:ann@example.org"
            )
    return people


def may_be_about(url: str, owner: str) -> bool:
    """True if mail to `url` can be about a job of this owner, whose name may be of any form."""
    return OWNER not in unquote(url) or MAILBOX.fullmatch(owner) is not None


def is_address(text: str) -> bool:
    """True if a text is one mail address and nothing else."""
    plain = text.isascii() and text.isprintable() and not set(text) & set(' <>,;"()')
    return plain and parseaddr(text)[1] == text and 0 < text.find("@") < len(text) - 1
