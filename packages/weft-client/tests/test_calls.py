"""Functions that travel by files, without a service."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from weft_client.call import main, read_answer, tidy, write_call
from weft_client.errors import Misused, NoResult


def test_what_a_function_returns_comes_back(tmp_path: Path) -> None:
    rate = 0.5
    folder = write_call(tmp_path, lambda x, *, y: (x + y, rate), [1], {"y": 2})

    assert main(folder) == 0
    assert read_answer(folder).value == (3, 0.5)


def test_what_a_function_raises_comes_back_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("lr")

    folder = write_call(tmp_path, fail, [], {})

    assert main(folder) == 1
    answer = read_answer(folder)
    assert isinstance(answer.error, KeyError)
    assert 'raise KeyError("lr")' in answer.trace
    assert answer.trace in capsys.readouterr().err


def test_a_call_runs_in_another_process_that_finds_the_same_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "doubling.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    from doubling import double  # type: ignore[import-not-found]

    folder = write_call(tmp_path / "calls", double, [21], {})
    subprocess.run([sys.executable, "-m", "weft_client.run_call", folder], check=True, cwd="/")

    assert read_answer(folder).value == 42


@pytest.mark.parametrize(
    ("value", "message"),
    [(threading.Lock(), "cannot travel to a job"), (sys.stdout, "cannot travel to a job")],
)
def test_what_cannot_travel_is_refused_before_anything_is_submitted(
    tmp_path: Path, value: object, message: str
) -> None:
    with pytest.raises(Misused, match=message):
        write_call(tmp_path, print, [value], {})

    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_travel_says_so(tmp_path: Path) -> None:
    folder = write_call(tmp_path, threading.Lock, [], {})

    assert main(folder) == 0 or isinstance(read_answer(folder).error, NoResult)
    assert "cannot travel back" in str(read_answer(folder).error)


def test_only_its_user_can_read_a_call(tmp_path: Path) -> None:
    folder = write_call(tmp_path / "calls", print, [], {})

    assert folder.stat().st_mode & 0o077 == 0


def test_nothing_is_read_from_what_another_user_may_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_call(tmp_path, int, [], {})
    main(folder)
    monkeypatch.setattr(os, "getuid", lambda: 12345)

    with pytest.raises(NoResult, match="not a result of this user's"):
        read_answer(folder)


def test_a_missing_result_names_the_folder_that_jobs_must_see(tmp_path: Path) -> None:
    folder = write_call(tmp_path, int, [], {})

    with pytest.raises(NoResult, match="WEFT_CALLS"):
        read_answer(folder)


def test_old_calls_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    old, young = (write_call(tmp_path, int, [], {}) for _ in range(2))
    before = time.time() - 40 * 86_400
    for path in (*old.iterdir(), old):
        os.utime(path, (before, before))

    assert tidy(tmp_path, older_than_days=30) == 1
    assert list(tmp_path.iterdir()) == [young]
