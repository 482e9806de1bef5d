"""The worst that is known of each route of the API: inputs that cost most for what they weigh."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LONG = 15_000  # bytes of an address that is just accepted
HOSTILE_COOKIE = 'weft_session="' + "\\" * 12_000 + '"'
ENDLESS = ("/api/v1/events", "/api/v1/watch")
CHANGE = {
    "limits": {f"t{i}": float(i) for i in range(1000)},
    "nodes": "1024x8:a100",
    "start": "now",
}
SWEEP = {"run": "x" * 30_000, "sweep": {"grid": {"n": [*range(1000)]}}}
DEEP, MANY = b"[" * 500_000, b"[" + b"1," * 900_000
# A valid body that makes the route work as hard as it may, by the end of its path.
BODIES: Mapping[str, Sequence[Any]] = {
    "POST /jobs": (
        SWEEP,
        {"command": ["x" * 400] * 4096},
        {"run": "a" * 130_000},
        {"run": "1" * 130_000 + "x"},
        {"env": {f"V{i}": "y" * 1500 for i in range(1024)}},
        {"after": {"ok": ["nothing"] * 1000}},
        {"sweep": {"list": [{f"p{i}": None for i in range(64)}] * 1000}},
        {"sweep": {"grid": {"x": [None] * 90_000}}},
    ),
    "POST /plan": (SWEEP, {"gpus": 256}),
    "POST /plan/what-if": (
        {"job": SWEEP, "change": {k: v for k, v in CHANGE.items() if k != "start"}},
    ),
    "POST /what-if": (CHANGE, {"policy": "weft", "start": "now"}, {"nodes": "1000000x1:a100"}),
    "POST /what-if/stream": (CHANGE,),
    "POST /job-file": (
        {"text": "[" * 200_000},
        {"text": "[" + "1," * 100_000},
        {"text": "a: &a [1]\n" + "b: *a\n" * 20_000},
        {"text": "- - - - - - - -\n" * 10_000},
        {"text": "x: '" + "y" * 250_000 + "'"},
    ),
    "POST /jobs/{job_id}/again": ({"change": {"run": "x" * 100_000}}, {"change": {"gpus": 2}}),
    "PUT /quotas": (
        {
            "limits": {f"t{i}@a100": 1.0 for i in range(1000)},
            "weights": {f"t{i}": 1.0 for i in range(1000)},
            "guaranteed": {f"t{i}": 1.0 for i in range(1000)},
        },
        {},
    ),
    "PUT /policy": (
        {"policy": "las:thresholds=" + "/".join(str(i) for i in range(90))},
        {"policy": "fifo"},
    ),
    "PUT /reservations/{name}": ({"nodes": ["a100-0:0-7"] * 1000, "start": 1e10},),
    "POST /webhooks": ({"url": "http://127.0.0.1:9/" + "x" * 1900},),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request; an `endless` answer is read for a while."""

    method: str
    path: str
    what: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False


def worst_requests(method: str, path: str, jobs: Sequence[str]) -> Iterator[Request]:
    """Inputs for a route; `jobs` are ids that there are."""
    if path.endswith(("/terminal", "/shell", "/ports/{port}", "/tokens")) and method == "POST":
        return  # sessions have no body to parse; a first token would lock us out
    plain = _fill(path, jobs[-1] if jobs else "x")
    endless = plain in ENDLESS
    yield Request(
        method, plain, "a hostile cookie", headers={"Cookie": HOSTILE_COOKIE}, endless=endless
    )
    if method == "GET":
        for query in ("limit=1000", "limit=1000&since=0&after=x", "format=csv", "points=1000"):
            yield Request(method, f"{plain}?{query}", query, endless=endless)
        if not endless:
            fields = "&".join(f"f{i}=1" for i in range(1500))
            yield Request(method, f"{plain}?{fields}", "1,500 fields")
    if "{" in path:
        yield Request(method, _fill(path, "y" * LONG), "a name of 15 KB", b"{}")
    if method in ("POST", "PUT", "PATCH"):
        yield Request(method, plain, "500 KB of [", DEEP)
        yield Request(method, plain, "900,000 values", MANY)
        yield Request(
            method, plain, "1.9 MB of text", json.dumps({"run": "x" * 1_900_000}).encode()
        )
        key = f"{method} {path.removeprefix('/api/v1')}"
        for number, body in enumerate(BODIES.get(key, ()), start=1):
            yield Request(method, plain, f"valid and heavy, {number}", json.dumps(body).encode())


def _fill(path: str, name: str) -> str:
    for part in (
        "job_id",
        "node_id",
        "name",
        "token_id",
        "hook_id",
        "path",
        "file",
        "port",
        "policy",
    ):
        path = path.replace(f"{{{part}:path}}", name).replace(f"{{{part}}}", name)
    return path
