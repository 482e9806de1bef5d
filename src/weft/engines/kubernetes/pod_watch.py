"""A copy of a list of objects that follows the server: list, watch from there, list again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from weft.core.errors import WeftError
from weft.engines.kubernetes.api import GONE, Api, ApiError, Object, Unreachable, Watch

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
        self._trouble: WeftError | None = Unreachable(f"{path} was not listed yet")
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
        """End the thread."""
        self._stop.set()
        if self._watch is not None:
            self._watch.end()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def objects(self) -> Mapping[str, Object]:
        """What there is now; raises what keeps us from knowing."""
        with self._lock:
            if self._trouble is not None:
                raise self._trouble
            return dict(self._objects)

    def last(self) -> Mapping[str, Object]:
        """What there was when we last knew."""
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
                self._hear()
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

    def _hear(self) -> None:
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
