"""Folders that a service shares with one user, without being root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.base.errors import WireError
from weft.wire import shared_files
from weft.wire.attempt import read_json, write_whole
from weft.wire.shared_files import (
    HANDED,
    keeps_lists,
    let_walk,
    private_mode,
    share_folder,
    shared_with,
)

ANN = 61001


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    if not keeps_lists(shared):
        pytest.skip("the file system keeps no access control lists")
    share_folder(shared, ANN)
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


def test_without_lists_folders_are_walked_through_and_closed_until_they_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "keeps_lists", lambda _: False)
    for share, mode in ((let_walk, 0o711), (share_folder, 0o700)):
        share(tmp_path, ANN)
        assert tmp_path.stat().st_mode & 0o777 == mode
        assert shared_with(tmp_path) is None


@pytest.mark.parametrize(("who", "mode"), [("service", 0o666), ("person", 0o660)])
def test_a_folder_that_was_handed_over_is_its_users_and_its_groups(
    who: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both see whose it is; the umask does not close a file to the other, and a link is refused."""
    handed = tmp_path / "handed"
    handed.mkdir()
    handed.chmod(HANDED)
    assert shared_with(handed) is None  # ours alone
    (tmp_path / "secret").write_text("{}")
    os.link(tmp_path / "secret", handed / "link")
    facts, before = handed.stat(), os.umask(0o077)
    if who == "service":
        monkeypatch.setattr(os, "geteuid", lambda: facts.st_uid + 1)
    else:
        monkeypatch.setattr(os, "getegid", lambda: facts.st_gid + 1)
        monkeypatch.setattr(os, "getgroups", list)

    try:
        file = shared_files.make_file(handed / "file", os.O_WRONLY)
        again = os.fstat(file).st_mode & 0o777
        os.close(file)
    finally:
        os.umask(before)

    assert shared_with(handed) == facts.st_uid
    assert private_mode(handed) == mode
    if who == "person":
        assert again == mode
        with pytest.raises(WireError, match="link that another user made"):
            read_json(handed / "link")
    handed.chmod(0o2775)
    assert shared_with(handed) is None
