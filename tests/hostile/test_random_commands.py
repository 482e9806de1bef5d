"""Whatever is typed after `weft`, no command ends in a traceback."""

from __future__ import annotations

import pytest
from benchmarks.random_commands.fence import fenced, try_commands, try_one

COUNT = 300
LONG = "x" * 3000
WRONG = (
    ["state", "accept-loss", "--state", LONG],
    ["predict", "--replay", LONG],
    ["submit", "--", LONG],
    ["join", "h:1", "--token-file", LONG],
    ["simulate", "tiny-20", "--policy", f"{LONG}.yaml"],
    ["job", "a\udcff"],
    ["jobs", "--tenant", "\udcff"],
    ["run", "--array", "0-999999999999", "--", "true"],
    ["run", "--array", f"0-{'9' * 5000}", "--", "true"],
    ["run", "--array", "1%²", "--", "true"],
    ["run", "--gpus", "²", "--", "true"],
    ["run", "--gpus", "9" * 5000, "--", "true"],
    ["run", "--batch", "1-²", "--", "true"],
)


@pytest.mark.parametrize(
    "words", WRONG, ids=lambda words: " ".join(words)[:40].encode("ascii", "replace").decode()
)
def test_a_mistake_is_answered_in_words(words: list[str]) -> None:
    with fenced():
        code, trace = try_one(words)

    assert not trace
    assert code == 2


def test_random_commands_end_without_a_traceback() -> None:
    found = try_commands(COUNT, seed=5)

    assert not found.tracebacks
    assert not found.too_long
    assert sum(found.codes.values()) == COUNT
    assert {0, 2} <= set(found.codes)
