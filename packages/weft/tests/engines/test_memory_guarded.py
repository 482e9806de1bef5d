"""A job that holds memory of a device, and of which the book has never heard, is not guarded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from weft.core.knowledge.measured import NOT_MEASURED
from weft.engines.machine.measuring import add_wait
from weft.wire.memory_waits import GUARDED, WAITS

HOLDS = replace(NOT_MEASURED, held_gb=20.0)


@pytest.mark.parametrize(
    ("job", "attempt", "held_gb", "unguarded"),
    [
        ("known", 1, 20.0, False),
        ("known", 2, 20.0, True),
        ("other", 1, 20.0, True),
        ("other", 1, 0.6, False),
        ("other", 1, None, False),
    ],
)
def test_whoever_holds_more_than_a_context_has_been_heard_of(
    tmp_path: Path, job: str, attempt: int, held_gb: float | None, unguarded: bool
) -> None:
    (tmp_path / GUARDED).write_text(json.dumps([["known", 1]]))

    measured = add_wait(replace(HOLDS, held_gb=held_gb), tmp_path, job, attempt)

    assert measured.unguarded is unguarded


def test_all_waits_of_an_attempt_are_kept_the_longest_first(tmp_path: Path) -> None:
    row = {"job": "a", "attempt": 1, "held": {}, "away": False}
    rows = [{**row, "gb": gb, "since": since} for gb, since in ((5.0, 9.0), (7.0, 3.0))]
    other = {**row, "job": "b", "gb": 1.0, "since": 1.0}
    (tmp_path / WAITS).write_text(json.dumps([*rows, other]))

    waits = add_wait(HOLDS, tmp_path, "a", 1).waits

    assert waits is not None
    assert (waits.gb, [each.gb for each in waits.others]) == (7.0, [5.0])


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "7"])
def test_nothing_is_said_where_no_book_has_written(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / GUARDED).write_text(text)

    assert not add_wait(HOLDS, tmp_path, "a", 1).unguarded
