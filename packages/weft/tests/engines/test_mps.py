"""The folder of the MPS daemon is this user's alone, or it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.core.errors import EngineError
from weft.engines.machine.mps import Mps, make_own

WORDS = ("-d ", " quit")  # the tool's arguments, and what it reads


def test_it_is_made_private_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "pipes"
    was = os.umask(0)
    try:
        make_own(folder)
    finally:
        os.umask(was)

    make_own(folder)

    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(EngineError, match="mode 755, not ours alone") as refused:
        make_own(folder)

    assert "mps=false" in refused.value.hint


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "pipes").symlink_to(tmp_path / "target")

    with pytest.raises(EngineError, match="is no folder"):
        make_own(tmp_path / "pipes")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)

    with pytest.raises(EngineError, match="of user 12345"):
        make_own(folder)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control tool that only writes down what it is asked, in this file."""
    tool, asked = tmp_path / "bin" / "nvidia-cuda-mps-control", tmp_path / "asked"
    tool.parent.mkdir()
    pipe = "$(basename $(dirname $CUDA_MPS_PIPE_DIRECTORY))"
    tool.write_text(f'#!/bin/sh\necho "{pipe} $CUDA_VISIBLE_DEVICES $* $(cat)" >> "{asked}"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    return asked


def test_no_client_is_made_of_a_daemon_in_a_foreign_folder(tmp_path: Path, asked: Path) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(EngineError, match="mode 777"):
        Mps(tmp_path, folder).env()

    assert not asked.exists()
    folder.rmdir()
    pipe = Path(Mps(tmp_path, folder).env()["CUDA_MPS_PIPE_DIRECTORY"])
    assert (pipe.name, pipe.parent.parent) == ("pipe-0", folder)


def test_each_gpu_has_a_daemon_and_all_are_ended(tmp_path: Path, asked: Path) -> None:
    mps = Mps(tmp_path, tmp_path / "pipes")

    clients = [mps.env(gpu) for gpu in (0, 3, 3)]
    mps.end()

    name = Path(clients[0]["CUDA_MPS_PIPE_DIRECTORY"]).parent.name
    lines = asked.read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {gpu} {what}" for gpu in (0, 3) for what in WORDS)
    assert {client["CUDA_VISIBLE_DEVICES"] for client in clients} == {"0"}
    assert clients[0]["CUDA_MPS_PIPE_DIRECTORY"] != clients[1]["CUDA_MPS_PIPE_DIRECTORY"]


def test_two_services_of_a_user_have_daemons_of_their_own(tmp_path: Path, asked: Path) -> None:
    ada, bob = (Mps(state(tmp_path, name), tmp_path / "pipes") for name in ("ada", "bob"))
    ada.env()
    bobs = Path(bob.env()["CUDA_MPS_PIPE_DIRECTORY"]).parent.name

    ada.end()

    assert [line for line in asked.read_text().splitlines() if bobs in line] == [f"{bobs} 0 -d "]


def test_the_next_engine_asks_for_no_client_of_a_daemon_that_quits(
    tmp_path: Path, asked: Path
) -> None:
    before = Path(Mps(tmp_path, tmp_path / "pipes").env()["CUDA_MPS_PIPE_DIRECTORY"]).parent.name
    after = Path(Mps(tmp_path, tmp_path / "pipes").env()["CUDA_MPS_PIPE_DIRECTORY"]).parent.name

    assert asked.read_text().splitlines() == [
        f"{before} 0 -d ",
        f"{before} 0  quit",
        f"{after} 0 -d ",
    ]


def state(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name
