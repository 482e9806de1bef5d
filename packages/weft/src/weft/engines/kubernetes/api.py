"""The API server over plain HTTPS: one request at a time, and a watch. From any thread."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from weft.core.errors import EngineError, WeftError
from weft.engines.kubernetes.access import Access

Object = dict[str, Any]  # one object of the API, or a list of them: JSON of a known shape

PATIENCE_S = 15.0
MERGE = "application/merge-patch+json"
QUIET_S = 90.0  # a watch that told nothing for so long, not even a bookmark, is begun again
MOST_IDLE = 8
# The server is there but cannot serve now: it starts, stops, or is asked too much.
BUSY = (429, 500, 502, 503, 504)
UNAUTHORIZED, FORBIDDEN, GONE, CONFLICT, MISSING, INVALID = 401, 403, 410, 409, 404, 422
HINTS = {
    UNAUTHORIZED: "the server does not know us: look at the user of the kubeconfig context",
    FORBIDDEN: "an administrator applies deploy/kubernetes/rbac.yaml",
    INVALID: "look at the options of the engine and at the job's image and resources",
    MISSING: "an administrator applies deploy/kubernetes/namespace.yaml, or name another namespace",
}

QUOTA_HINT = "`kubectl describe quota,limitrange` shows what is allowed in the namespace"


class Unreachable(WeftError):  # noqa: N818 - a state, not a fault
    """The API server cannot be reached, or cannot answer now. Says nothing about jobs."""


class ApiError(EngineError):
    """The server refused: `message` is what it says, `code` the HTTP status, `reason` its word.

    `rights` says that it does not let us ask at all, whatever we ask for.
    """

    def __init__(
        self,
        what: str,
        *,
        hint: str = "",
        message: str = "",
        code: int = 0,
        reason: str = "",
        rights: bool = False,
    ) -> None:
        super().__init__(what, hint=hint)
        self.message = message or what
        self.code = code
        self.reason = reason
        self.rights = rights


class Api:
    """Requests to one server, with its proof of who asks.

    With `acts_as`, the full name of a service account, they have the rights of that one alone.
    """

    def __init__(
        self, access: Access, *, acts_as: str = "", patience_s: float = PATIENCE_S
    ) -> None:
        self.access = access
        self._acts_as = acts_as
        self._patience_s = patience_s
        parts = urlsplit(access.server)
        self._host, self._base = parts.netloc, parts.path.rstrip("/")
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def get(self, path: str, **params: str) -> Object:
        """One object or list."""
        return self._ask("GET", path, params)

    def create(self, path: str, body: Object, *, dry: bool = False) -> Object:
        """A new object as the server keeps it; `dry` only asks whether it would."""
        return self._ask("POST", path, {"dryRun": "All"} if dry else {}, body)

    def merge(self, path: str, body: Object) -> Object:
        """An object with these fields replaced."""
        return self._ask("PATCH", path, {}, body, MERGE)

    def delete(self, path: str, *, grace_s: int | None = None) -> bool:
        """Ask for the end of an object; whether it was there."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            self._ask("DELETE", path, {}, options)
        except ApiError as error:
            if error.code == MISSING:
                return False
            raise
        return True

    def watch(self, path: str, **params: str) -> Watch:
        """Changes of a list from now on, until the server ends it."""
        connection = self._open(QUIET_S)
        with ExitStack() as failing:
            failing.callback(connection.close)
            response = self._send(connection, "GET", path, {**params, "watch": "1"})
            if response.status != http.client.OK:
                raise self._refusal("GET", path, response.status, response.read())
            failing.pop_all()
        return Watch(connection, response)

    def close(self) -> None:
        """Let go of idle connections."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    # ---- one request

    def _ask(
        self,
        verb: str,
        path: str,
        params: Mapping[str, str],
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        """Send and read; once more on a connection that the server closed while it was idle."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, verb, path, params, body, content)
            except Unreachable:
                kept.close()
        fresh = self._open(self._patience_s)
        try:
            return self._exchange(fresh, verb, path, params, body, content)
        except BaseException:
            fresh.close()
            raise

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        verb: str,
        path: str,
        params: Mapping[str, str],
        body: Object | None,
        content: str,
    ) -> Object:
        response = self._send(connection, verb, path, params, body, content)
        try:
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from error
        with self._lock:
            if len(self._idle) < MOST_IDLE and not response.will_close:
                self._idle.append(connection)
            else:
                connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise self._refusal(verb, path, response.status, text)
        answer: Object = json.loads(text)
        return answer

    def _send(
        self,
        connection: http.client.HTTPConnection,
        verb: str,
        path: str,
        params: Mapping[str, str],
        body: Object | None = None,
        content: str = "application/json",
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "weft"}
        if token := self.access.bearer():
            headers["Authorization"] = f"Bearer {token}"
        if self._acts_as:
            headers["Impersonate-User"] = self._acts_as
        if body is not None:
            headers["Content-Type"] = content
        url = self._base + path + ("?" + urlencode(params) if params else "")
        try:
            connection.request(verb, url, None if body is None else json.dumps(body), headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from error

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self.access.tls is None:
            connection = http.client.HTTPConnection(self._host, timeout=self._patience_s)
        else:
            connection = http.client.HTTPSConnection(
                self._host, timeout=self._patience_s, context=self.access.tls
            )
        try:
            connection.connect()
        except OSError as error:
            raise self._away(error) from error
        connection.sock.settimeout(timeout)
        return connection

    def _away(self, error: Exception) -> Unreachable:
        trouble = str(error) or type(error).__name__
        return Unreachable(f"the Kubernetes API at {self.access.server}: {trouble}")

    def _refusal(self, verb: str, path: str, code: int, text: bytes) -> WeftError:
        """An error status in words: what was asked, what the server says, what to do."""
        try:
            status = json.loads(text)
        except ValueError:
            status = {}
        message = str(
            status.get("message") or text[:200].decode(errors="replace") or f"HTTP {code}"
        )
        if code in BUSY:
            return Unreachable(f"the Kubernetes API at {self.access.server}: {message}")
        causes = (status.get("details") or {}).get("causes") or ()
        if code == INVALID and causes:
            message = "; ".join(f"{cause.get('field')}: {cause.get('message')}" for cause in causes)
        rights = code == UNAUTHORIZED or (code == FORBIDDEN and " cannot " in message)
        quota = code == FORBIDDEN and not rights  # or a rule of the site
        return ApiError(
            f"{verb} {path}: {message}",
            hint=QUOTA_HINT if quota else HINTS.get(code, ""),
            message=message,
            code=code,
            reason=str(status.get("reason", "")),
            rights=rights,
        )


class Watch:
    """A stream of (type, object) that another thread may end."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response
        self._socket: socket.socket = connection.sock
        self._ended = False

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        """Each change as it comes; ends with the stream, in whatever way that ends."""
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            for line in iter(self._response.readline, b""):
                event = json.loads(line)
                yield str(event["type"]), event["object"]
                if self._ended:
                    return

    def end(self) -> None:
        """Wake up the iterating task."""
        self._ended = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        self._response.close()
        self._connection.close()
