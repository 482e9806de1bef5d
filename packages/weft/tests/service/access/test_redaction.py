"""Secrets in what is shown."""

from __future__ import annotations

from pathlib import Path

from weft.core.model.launch import Launch
from weft.service.access.redaction import mask_all
from weft.service.routes.jobs.logs import CHUNK, read_masked


def test_names_that_look_secret_or_are_said_to_be_are_and_short_values_are_not() -> None:
    env = {"HF_TOKEN": "abcdef", "MONKEY": "banana", "DSN": "dsn-value", "KEY": "abc"}

    assert Launch((), env=env, secrets=("DSN",)).secret_values() == ("dsn-value", "abcdef")


def test_every_text_in_a_value_is_masked() -> None:
    body = {"job": {"command": ["a-abcdef-b", 3]}, "reason": "abcdef"}

    assert mask_all(body, ["abcdef"]) == {"job": {"command": ["a-***-b", 3]}, "reason": "***"}


def test_a_secret_is_masked_wherever_pieces_of_a_log_begin_and_end(tmp_path: Path) -> None:
    path, secret = tmp_path / "rank-0.log", "hunter-2"
    for at in range(CHUNK - 10, CHUNK + 10):
        text = "x" * at + secret + "y" * CHUNK
        path.write_text(text)
        masked = b""

        while chunk := read_masked(path, len(masked), [secret]):
            masked += chunk

        assert masked.decode() == text.replace(secret, "*" * len(secret))
