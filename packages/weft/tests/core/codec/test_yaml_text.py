"""The one reader of YAML: what it gives, and what it refuses with a line."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env: {A: 2024-01-01}", {"env": {"A": "2024-01-01"}}),
        ("env: {A: 2024-13-45}", {"env": {"A": "2024-13-45"}}),
        ("at: 2024-01-01 10:00:00", {"at": "2024-01-01 10:00:00"}),
        ("a: [1, 2.5, true, null, x]", {"a": [1, 2.5, True, None, "x"]}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("", None),
    ],
)
def test_values_are_plain_and_dates_are_text(text: str, expected: Any) -> None:
    assert parse_yaml(text, "job.yaml") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nenv: {A: !!int x}", "job.yaml, line 2, column 10: not YAML: 'x' is not a valid"),
        ("a: !!bool maybe", "line 1, column 4: not YAML: 'maybe' is not a valid bool"),
        ("a: !!int ''", "line 1, column 4: not YAML: '' is not a valid int"),
        ("a: !!float ''", "'' is not a valid float"),
        ("a: !!int '-'", "'-' is not a valid int"),
        ("a: !!binary QQ==", "tag !!binary is not supported"),
        ("a: !!python/object:os.system x", "is not supported"),
        ("a: !!set {b}", "tag !!set is not supported"),
        ("a: !!timestamp 2024-01-01", "tag !!timestamp is not supported"),
        (f"a: {'9' * 5000}", "is not a valid int"),
        ("a: &x [1]\nb: *x", "line 2, column 4: a YAML reference"),
        ("[" * 2000, "nested more than 32 levels"),
        ("- " * 2000 + "x", "nested more than 32 levels"),
        ("{a: " * 2000, "nested more than 32 levels"),
        ("[" + "1," * 30_000 + "]", "more than 20,000 values"),
        ("a: 'open", "job.yaml, line 1"),
        ("a: \x00", "job.yaml"),
        ("? [1]\n: 2", "not YAML"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_yaml(text, "job.yaml")

    assert problem in str(refused.value)


@given(st.text(st.sampled_from("[]{}:,-&*!?|>'\"%@` \n\tab019.~<=#\x85\ufeff"), max_size=60))
def test_any_text_gives_plain_values_or_one_kind_of_error(text: str) -> None:
    try:
        value = parse_yaml(text, "job.yaml")
    except InvalidConfig:
        return

    json.dumps(value)
    assert not isinstance(value, date)


@given(st.sampled_from(["null", "bool", "int", "float", "str", "seq", "map"]), st.text())
def test_a_plain_tag_before_any_text_is_read_or_refused(tag: str, text: str) -> None:
    try:
        parse_yaml(f"a: !!{tag} {json.dumps(text)}", "job.yaml")
    except InvalidConfig as refused:
        assert "job.yaml, line 1" in str(refused)
