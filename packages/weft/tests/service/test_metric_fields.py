"""The names of metrics in a job file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from weft.service.requests.job_file import JobFile


def metrics_of(value: Any) -> list[str]:
    return JobFile.model_validate({"run": "true", "metrics": value}).metrics


def test_one_name_is_a_list_of_it() -> None:
    assert metrics_of("*") == ["*"]
    assert metrics_of(["loss", "val/acc?@5"]) == ["loss", "val/acc?@5"]


@pytest.mark.parametrize(
    "value", ["(a+)+", "loss=.*", "val loss", "[ab]", "^a", "a\n", "é", "a\\d"]
)
def test_a_regular_expression_is_refused_with_what_to_write_instead(value: str) -> None:
    with pytest.raises(ValidationError, match=r"in which \* stands for any characters") as refusal:
        metrics_of(["loss", value])

    assert refusal.value.errors()[0]["loc"] == ("metrics", 1)


@pytest.mark.parametrize("value", ["", "a" * 65, ["a"] * 33, {"loss": "min"}, [1], True])
def test_other_values_are_refused_by_their_field(value: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        metrics_of(value)

    assert refusal.value.errors()[0]["loc"][0] == "metrics"
