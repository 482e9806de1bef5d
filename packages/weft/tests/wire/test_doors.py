"""Whose ports a door leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.wire import doors
from weft.wire.processes import user_of

ANN, BEN = 1001, 1002
RANK, ADOPTED, FORGED = 4_000_001, 4_000_002, 4_000_003  # above every process that there is


def test_a_process_of_another_user_is_of_no_attempt_whatever_it_calls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {RANK: ANN, ADOPTED: ANN, FORGED: BEN}
    monkeypatch.setattr(doors, "find_tagged", lambda *_: iter([ADOPTED, FORGED]))
    monkeypatch.setattr(doors, "user_of", users.get)

    assert doors._processes(tmp_path, [RANK]) == {RANK, ADOPTED}
    assert doors._processes(tmp_path, []) == set()


def test_the_user_of_a_process_is_known_while_it_is_there() -> None:
    assert user_of(os.getpid()) == os.getuid()
    assert user_of(2**22 + 1) is None
