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
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.serving import STILL, serving
from weft.app.serve.live import Settings
from weft.service.main import create_app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
ANSWERED = CHECKS[:-1]  # what also holds for a body that is refused before it is read
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


SCHEMA = schemathesis.openapi.from_dict(documented())
OPERATIONS: list[Any] = [read.ok() for read in SCHEMA.get_all_operations()]  # type: ignore[union-attr]
FUZZED = [operation for operation in OPERATIONS if operation.path not in LEFT_OUT]
WITH_FIELDS = [operation for operation in FUZZED if list(operation.query) or list(operation.body)]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as serving_client:
        for i in range(JOBS):
            made = serving_client.post("/api/v1/jobs", json={"id": f"job{i}", "gpus": 1 + i % 4})
            assert made.status_code == 201
        yield serving_client


def named(operation: Any) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", FUZZED, ids=named)
def test_what_the_schema_allows_is_answered_as_it_says(
    operation: Any, client: httpx.Client
) -> None:
    fire(operation, GenerationMode.POSITIVE, client)


@pytest.mark.parametrize("operation", WITH_FIELDS, ids=named)
def test_what_the_schema_does_not_allow_is_refused(operation: Any, client: httpx.Client) -> None:
    fire(operation, GenerationMode.NEGATIVE, client)


def fire(operation: Any, mode: GenerationMode, client: httpx.Client) -> None:
    numbers = itertools.count()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def once(case: Any) -> None:
        number = next(numbers)
        if "job_id" in case.path_parameters and number % 2:
            case.path_parameters["job_id"] = f"job{number % JOBS}"
        answer = case.call(base_url=str(client.base_url))
        too_large = answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # a refusal as well
        checks = [check for check in CHECKS if not too_large or check in ANSWERED]
        case.validate_response(answer, checks=checks)

    once()
    assert next(numbers) > 0
