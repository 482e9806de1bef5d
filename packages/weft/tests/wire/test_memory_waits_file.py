"""The library's place in an environment, and the file of what jobs wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.wire.memory_waits import (
    PRELOAD,
    WAITS,
    add_guard,
    find_library,
    read_waits,
    without_guard,
)

GUARD = PRELOAD / "guard-1.so"


def test_what_a_job_preloads_itself_stays_behind_the_guard() -> None:
    env = add_guard(GUARD, "/run/book", 2.0, {"LD_PRELOAD": "/lib/own.so", "A": "1"})

    assert env["LD_PRELOAD"] == f"{GUARD}:/lib/own.so"
    assert (env["A"], env["WEFT_MEMORY"], env["WEFT_MEMORY_PRIORITY"]) == ("1", "/run/book", "2")
    assert without_guard(env)["LD_PRELOAD"] == "/lib/own.so"
    assert "LD_PRELOAD" not in without_guard({"LD_PRELOAD": str(GUARD)})


def test_a_library_of_other_sources_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "guard.c").write_text("int x;")
    (tmp_path / "guard-00000000.so").touch()

    assert find_library(tmp_path) is None


def test_a_wheel_has_the_library_without_its_sources(tmp_path: Path) -> None:
    library = tmp_path / "guard-12345678.so"
    library.touch()

    assert find_library(tmp_path) == library


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"job": "a"}]', '{"job": 1}', '"text"'])
def test_a_file_that_is_not_ours_says_that_none_waits(tmp_path: Path, text: str) -> None:
    (tmp_path / WAITS).write_text(text)

    assert read_waits(tmp_path) == ()
    assert read_waits(tmp_path / "absent") == ()
