"""How commands talk to the service: HTTP by the standard library, errors as people read them.

WEFT_URL says where the service is, WEFT_TOKEN who asks, WEFT_CA whose certificates to trust.
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
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from weft.cli.connect.duplex import CannotTalk, Talk
from weft.core.errors import EngineError, InvalidConfig, WeftError
from weft.service.responses.answers import Done
from weft.service.responses.json_values import read_as

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:7878"
TIMEOUT_S = 60.0
PATIENCE_S = 120.0  # with a service that says we ask too often
SOON_S = 10.0
LOOK_S = 0.3  # between two tries to reach a service that is being started
ANY_TEXT = "surrogatepass"  # what was typed may be no text at all; the service then knows no such
ANSWERS = {
    401: "set WEFT_TOKEN to a token of this service; an admin makes one with `weft token create`",
    403: "the token in WEFT_TOKEN may not do this; ask an admin",
    429: "try again in a moment",
}
PROC = Path("/proc")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
YOUNG_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


class Unreachable(InvalidConfig):
    """The service does not answer; `nobody` says that nothing listens at its address."""

    nobody = False


class Untrusted(InvalidConfig):
    """The server at that address cannot prove its identity."""


class Refused(InvalidConfig):
    """The service will not do it; `status` is HTTP's, `field` the one that is wrong, if any."""

    def __init__(self, what: str, *, hint: str = "", status: int = 0, field: str = "") -> None:
        super().__init__(what, hint=hint)
        self.status = status
        self.field = field
        self.retry_s = 0.0  # when to ask again; 0 where not stated


