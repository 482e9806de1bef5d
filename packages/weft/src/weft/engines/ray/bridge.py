"""The process that speaks to Ray for the service.

    python -m weft.engines.ray.bridge

A line of JSON in is a question, `[call, arguments]`; a line out its answer, `{"ok": ...}` or
`{"error": text, "kind": name}`. It ends with its input. Ray is kept out of the service this way:
Ray ends the process of a driver that has lost its cluster, and prints to its output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from weft.engines.ray.carrier import Carrier
from weft.engines.ray.cluster import RayCluster


class Bridge:
    """Questions to a cluster, by name."""

    def __init__(self) -> None:
        self._cluster: RayCluster | None = None
        self._calls: Mapping[str, Callable[..., Any]] = {"connect": self._connect}

    def answer(self, line: str) -> dict[str, Any]:
        """The answer to one line."""
        name, given = json.loads(line)
        try:
            return {"ok": self._calls[name](**given)}
        except Exception as error:  # the caller decides what it means
            return {"error": str(error).strip()[:4000], "kind": type(error).__name__}

    def _connect(
        self,
        address: str,
        owner: str,
        root: str,
        mark: str,
        files: str,
        nodes: str,
        carried_gb: float,
    ) -> str:
        import ray

        cluster = RayCluster(address, owner, Path(root), mark, files, nodes)
        cluster.connect()
        carrier = Carrier(cluster, carried_gb)
        self._calls = {
            "poll": cluster.poll,
            "start": cluster.start,
            "end": cluster.end,
            "release": cluster.release,
            "send": carrier.send,
            "fetch": carrier.fetch,
            "push": carrier.push,
            "artifacts": carrier.artifacts,
            "artifact": carrier.artifact,
        }
        return str(ray.__version__)


def main(questions: TextIO, answers: TextIO) -> None:
    """Answer until there are no more questions."""
    bridge = Bridge()
    for line in questions:
        answers.write(json.dumps(bridge.answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Whatever prints here, Ray's own processes included, prints to the log instead.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.stdin, out)
    os._exit(0)  # nothing of Ray's that could wait for a cluster that is gone
