"""The API under fire: whatever its schema allows, and what it does not, is answered as it says.

WEFT_FUZZ says how many requests each route gets in either mode.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.integration.serving import STILL, serving
from tests.waiting import LIMIT_S
from weft.app.serve.live import Settings
from weft.service.main import create_app

# Streams without end, and what would lock us out; they have tests of their own.
LEFT_OUT = {"/api/v1/events", "/api/v1/watch", "/api/v1/tokens"}
EXAMPLES = int(os.environ.get("WEFT_FUZZ", "6"))
JOBS = 20


def documented() -> dict[str, Any]:
    """The API's own schema; without tokens none is needed, so that is not part of it here."""
    schema = create_app(Settings(engine=STILL)).openapi()
    for methods in schema["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    return schema


def operations() -> Iterator[Any]:
    """Read the schema when it is needed: it takes seconds, and every worker imports this module."""
    import schemathesis

    schema = schemathesis.openapi.from_dict(documented())
    for read in schema.get_all_operations():
        operation = read.ok()  # type: ignore[union-attr, unused-ignore]
        if operation.path not in LEFT_OUT:
            yield operation


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as serving_client:
        for i in range(JOBS):
            made = serving_client.post("/api/v1/jobs", json={"id": f"job{i}", "gpus": 1 + i % 4})
            assert made.status_code == 201
        yield serving_client


def test_what_the_schema_allows_is_answered_as_it_says(
    client: httpx.Client, subtests: pytest.Subtests
) -> None:
    for operation in operations():
        with subtests.test(f"{operation.method} {operation.path}"):
            fire(operation, "POSITIVE", client)


def test_what_the_schema_does_not_allow_is_refused(
    client: httpx.Client, subtests: pytest.Subtests
) -> None:
    for operation in operations():
        if list(operation.query) or list(operation.body):
            with subtests.test(f"{operation.method} {operation.path}"):
                fire(operation, "NEGATIVE", client)


def fire(operation: Any, mode: str, client: httpx.Client) -> None:
    from schemathesis import GenerationMode, checks
    from schemathesis.specs.openapi import checks as conforming

    answered = [
        checks.not_a_server_error,
        conforming.status_code_conformance,
        conforming.content_type_conformance,
        conforming.response_schema_conformance,
    ]
    numbers = itertools.count()

    @given(case=operation.as_strategy(generation_mode=GenerationMode[mode]))
    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def once(case: Any) -> None:
        number = next(numbers)
        if "job_id" in case.path_parameters and number % 2:
            case.path_parameters["job_id"] = f"job{number % JOBS}"
        answer = case.call(base_url=str(client.base_url), timeout=LIMIT_S)
        too_large = answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # a refusal as well
        refusal = [] if too_large else [conforming.negative_data_rejection]
        case.validate_response(answer, checks=[*answered, *refusal])

    once()
    assert next(numbers) > 0
