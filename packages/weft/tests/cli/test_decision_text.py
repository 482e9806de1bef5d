"""What `weft job --events` says of a decision."""

from __future__ import annotations

from typing import Any

import pytest

from weft.cli.commands.jobs.job import describe_decision, describe_event


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"reasons": {"a": "waits for 1 GPU"}}, "waits for 1 GPU"),
        ({"reasons": {"a": ""}}, "the reason it was given before no longer holds"),
        ({"changes": {"b": None}}, "it keeps what it has"),
        ({"changes": {"a": None}, "reasons": {"a": "gave way"}}, "it holds nothing (gave way)"),
        ({"rejected": {"a": "too large"}}, "rejected: too large"),
    ],
)
def test_every_decision_about_a_job_has_a_text(event: dict[str, Any], text: str) -> None:
    assert describe_decision(event, "a") == text
    assert describe_event({"event": "Decided", "at": 0.0, **event}, "a").endswith(
        f"Decided  {text}"
    )
