"""Where a service that names no folder keeps its state, and how commands find it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from weft_client.connection import DEFAULT_URL, Connection
from weft_client.own_state import ADDRESS, publish_address, running_url, state_folder


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("WEFT_URL", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_the_folder_is_the_users_wherever_a_command_is_typed(tmp_path: Path) -> None:
    assert state_folder() == tmp_path / "state/weft"


def test_a_folder_from_before_is_used_on(tmp_path: Path) -> None:
    Path("weft-state").mkdir()
    assert state_folder() == tmp_path / "state/weft"

    Path("weft-state/events.db").touch()
    assert state_folder() == Path("weft-state")


def test_a_relative_folder_of_the_environment_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert state_folder() == tmp_path / ".local/state/weft"


def test_a_running_service_is_found_until_it_ends() -> None:
    folder = state_folder()
    folder.mkdir(parents=True)

    with publish_address(folder, "http://127.0.0.1:7931"):
        assert running_url() == "http://127.0.0.1:7931" == Connection().url
        assert (folder / ADDRESS).stat().st_mode & 0o077 == 0

    assert not running_url()
    assert Connection().url == DEFAULT_URL


def test_an_address_is_not_believed_once_its_process_has_gone() -> None:
    folder = state_folder()
    folder.mkdir(parents=True)
    for left in (
        {"url": "http://127.0.0.1:1", "pid": os.getpid(), "began": "1"},
        {"url": "http://127.0.0.1:1", "pid": 4_000_000_000, "began": ""},
        {"url": "http://127.0.0.1:1", "pid": None},
        ["no mapping"],
    ):
        (folder / ADDRESS).write_text(json.dumps(left))
        assert not running_url()


def test_what_the_environment_names_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = state_folder()
    folder.mkdir(parents=True)
    monkeypatch.setenv("WEFT_URL", "http://elsewhere:1")

    with publish_address(folder, "http://127.0.0.1:7931"):
        assert Connection().url == "http://elsewhere:1"
