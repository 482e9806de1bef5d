"""The loop's longest turn for every two lists of a request at their largest, drawn from the API.

    python -m benchmarks.worst_pairs [--jobs 20000] [--only /jobs/batch] [--count 0] [--seed 1]

Reads the service's own OpenAPI schema: every field of a body that holds many things, in every body.
Two of them at a time are filled as far as they may be, with references to the largest things that
there are: a sweep of 1,000, several of them, and single jobs of a tenant that has 20,000. What two
lists cost together is what no list shows alone. Prints each pair's longest turn and the worst.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.loop_stalls import LIMIT_S, PREFIX, Longest, Service, Steps, send, show
from benchmarks.worst_requests import Request
from weft.app.serve.live import Settings
from weft.service.main import create_app

MOST_VALUES, MOST_BYTES = 90_000, 1_900_000  # a little less than what is refused unread
SWEEP = 1000
REFERENCES = ("one sweep", "many sweeps", "many jobs")
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two fields of one body, and what those of them that name jobs refer to."""

    method: str
    path: str
    fields: tuple[str, ...]
    references: str

    def __str__(self) -> str:
        both = " and ".join(self.fields)
        named = f", {self.references}" if self.references else ""
        return f"{self.method} {self.path}: {both}{named}"


class Bodies:
    """What the API takes, by its own description."""

    def __init__(self) -> None:
        described = create_app(Settings(engine="simulated")).openapi()
        self._known: Mapping[str, Schema] = described["components"]["schemas"]
        self._of = {
            (method.upper(), path): operation["requestBody"]["content"]["application/json"][
                "schema"
            ]
            for path, methods in described["paths"].items()
            for method, operation in methods.items()
            if "application/json" in operation.get("requestBody", {}).get("content", {})
        }

    def pairs(self) -> list[Pair]:
        """Every two fields of every body, once for each kind of reference if one names jobs."""
        return [
            Pair(method, path, both, references)
            for (method, path), schema in self._of.items()
            for both in itertools.combinations(self._many(schema, "", frozenset()), 2)
            for references in (REFERENCES if any(map(names_jobs, both)) else ("",))
        ]

    def fill(self, pair: Pair, ids: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """A body with both fields as large as one request may be."""
        schema = self._of[pair.method, pair.path]
        size = float(MOST_VALUES)
        while True:
            filler = _Filler(self._known, pair, ids.get(pair.references, ()), int(size))
            body: dict[str, Any] = filler.value(schema, "")
            values = len(json.dumps(body, separators=(",", ":")))
            if filler.made <= MOST_VALUES and values <= MOST_BYTES:
                return body
            size *= 0.6

    def _many(self, schema: Schema, at: str, seen: frozenset[str]) -> Iterator[str]:
        """The fields that hold many things."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name not in seen:
                yield from self._many(self._known[name], at, seen | {name})
            return
        fields: list[str] = []
        for part in ("anyOf", "oneOf", "allOf"):
            for choice in schema.get(part, ()):
                fields += self._many(choice, at, seen)
        if schema.get("type") == "array":
            fields += [at, *self._many(schema.get("items", {}), f"{at}[]", seen)]
        if schema.get("type") == "object":
            inside = _inside(schema)
            if inside is not None:
                fields += [at, *self._many(inside, f"{at}{{}}", seen)]
            for name, field in schema.get("properties", {}).items():
                fields += self._many(field, f"{at}.{name}", seen)
        yield from dict.fromkeys(fields)


class _Filler:
    """Fills one body: the lists of a pair share `size` values evenly, all else is left out."""

    def __init__(
        self, known: Mapping[str, Schema], pair: Pair, ids: Sequence[str], size: int
    ) -> None:
        self._known, self._pair, self._ids = known, pair, ids
        nested = any(a != b and b.startswith(a) for a in pair.fields for b in pair.fields)
        outer = ".jobs" if pair.path.endswith("/batch") else ""
        self._each = max(int(size ** (0.5 if nested else 1.0)) // (1 if nested else 2), 1)
        if outer and not nested:
            self._each = max(self._each // 50, 1)
        self.made = 0

    def value(self, schema: Schema, at: str) -> Any:
        """The value at a place."""
        self.made += 1
        if "$ref" in schema:
            return self.value(self._known[schema["$ref"].rpartition("/")[2]], at)
        for part in ("anyOf", "oneOf", "allOf"):
            if part in schema:
                return self.value(self._choose(schema[part]), at)
        if "enum" in schema or "const" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        kind = schema.get("type")
        if kind == "array":
            count = self._count(schema, "Items", at)
            return [self._item(schema.get("items", {}), at, number) for number in range(count)]
        if kind == "object":
            return self._table(schema, at)
        return self._plain(schema, at, 0)

    def _choose(self, among: Sequence[Schema]) -> Schema:
        whole = ("array", "object")
        many = [choice for choice in among if choice.get("type") in whole or "$ref" in choice]
        return (many or [*among])[0]

    def _count(self, schema: Schema, of: str, at: str) -> int:
        least = int(schema.get(f"min{of}", 0))
        if at in self._pair.fields:
            return max(min(int(schema.get(f"max{of}", 1000)), self._each), least)
        if any(field.startswith(at) for field in self._pair.fields):
            return max(1 if at != ".jobs" else 50, least)
        return least

    def _item(self, schema: Schema, at: str, number: int) -> Any:
        if names_jobs(at) and self._ids:
            self.made += 1
            return self._ids[number % len(self._ids)]
        if at.endswith((".nodes", ".kinds")):
            return f"a100-{number % 32}:0-7" if at.endswith(".nodes") else "a100"
        if "$ref" in schema or schema.get("type") in ("array", "object"):
            return self.value(schema, f"{at}[]")
        self.made += 1
        return self._plain(schema, f"{at}[]", number)

    def _table(self, schema: Schema, at: str) -> dict[str, Any]:
        inside = _inside(schema)
        if inside is not None:
            count = self._count(schema, "Properties", at)
            return {f"x{n}": self.value(inside, f"{at}{{}}") for n in range(count)}
        needed = schema.get("required", ())
        return {
            name: self._ids[self.made % len(self._ids)]
            if f"{at}.{name}".endswith("jobs[].id") and self._ids
            else self.value(field, f"{at}.{name}")
            for name, field in schema.get("properties", {}).items()
            if name in needed or any(f"{f}.".startswith(f"{at}.{name}") for f in self._pair.fields)
        }

    def _plain(self, schema: Schema, at: str, number: int) -> Any:
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return max(int(schema.get("minimum", 1)), 1) + number % 200
        if kind == "boolean":
            return True
        return {".text": "gpus: 1", ".url": "http://127.0.0.1:9/x"}.get(at, f"x{number}")


def _inside(schema: Schema) -> Schema | None:
    """What a table holds under any name; None for one of known fields."""
    named = schema.get("patternProperties") or {}
    inside = schema.get("additionalProperties")
    if named:
        return next(iter(named.values()))  # type: ignore[no-any-return]
    return inside if isinstance(inside, dict) else None


def names_jobs(field: str) -> bool:
    """True for a field whose items are jobs that there are."""
    return ".after." in field or field.endswith("change.jobs") or field == ".jobs[]"


def submit_sweeps(client: httpx.Client, jobs: int) -> dict[str, list[str]]:
    """The ids of what a tenant with so many jobs may refer to."""
    sweeps, singles = list[str](), list[str]()
    for start in range(0, jobs, SWEEP):
        values = [*range(min(SWEEP, jobs - start))]
        body = {"gpus": 1, "hints": {"duration_s": 3600}, "sweep": {"grid": {"n": values}}}
        made = client.post(f"{PREFIX}/jobs", json=body).raise_for_status().json()
        sweeps.append(made["id"])
        singles += made["jobs"]
    return {"one sweep": sweeps[:1], "many sweeps": sweeps, "many jobs": singles}


def measure(
    pairs: Sequence[Pair], jobs: int, policy: str = "fifo"
) -> dict[str, tuple[int, Longest]]:
    """For each pair the answer's status, and the longest turn until some decisions later."""
    bodies, measured = Bodies(), dict[str, tuple[int, Longest]]()
    service = Service(0, policy)
    with Steps().measured() as steps:
        client = service.begin()
        ids = submit_sweeps(client, jobs)
        time.sleep(2.0)
        steps.take()
        for pair in pairs:
            body = json.dumps(bodies.fill(pair, ids)).encode()
            path = pair.path.replace("{job_id}", ids["many jobs"][0]).replace("{name}", "w")
            status = send(client, Request(pair.method, path, str(pair), body))
            assert status < 500, (str(pair), status)
            client.get("/health/live").raise_for_status()
            longest = steps.take()
            measured[f"{pair} ({len(body):,} bytes, {status})"] = status, longest
            show(f"{pair} ({len(body):,} bytes, {status})", longest)
        client.close()
    service.end()
    return measured


def main() -> None:
    """Print the longest turn of each pair as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--only", default="", help="bodies whose path ends so")
    parser.add_argument("--count", type=int, default=0, help="as many pairs, drawn; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    pairs = [pair for pair in Bodies().pairs() if pair.path.endswith(asked.only)]
    if asked.count:
        pairs = random.Random(asked.seed).sample(pairs, min(asked.count, len(pairs)))
    measured = measure(pairs, asked.jobs, asked.policy)
    taken = sum(status < 400 for status, _ in measured.values())
    worst = max(measured, key=lambda name: measured[name][1].cpu_s)
    late = sum(longest.cpu_s > LIMIT_S for _, longest in measured.values())
    print(f"{len(measured)} pairs, {taken} of them accepted, {late} with a turn over {LIMIT_S:g} s")
    print(f"longest: {measured[worst][1].cpu_s * 1e3:.1f} ms of CPU, {worst}")


if __name__ == "__main__":
    main()
