"""Folders that a service shares with one user, without being root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.base.errors import WireError
from weft.wire.attempt import read_json, write_whole
from weft.wire.shared_files import let_walk, private_mode, share_folder, shared_with

ANN = 61001


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    try:
        share_folder(shared, ANN)
    except WireError as error:
        pytest.skip(str(error))
    return shared


def test_a_folder_says_whom_it_is_shared_with(folder: Path, tmp_path: Path) -> None:
    assert shared_with(folder) == ANN
    assert shared_with(tmp_path) is None
    inside = folder / "inside"
    inside.mkdir()
    assert shared_with(inside) == ANN
    let_walk(tmp_path, ANN)
    assert shared_with(tmp_path) is None


def test_files_are_for_both_there_and_for_one_elsewhere(folder: Path, tmp_path: Path) -> None:
    for where, mode in ((folder, 0o660), (tmp_path, 0o600)):
        write_whole(where / "file", {"a": 1})
        assert (where / "file").stat().st_mode & 0o777 == mode == private_mode(where)


def test_a_file_of_ours_with_a_second_name_is_not_read_there(folder: Path, tmp_path: Path) -> None:
    """Whoever shares the folder could have made it."""
    write_whole(tmp_path / "secret", {"a": 1})
    os.link(tmp_path / "secret", folder / "link")

    assert read_json(tmp_path / "secret") == {"a": 1}
    with pytest.raises(WireError, match="link that another user made"):
        read_json(folder / "link")
