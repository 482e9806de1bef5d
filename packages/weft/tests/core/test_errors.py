"""Errors say what happened and what fixes it, and survive the way between processes."""

from __future__ import annotations

import pickle

import pytest

from weft.core.errors import (
    EngineError,
    InvalidConfig,
    PlanError,
    TraceError,
    UnknownName,
    WeftError,
)


@pytest.mark.parametrize(
    "kind", [WeftError, UnknownName, InvalidConfig, TraceError, PlanError, EngineError]
)
def test_every_error_survives_pickling(kind: type[WeftError]) -> None:
    error = kind("it broke", hint="repair it")

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert (copy.what, copy.hint) == ("it broke", "repair it")
    assert str(copy) == "it broke\n  hint: repair it"


def test_an_error_without_a_hint_is_one_line() -> None:
    assert str(WeftError("it broke")) == "it broke"


def test_an_unknown_name_is_answered_with_the_closest_and_where_the_list_is() -> None:
    error = UnknownName.among("policy", "strf", ["srtf", "fifo", "las"])

    assert str(error) == (
        "no policy named 'strf'; did you mean 'srtf'?\n  hint: `weft list policy` shows all 3"
    )


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    assert UnknownName.among("policy", "xyz", ["srtf"]).what == "no policy named 'xyz'"


def test_a_trace_error_names_file_line_and_column() -> None:
    error = TraceError.at("t.csv", 7, "gpus", "x", "a whole number", hint="h")

    assert error.what == "t.csv, line 7, column 'gpus': found 'x', expected a whole number"
    assert TraceError.at("t.csv", 7, "", "x", "y").what == "t.csv, line 7: found 'x', expected y"
