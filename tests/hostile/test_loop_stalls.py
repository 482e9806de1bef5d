"""No input keeps the service's loop for long, and no body can hold what nobody bounded."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.loop_stalls import PREFIX, Service, Steps, routes, send
from benchmarks.worst_pairs import REFERENCES, Bodies
from benchmarks.worst_pairs import measure as measure_pairs
from benchmarks.worst_requests import BODIES, worst_requests

from tests.seeds import seeds
from weft.app.serve.live import Settings
from weft.core.knowledge.programs import program_of
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.predict.traits import levels_of
from weft.service.main import create_app

UNTYPED = {"params", "change"}  # read by their own readers, of a counted body
# What these simulate is done by processes with limits; here they would only take their time.
SIMULATED = ("/what-if", "/explain", "/plan", "/queue")
# A thousand jobs more make every later answer longer; `benchmarks.loop_stalls` submits them.
KINDS = ("cookie", "500 KB", "900,000", "15 KB", "limit=1000", "1,500", "heavy, 2", "heavy, 5")


def spend_about_100_ms() -> float:
    """CPU seconds of a fixed amount of work, as long as a step of the loop may take."""
    began = time.thread_time()
    total = 0
    for number in range(1_500_000):
        total += number & 3
    return time.thread_time() - began


@pytest.mark.slow
def test_no_route_keeps_the_loop_at_its_worst_input() -> None:
    measured: dict[str, float] = {}
    service = Service(200, "fifo")
    with Steps().measured() as steps:
        client = service.begin()
        service.fill(client)
        ids = [job["id"] for job in client.get(f"{PREFIX}/jobs?limit=2").json()["jobs"]]
        time.sleep(1.0)
        steps.take()
        for method, path in routes():
            for request in worst_requests(method, path, ids):
                simulates = method == "GET" or "heavy" in request.what
                if request.endless or (path.endswith(SIMULATED) and simulates):
                    continue
                if not any(kind in request.what for kind in KINDS):
                    continue
                status = send(client, request)
                assert status < 500, (method, path, request.what)
                measured[f"{method} {path}: {request.what}"] = steps.take().cpu_s
        client.close()
    service.end()

    allowed = 1.5 * max(spend_about_100_ms() for _ in range(3))
    late = {name: cpu_s for name, cpu_s in measured.items() if cpu_s > allowed}
    assert len(measured) > 100
    assert not late, (late, allowed)


@pytest.mark.parametrize(
    "unit", ["a", "1", "1.", "2024-01-", "+-", "/", "0e", "deadbeef", "--x=1 "]
)
def test_how_a_job_is_known_again_is_read_from_any_command_at_once(unit: str) -> None:
    """16 KB of one letter took nine seconds of the loop, and eight times as many 600."""
    text = (unit * 130_000)[:130_000] + "x"
    job = Job(JobId("j"), launch=Launch(("sh", "-c", text, *["x" * 400] * 1000), workdir="/"))

    began = time.thread_time()
    levels_of(job)
    program_of(job)
    spent = time.thread_time() - began

    assert spent < 10 * spend_about_100_ms()


def test_no_two_lists_of_a_request_keep_the_loop_together() -> None:
    """50 jobs that each waited for 100 times the same sweep took 2.4 s of one turn."""
    known = Bodies().pairs()
    batches = [pair for pair in known if pair.path.endswith("/jobs/batch") and pair.references]
    drawn = random.Random(seeds(1)[0])
    pairs = [*drawn.sample(batches, 5), *drawn.sample(known, 5)]

    measured = measure_pairs(pairs, 1000)

    allowed = 1.5 * max(spend_about_100_ms() for _ in range(3))
    late = {name: longest for name, (_, longest) in measured.items() if longest.cpu_s > allowed}
    assert len(measured) == len(pairs)
    assert not late, (late, allowed)


def test_the_pairs_reach_every_list_that_the_api_takes() -> None:
    bodies, ids = Bodies(), {kind: ["job"] for kind in REFERENCES}
    pairs = bodies.pairs()

    fields = {(pair.path.removeprefix(PREFIX), field) for pair in pairs for field in pair.fields}

    assert {
        ("/jobs", ".after.ok"),
        ("/jobs", ".sweep.grid{}"),
        ("/jobs/batch", ".jobs[].after.ok"),
        ("/plan/what-if", ".change.jobs"),
        ("/quotas", ".guaranteed"),
    } <= fields
    batch = next(
        pair
        for pair in pairs
        if pair.path.endswith("/batch") and pair.fields == (".jobs", ".jobs[].after.ok")
    )
    jobs = bodies.fill(batch, ids)["jobs"]
    assert len(jobs) * len(jobs[0]["after"]["ok"]) > 40_000


def test_the_worst_inputs_are_of_routes_that_there_are() -> None:
    known = {f"{method} {path.removeprefix(PREFIX)}" for method, path in routes()}

    assert set(BODIES) <= known


def bodies() -> dict[str, Any]:
    schema = create_app(Settings(engine="simulated")).openapi()
    asked = {
        f"{method} {path}": operation["requestBody"]["content"]["application/json"]["schema"]
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    return {"definitions": schema["components"]["schemas"], "asked": asked}


def unbounded(schema: Any, definitions: Any, at: str, seen: frozenset[str]) -> Iterator[str]:
    """Where a body may hold any number of things, or a text of any length."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from unbounded(definitions[name], definitions, at, seen | {name})
        return
    for part in ("anyOf", "oneOf", "allOf"):
        for subschema in schema.get(part, ()):
            yield from unbounded(subschema, definitions, at, seen)
    kind = schema.get("type")
    if kind == "string" and not {"maxLength", "pattern", "enum", "const"} & set(schema):
        yield at
    if kind == "array":
        if "maxItems" not in schema:
            yield at
        yield from unbounded(schema.get("items", {}), definitions, f"{at}[]", seen)
    if kind == "object" and at.rpartition(".")[2] not in UNTYPED:
        yield from _unbounded_table(schema, definitions, at, seen)


def _unbounded_table(schema: Any, definitions: Any, at: str, seen: frozenset[str]) -> Iterator[str]:
    inside = schema.get("additionalProperties")
    if isinstance(inside, dict) or schema.get("patternProperties"):
        if "maxProperties" not in schema:
            yield at
        yield from unbounded(inside or {}, definitions, f"{at}{{}}", seen)
    for name, subschema in schema.get("properties", {}).items():
        yield from unbounded(subschema, definitions, f"{at}.{name}", seen)


def test_every_list_table_and_text_of_a_body_has_a_limit() -> None:
    by_body = bodies()
    assert len(by_body["asked"]) > 10

    wrong = [
        place
        for name, schema in by_body["asked"].items()
        for place in unbounded(schema, by_body["definitions"], name, frozenset())
    ]

    assert not wrong
