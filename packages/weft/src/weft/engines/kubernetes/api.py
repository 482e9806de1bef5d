"""The API server over plain HTTPS: requests, a watch, and copies of lists that follow the server.

Written by hand for three things that the official client does not do: a watch ends at once when
another thread asks for that, where `Watch.stop` waits for the next event; one that is silent for
too long, bookmarks included, is begun again; and objects stay JSON, so that kinds and versions
which a release of the client has no classes for, WeftJobs among them, need no second interface.
Five verbs are used, and nothing is imported for the hundreds of others.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
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


class ApiServerUnreachable(WeftError):  # noqa: N818 - a state, not a fault
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
        """Get one object or a list of objects."""
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
            except ApiServerUnreachable:
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

    def _away(self, error: Exception) -> ApiServerUnreachable:
        trouble = str(error) or type(error).__name__
        return ApiServerUnreachable(f"the Kubernetes API at {self.access.server}: {trouble}")

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
            return ApiServerUnreachable(f"the Kubernetes API at {self.access.server}: {message}")
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


log = logging.getLogger(__name__)

ROUND_S = 240  # how long the server is asked to keep one watch open
MOST_REMOVED = 1000
PAUSE_S = 0.5  # between tries to reach the server


class Watching:
    """All objects at `path`, by name, that a selector of labels or fields chooses.

    They are kept up to date by a thread of its own.
    Every change has a version. A watch goes on from the last one seen; where the server does not
    have that any more (410 Gone), all is listed again. `changed` is called from the thread after
    each change, and when the server is found or lost.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        selector: str = "",
        changed: Callable[[], None] = lambda: None,
        fields: str = "",
    ) -> None:
        self._api = api
        self._path = path
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        self._query = {name: value for name, value in chosen.items() if value}
        self._changed = changed
        self._objects: dict[str, Object] = {}
        self._removed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._version = ""
        self._trouble: WeftError | None = ApiServerUnreachable(f"{path} was not listed yet")
        self._stop = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._follow, name=f"watch {path}", daemon=True)
        self.relists = 0
        self.back = float("-inf")  # when the server was last found again after it had been away

    def start(self) -> None:
        """List once, so that errors are the caller's, and follow from there."""
        self._list()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._watch is not None:
            self._watch.end()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def objects(self) -> Mapping[str, Object]:
        """The objects there are now; raises what keeps us from knowing."""
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            return dict(self._objects)

    def last(self) -> Mapping[str, Object]:
        """The objects there were when we last knew."""
        with self._lock:
            return dict(self._objects)

    def put(self, pod: Object) -> None:
        """Something that we have just made, before the watch tells about it."""
        self._apply("MODIFIED", pod)
        self._changed()

    # ---- the thread

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch_once()
            except ApiError as error:
                if error.code == GONE:
                    self._version = ""
                    continue
                self._set_trouble(error)
            except WeftError as error:
                self._set_trouble(error)
            if self._trouble is not None:
                self._version = ""  # what happened meanwhile is seen by a new list
                self._stop.wait(PAUSE_S)

    def _list(self) -> None:
        body = self._api.get(self._path, **self._query)
        version = str(body["metadata"]["resourceVersion"])
        listed = {str(pod["metadata"]["name"]): pod for pod in body.get("items") or ()}
        with self._lock:
            ours = self._objects.items()
            newer = {n: pod for n, pod in ours if version_of(pod) > int(version)}
            self._objects = {**listed, **newer}
            self._version = version
            if self._trouble is not None and self.relists:
                self.back = time.monotonic()
            self._trouble = None
            self._removed.clear()
        self.relists += 1
        self._changed()

    def _watch_once(self) -> None:
        """One watch to its end; no word that the server is there still ends it too."""
        began = time.monotonic()
        self._watch = self._api.watch(
            self._path,
            **self._query,
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(ROUND_S),
        )
        try:
            if self._stop.is_set():
                return
            for kind, pod in self._watch:
                if kind == "ERROR":
                    code, message = int(pod.get("code", 0)), str(pod.get("message", ""))
                    raise ApiError(f"watch {self._path}: {message}", code=code or GONE)
                self._apply(kind, pod)
                self._version = str(version_of(pod))
                self._changed()
        finally:
            self._watch.close()
            self._watch = None
        if time.monotonic() - began < 1.0 and not self._stop.is_set():
            self._stop.wait(PAUSE_S)  # a proxy that ends every stream at once

    def _apply(self, kind: str, pod: Object) -> None:
        name, version = str(pod["metadata"].get("name", "")), version_of(pod)
        with self._lock:
            if kind == "BOOKMARK":
                return
            known = self._objects.get(name)
            old = version_of(known) if known is not None else self._removed.get(name, 0)
            if version >= old:
                if kind == "DELETED":
                    self._objects.pop(name, None)
                    self._removed[name] = version
                    if len(self._removed) > MOST_REMOVED:
                        del self._removed[next(iter(self._removed))]
                else:
                    self._objects[name] = pod

    def _set_trouble(self, error: WeftError) -> None:
        with self._lock:
            fresh = self._trouble is None or str(self._trouble) != str(error)
            self._trouble = error
        if fresh:
            log.warning("watch=%s trouble=%s", self._path, error.what)
            self._changed()


def version_of(pod: Object) -> int:
    """The number of the change that made an object what it is."""
    return int(pod["metadata"].get("resourceVersion") or 0)
