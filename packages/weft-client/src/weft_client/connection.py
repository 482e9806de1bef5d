"""HTTP to a service by the standard library, with errors as people read them.

WEFT_URL says where the service is (without it: the user's own, or port 7878 here), WEFT_TOKEN who
asks, WEFT_CA whose certificates to trust.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

from weft_client.errors import Misused, Refused, ServiceFailed, Unreachable, Untrusted
from weft_client.own_state import running_url

DEFAULT_URL = "http://127.0.0.1:7878"
TIMEOUT_S = 60.0
PATIENCE_S = 120.0  # with a service that says when to ask again
SOON_S = 10.0
LOOK_S = 0.3  # between two tries to reach a service that is being started
ANY_TEXT = "surrogatepass"  # what was typed may be no text at all; the service then knows no such
ANSWERS = {
    401: "set WEFT_TOKEN to a token of this service; an admin makes one with `weft token create`",
    403: "the token in WEFT_TOKEN may not do this; ask an admin",
    429: "try again in a moment",
}
NO_ROUTE = (404, 405)  # a service says no more than that where it has none, else what is not there
PROC = Path("/proc")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
YOUNG_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
NOTHING: Mapping[str, Any] = {}


class Connection:
    """The REST API of one service. Paths are below `/api/v1`, unless `api` is false."""

    unreachable: ClassVar[type[Any]] = Unreachable
    untrusted: ClassVar[type[Any]] = Untrusted
    refused: ClassVar[type[Any]] = Refused
    failed: ClassVar[type[Any]] = ServiceFailed
    misused: ClassVar[type[Any]] = Misused

    def __init__(self, url: str = "", token: str | None = None) -> None:
        self.url = self._check_address(
            url or os.environ.get("WEFT_URL") or running_url() or DEFAULT_URL
        )
        self.token = os.environ.get("WEFT_TOKEN", "") if token is None else token
        self.trust = self._certificates() if self.url[:5] == "https" else None
        self.answered = False  # a service that did and is away now is reported, not waited for

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] = NOTHING,
        headers: Mapping[str, str] = NOTHING,
        *,
        api: bool = True,
    ) -> Any:
        """The answer to a request as parsed JSON; query values that are None are left out."""
        answer = self.send(method, path, body, query, headers, api=api)
        if not answer:
            return None
        try:
            return json.loads(answer)
        except ValueError as error:
            raise self.failed(
                f"what answers at {self.url} is not Weft: {answer[:60].decode(errors='replace')!r}",
                hint="set WEFT_URL to the address that `weft serve` printed",
            ) from error

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] = NOTHING,
        headers: Mapping[str, str] = NOTHING,
        *,
        api: bool = True,
    ) -> bytes:
        """Ask; again after a while if the answer says so, or if the service is just starting."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self.open(method, path, body, query, headers, api=api) as answer:
                    read: bytes = answer.read()
                    return read
            except (self.refused, self.failed) as error:
                wait_s = error.retry_s
                if not 0.0 < wait_s <= SOON_S or time.monotonic() + wait_s > until:
                    raise
            except self.unreachable as error:
                wait_s = LOOK_S
                first = error.nobody and not self.answered
                if not first or time.monotonic() > until or not is_starting(self.url):
                    raise
            time.sleep(wait_s)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] = NOTHING,
        headers: Mapping[str, str] = NOTHING,
        *,
        api: bool = True,
        patience_s: float | None = TIMEOUT_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, to be read; what goes wrong until it is read is said as people read it."""
        given = {name: value for name, value in query.items() if value is not None}
        where = f"{self.url}{'/api/v1' if api else ''}{path}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            where + (f"?{urlencode(given, doseq=True, errors=ANY_TEXT)}" if given else ""),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "*/*", "Content-Type": "application/json", **headers},
        )
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=patience_s, context=self.trust
            ) as answer:
                self.answered = True
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                refusal = self.refusal(error.code, error.read(), method, path)
                refusal.retry_s = _seconds(error.headers.get("Retry-After", ""))
                raise refusal from None
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from error

    def refusal(self, status: int, answer: bytes, method: str, path: str) -> Any:
        """The error behind a 4xx or 5xx answer."""
        try:
            body = json.loads(answer)
        except ValueError:
            body = None
        if not isinstance(body, dict) or "error" not in body:
            text = answer[:200].decode(errors="replace").strip()
            text = text or http.client.responses.get(status, "")
            body = {"error": f"{method} {path} was answered with {status}: {text}"}
        hint = body.get("hint") or ANSWERS.get(status, "")
        if status in NO_ROUTE and body["error"] == http.HTTPStatus(status).phrase.lower():
            body["error"] = f"the service at {self.url} knows no {method} {path}"
            hint = (
                "it is of another version than this command (`weft --version`): upgrade the older"
            )
        if status == http.HTTPStatus.UNAUTHORIZED:
            hint = ANSWERS[status]  # the service speaks of headers
        field = body.get("field") or ""
        what = str(body["error"])
        if field and not what.startswith(field) and f"'{field}'" not in what:
            what = f"{field}: {what}"
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            return self.failed(what, hint=hint or "the service's log says more")
        error = self.refused(what, hint=hint)
        error.status, error.field = status, field
        return error

    def _away(self, error: OSError | http.client.HTTPException) -> Exception:
        """No answer, or not in time, or from a server that we do not trust."""
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLCertVerificationError):
            untrusted: Exception = self.untrusted(
                f"the certificate of {self.url} is not trusted: {why.verify_message}",
                hint="set WEFT_CA to the file of the certificate that signed it",
            )
            return untrusted
        if isinstance(error, TimeoutError):  # a connection there was
            slow: Exception = self.unreachable(
                f"{self.url} took longer than {TIMEOUT_S:g} s to answer",
                hint="it may be busy: try again, or see its log",
            )
            return slow
        away = self.unreachable(
            f"no service answers at {self.url} ({why})",
            hint="start one with `weft serve`, or set WEFT_URL",
        )
        away.nobody = isinstance(why, ConnectionRefusedError)
        return away  # type: ignore[no-any-return]

    def _certificates(self) -> ssl.SSLContext:
        """Load the certificates to trust: those of the system, or those in a file."""
        authority = os.environ.get("WEFT_CA", "")
        try:
            return ssl.create_default_context(cafile=authority or None)
        except (OSError, ssl.SSLError) as error:
            raise self.misused(
                f"WEFT_CA is {authority!r}, which holds no certificates: {error}",
                hint="name a PEM file",
            ) from error

    def _check_address(self, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise self.misused(
                f"WEFT_URL is {url!r}, not the address of a service", hint=f"such as {DEFAULT_URL}"
            )
        return url.rstrip("/")


def at(*parts: str) -> str:
    """A path of these parts, whatever characters they have."""
    return "".join(f"/{quote(part, safe='', errors=ANY_TEXT)}" for part in parts)


def _seconds(text: str) -> float:
    """A Retry-After in seconds; 0 for one that is a date, or not there."""
    return float(text) if text.isdigit() else 0.0


def is_starting(url: str) -> bool:
    """Return true if someone typed `weft serve` here a moment ago, for this address if known.

    False where the system does not say what runs.
    """
    address = urlsplit(url)
    if address.hostname not in LOOPBACK:
        return False
    return any(
        _serves(words, address.port) and _age_s(process) < YOUNG_S for process, words in _commands()
    )


def _commands() -> list[tuple[Path, list[str]]]:
    commands = []
    for process in PROC.glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "serve" in text:
            commands.append((process, text.split("\0")))
    return commands


def _serves(words: list[str], port: int | None) -> bool:
    """`python /somewhere/weft serve ...` or `python -m weft serve ...`, not for another port."""
    if "serve" not in words or not any(Path(word).name == "weft" for word in words[:3]):
        return False
    named = words[words.index("--port") + 1] if "--port" in words[:-1] else ""
    return named in ("", str(port))


def _age_s(process: Path) -> float:
    try:
        began = int((process / "stat").read_text().rpartition(")")[2].split()[19]) / TICKS
        return float((PROC / "uptime").read_text().split()[0]) - began
    except (OSError, ValueError, IndexError):
        return float("inf")
