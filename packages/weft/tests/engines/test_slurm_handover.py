"""Folders that persons' clients make, and what of them is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.base.errors import WireError
from weft.core.errors import InvalidConfig
from weft.engines.slurm import handover as module
from weft.engines.slurm.handover import find_unshared, make_room, put_in_place
from weft.wire.attempt import AGENT_LOG, SPEC
from weft.wire.identity import Identity
from weft.wire.shared_files import HANDED

ME = os.getuid()


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A part's folder with its description."""
    folder = tmp_path / "1/a1"
    folder.mkdir(parents=True)
    (folder / SPEC).write_text("{}")
    return folder


def made(path: Path, mode: int = HANDED) -> Path:
    path.mkdir()
    os.chown(path, -1, os.getegid())
    path.chmod(mode)
    return path


def test_a_folder_takes_the_place_of_ours_with_what_was_there(ours: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    assert not put_in_place(fresh, ours, ME)  # it is not there yet
    number = made(fresh).stat().st_ino

    assert put_in_place(fresh, ours, ME)

    assert ours.stat().st_ino == number
    assert {file.name for file in ours.iterdir()} == {SPEC, AGENT_LOG}
    assert all(file.stat().st_mode & 0o777 == 0o666 for file in ours.iterdir())
    assert [*ours.parent.iterdir()] == [ours]


def test_it_goes_on_where_a_service_ended_and_waits_for_what_came_meanwhile(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, rename = made(tmp_path / "fresh"), Path.rename

    def end(path: Path, target: Path) -> Path:
        if path.name == SPEC:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", end)
        with pytest.raises(KeyboardInterrupt):
            put_in_place(fresh, ours, ME)

    def interrupt(path: Path, target: Path) -> Path:
        if target == ours:
            (ours / "stop.json").write_text("{}")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupt)
        assert not put_in_place(fresh, ours, ME)

    assert put_in_place(fresh, ours, ME)
    assert {file.name for file in ours.iterdir()} == {SPEC, AGENT_LOG, "stop.json"}


@pytest.mark.parametrize("what", ["link", "file", "open", "of another"])
def test_what_is_not_as_it_was_asked_for_is_not_taken(
    what: str, ours: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh"
    if what == "link":
        fresh.symlink_to(tmp_path)
    elif what == "file":
        fresh.write_text("")
    else:
        made(fresh, 0o2777 if what == "open" else HANDED)

    with pytest.raises(WireError, match="not as it was asked for"):
        put_in_place(fresh, ours, ME + (what == "of another"))

    assert [file.name for file in ours.iterdir()] == [SPEC]
    assert not put_in_place(fresh, ours, ME)  # it may be made once more


def test_folders_of_ours_alone_are_those_to_be_handed_over(ours: Path, tmp_path: Path) -> None:
    folders = (ours, tmp_path / "none")
    assert find_unshared(folders, ME + 1) == (str(ours),)
    assert find_unshared(folders, ME) == ()


def test_no_person_is_in_the_group_of_a_service_without_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = Identity(ME + 1, 1001, (1001, os.getegid()), "ann")
    make_room(tmp_path / "room", {"vision": ann})  # the lists are what keeps them out
    monkeypatch.setattr(module, "keeps_lists", lambda _: False)

    with pytest.raises(InvalidConfig, match="'vision' is in the service's group"):
        make_room(tmp_path / "room", {"vision": ann})

    make_room(tmp_path / "room", {"vision": Identity(ME + 1, os.getegid() + 1)})
    assert (tmp_path / "room").stat().st_mode & 0o7777 == module.ROOM
