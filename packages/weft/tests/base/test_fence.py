from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.waiting import LIMIT_S

from weft.base import fence
from weft.base.errors import Fenced, WireError


def test_nobody_owns_a_directory_that_was_not_claimed(tmp_path: Path) -> None:
    assert fence.owner(tmp_path) is None
    with fence.held(tmp_path, 0):
        pass


def test_a_later_attempt_shuts_an_earlier_one_out(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    fence.claim(folder, 1)
    fence.claim(folder, 2)

    with pytest.raises(Fenced, match="belongs to attempt 2, this is attempt 1"):
        fence.held(folder, 1).__enter__()
    with fence.held(folder, 2):
        pass
    with pytest.raises(Fenced, match="too late"):
        fence.claim(folder, 1)
    assert [file.name for file in folder.iterdir()] == [fence.OWNER]


def test_a_claim_waits_for_a_rename_that_has_begun(tmp_path: Path) -> None:
    fence.claim(tmp_path, 1)
    claimed = threading.Event()

    def claim() -> None:
        fence.claim(tmp_path, 2)
        claimed.set()

    rival = threading.Thread(target=claim)

    with fence.held(tmp_path, 1):
        rival.start()
        waited = not claimed.wait(0.05)
    rival.join(LIMIT_S)

    assert waited
    assert fence.owner(tmp_path) == 2


def test_a_spoilt_owner_file_is_named(tmp_path: Path) -> None:
    (tmp_path / fence.OWNER).write_text("me")

    with pytest.raises(WireError, match="OWNER holds 'me'"):
        fence.owner(tmp_path)