class Client:
    """The service's REST API. Paths are below `/api/v1`; `service/responses` has its answers."""

    def __init__(self, url: str = "", token: str | None = None) -> None:
        self.url = check_address(url or os.environ.get("WEFT_URL") or DEFAULT_URL)
        self._token = os.environ.get("WEFT_TOKEN", "") if token is None else token
        self._answered = False  # one that did and is away now is told of, not waited for
        self._trust = (
            load_certificates(os.environ.get("WEFT_CA", "")) if self.url[:5] == "https" else None
        )

    def get(self, kind: type[T], path: str, **query: Any) -> T:
        """Read; query values that are None are left out."""
        return read_as(kind, self._json("GET", path, None, query))

    def post(self, kind: type[T], path: str, body: Any = None) -> T:
        """Make or do."""
        return read_as(kind, self._json("POST", path, body))

    def put(self, kind: type[T], path: str, body: Any) -> T:
        """Set."""
        return read_as(kind, self._json("PUT", path, body))

    def delete(self, path: str) -> Done:
        """Cancel or remove something."""
        return read_as(Done, self._json("DELETE", path, None) or {"done": ""})

    def raw(self, path: str, **query: Any) -> bytes:
        """An answer that is not JSON: a log, a table as CSV."""
        return self._send("GET", path, None, query)

    def lines(self, kind: type[T], path: str, body: Any) -> Iterator[T]:
        """An answer that comes line by line; to stop reading it ends the work on it."""
        with self._open("POST", path, body, {}, patience_s=None) as answer:
            for line in answer:
                yield read_as(kind, json.loads(line))

    def talk(self, path: str) -> Talk:
        """A request whose body and answer go on at the same time."""
        try:
            return Talk.begin(self.url, f"/api/v1{path}", self._token, self._trust)
        except CannotTalk as error:
            raise refusal(error.status, error.answer, "POST", path) from None
        except OSError as error:
            raise Unreachable(f"no service answers at {self.url} ({error})") from error

    def health(self, kind: type[T], path: str) -> T:
        """What the service says about itself; also while it is not well."""
        return read_as(kind, json.loads(self._send("GET", path, None, {}, api=False)))

    def healthy(self) -> bool:
        """Whether the service answers and is ready."""
        try:
            return bool(json.loads(self._send("GET", "/healthz", None, {}, api=False)))
        except (WeftError, ValueError):
            return False

    def _json(
        self, method: str, path: str, body: Any, query: Mapping[str, Any] | None = None
    ) -> Any:
        answer = self._send(method, path, body, query or {})
        if not answer:
            return None
        try:
            return json.loads(answer)
        except ValueError as error:
            raise EngineError(
                f"what answers at {self.url} is not Weft: {answer[:60].decode(errors='replace')!r}",
                hint="set WEFT_URL to the address that `weft serve` printed",
            ) from error

    def _send(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], *, api: bool = True
    ) -> bytes:
        """Ask; again after a while if we asked too often, or if the service is just starting."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._send_once(method, path, body, query, api=api)
            except Refused as error:
                wait_s = error.retry_s
                if not 0.0 < wait_s <= SOON_S or time.monotonic() + wait_s > until:
                    raise
            except Unreachable as error:
                wait_s = LOOK_S
                first = error.nobody and not self._answered
                if not first or time.monotonic() > until or not is_starting(self.url):
                    raise
            time.sleep(wait_s)

    def _send_once(
        self, method: str, path: str, body: Any, query: Mapping[str, Any], *, api: bool
    ) -> bytes:
        with self._open(method, path, body, query, api=api) as answer:
            read: bytes = answer.read()
            return read

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, Any],
        *,
        api: bool = True,
        patience_s: float | None = TIMEOUT_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer, to be read; what goes wrong until it is read is said as people read it."""
        given = {name: value for name, value in query.items() if value is not None}
        where = f"{self.url}{'/api/v1' if api else ''}{path}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            where + (f"?{urlencode(given, errors=ANY_TEXT)}" if given else ""),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "*/*", "Content-Type": "application/json"},
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=patience_s, context=self._trust
            ) as answer:
                self._answered = True
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                refused = refusal(error.code, error.read(), method, path)
                if isinstance(refused, Refused):
                    refused.retry_s = seconds(error.headers.get("Retry-After", ""))
                raise refused from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError | http.client.HTTPException) -> InvalidConfig:
        """No answer, or not in time, or from a server that we do not trust."""
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLCertVerificationError):
            return Untrusted(
                f"the certificate of {self.url} is not trusted: {why.verify_message}",
                hint="set WEFT_CA to the file of the certificate that signed it",
            )
        if isinstance(error, TimeoutError):  # a connection there was
            return Unreachable(
                f"{self.url} took longer than {TIMEOUT_S:g} s to answer",
                hint="it may be busy: try again, or see its log",
            )
        unreachable = Unreachable(
            f"no service answers at {self.url} ({why})",
            hint="start one with `weft serve`, or set WEFT_URL",
        )
        unreachable.nobody = isinstance(why, ConnectionRefusedError)
        return unreachable


def load_certificates(authority: str) -> ssl.SSLContext:
    """What to trust: the certificates of the system, or those in a file."""
    try:
        return ssl.create_default_context(cafile=authority or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            f"WEFT_CA is {authority!r}, which holds no certificates: {error}",
            hint="name a PEM file",
        ) from error


def seconds(text: str) -> float:
    """A Retry-After in seconds; 0 for one that is a date, or not there."""
    return float(text) if text.isdigit() else 0.0


def at(*parts: str) -> str:
    """A path of these parts, whatever characters they have."""
    return "".join(f"/{quote(part, safe='', errors=ANY_TEXT)}" for part in parts)


def check_address(url: str) -> str:
    """An address without its last slash; raises InvalidConfig for what is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidConfig(
            f"WEFT_URL is {url!r}, not the address of a service", hint=f"such as {DEFAULT_URL}"
        )
    return url.rstrip("/")


def refusal(status: int, answer: bytes, method: str, path: str) -> WeftError:
    """The error behind a 4xx or 5xx answer."""
    try:
        body = json.loads(answer)
    except ValueError:
        body = None
    if not isinstance(body, dict) or "error" not in body:
        text = answer[:200].decode(errors="replace").strip() or http.client.responses.get(status)
        body = {"error": f"{method} {path} was answered with {status}: {text}"}
    hint = body.get("hint") or ANSWERS.get(status, "")
    if status == http.HTTPStatus.UNAUTHORIZED:
        hint = ANSWERS[status]  # the service speaks of headers
    field = body.get("field") or ""
    what = str(body["error"])
    if field and not what.startswith(field) and f"'{field}'" not in what:
        what = f"{field}: {what}"
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return EngineError(what, hint=hint or "the service's log says more")
    return Refused(what, hint=hint, status=status, field=field)


def is_starting(url: str) -> bool:
    """Whether someone typed `weft serve` here a moment ago, for this address as far as is known.

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
