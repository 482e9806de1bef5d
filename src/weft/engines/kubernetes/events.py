"""Events on pods and WeftJobs, for `kubectl describe`."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from weft.engines.kubernetes.api import Object

LONGEST_NAME, LONGEST_TEXT = 200, 1000


def event_on(about: Object, reason: str, text: str, *, warning: bool = False) -> Object:
    """An event on an object, whose name is made of what it tells: a second one is refused."""
    digest = hashlib.sha256(f"{about['uid']}/{reason}/{text}".encode()).hexdigest()[:16]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"{about['name'][:LONGEST_NAME]}.{digest}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": about,
        "reason": reason,
        "message": text[:LONGEST_TEXT],
        "type": "Warning" if warning else "Normal",
        "source": {"component": "weft"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def events_path(namespace: str) -> str:
    """Where the events of a namespace are."""
    return f"/api/v1/namespaces/{namespace}/events"
