"""Answers to JSON and back: both ends of the API use the same types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from packages.weft.tests.cli.jobs import job

from weft.core.errors import EngineError
from weft.service.http.replies import Json
from weft.service.responses.answers import Counts, Events, JobList, Made, Notice, Part
from weft.service.responses.json_values import plain, read_as

JOB = job(
    "a",
    tenant="t",
    allocation=[Part(node="n", gpus=[0, 1], kind="h200", share=0.5)],
    notices=[Notice(at=1.0, level="warning", text="\ud800 odd")],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    kinds: dict[str, Counts]
    name: str | None = None


def written(answer: object) -> Any:
    return json.loads(bytes(Json(answer).body))


def test_what_the_service_writes_the_command_line_reads_as_the_same() -> None:
    page = JobList(jobs=[JOB], next=None)

    assert read_as(JobList, written(page)) == page


def test_mappings_of_objects_are_read_too() -> None:
    held = Kinds(kinds={"h200": Counts(gpus=8, held=1.5)})

    assert read_as(Kinds, written(held)) == held


def test_a_field_of_a_newer_service_is_left_out() -> None:
    assert read_as(Made, {"id": "a", "colour": "red"}) == Made(id="a")


@pytest.mark.parametrize(("body", "named"), [({}, "'id'"), ([], "'everything'")])
def test_a_field_that_is_missing_is_named(body: Any, named: str) -> None:
    with pytest.raises(EngineError, match=f"without {named} of Made"):
        read_as(Made, body)


def test_numbers_that_json_has_no_word_for_are_null() -> None:
    assert written(Counts(gpus=1, held=float("nan"))) == {"gpus": 1, "held": None}


def test_so_are_those_in_events_and_beside_texts_that_are_no_text() -> None:
    odd = {"value": float("inf"), "deep": [{"x": float("-inf")}]}

    assert written(Events(events=[odd])) == {"events": [{"value": None, "deep": [{"x": None}]}]}
    assert written(Events(events=[odd, {"text": "\ud800"}]))["events"][1] == {"text": "\ud800"}


def test_only_answers_are_written() -> None:
    with pytest.raises(TypeError, match="object is no part of an answer"):
        plain(object())
