"""Whatever is typed after `weft`, no command ends in a traceback."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from benchmarks.random_commands.fence import fenced, served, try_commands, try_one
from benchmarks.random_commands.files import FILES

from tests.seeds import varied
from weft.core.errors import InvalidConfig
from weft.perf.sharing.device_models import read_measured

COUNT = 300
LONG = "x" * 3000
WRONG = (
    ["simulate", "tiny-20", "--events", "."],
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


def test_gpus_of_a_machine_that_are_no_numbers_are_refused_by_the_service() -> None:
    with served() as address, fenced(address):
        os.environ["WEFT_URL"] = address
        code, trace = try_one(["drain", "a100-1:0\u202e"])

    assert not trace
    assert code == 2


def test_pairs_that_no_policy_would_read_are_refused() -> None:
    with fenced() as folder:
        (folder / "pairs.json").write_text(FILES["pairs.json"])
        code, trace = try_one(["simulate", "tiny-20", "-p", "fifo", "--pairs", "pairs.json"])

    assert not trace
    assert code == 2


@pytest.mark.parametrize(
    ("option", "content"),
    [
        ("--profiles", b"[" * 100_000),
        ("--profiles", b"9" * 5000),
        ("--loan", b"time_s,needed\n\xb2,1\n"),
    ],
    ids=["deep profiles", "long number", "no text"],
)
def test_a_file_that_cannot_be_read_is_named(option: str, content: bytes) -> None:
    with fenced() as folder:
        (folder / "damaged.json").write_bytes(content)
        value = "1x8:v100,trace=damaged.json" if option == "--loan" else "damaged.json"
        code, trace = try_one(["simulate", "tiny-20", "--jobs", "4", option, value])

    assert not trace
    assert code == 2


def test_a_table_of_pairs_that_is_too_deep_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_bytes(b"[" * 100_000)

    with pytest.raises(InvalidConfig, match=r"pairs\.json is not a table of pairs"):
        read_measured(path)


def test_random_commands_end_without_a_traceback() -> None:
    findings = try_commands(COUNT, seed=varied(5))
    gc.collect()

    assert not findings.tracebacks
    assert not findings.too_long
    assert sum(findings.codes.values()) == COUNT
    assert {0, 2} <= set(findings.codes)
