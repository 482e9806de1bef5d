"""The folder of the MPS daemon is this user's alone, or it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.core.errors import EngineError
from weft.engines.machine.mps import Mps, make_own

PRETEND = '#!/bin/sh\ncat > "$CUDA_MPS_PIPE_DIRECTORY/asked"\n'


def test_it_is_made_private_and_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "mps"
    was = os.umask(0)
    try:
        make_own(folder)
    finally:
        os.umask(was)

    make_own(folder)

    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mps"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(EngineError, match="mode 755, not ours alone") as refused:
        make_own(folder)

    assert "mps=false" in refused.value.hint


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "mps").symlink_to(tmp_path / "target")

    with pytest.raises(EngineError, match="is no folder"):
        make_own(tmp_path / "mps")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mps"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)

    with pytest.raises(EngineError, match="of user 12345"):
        make_own(folder)


def test_no_client_is_made_of_a_daemon_in_a_foreign_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "nvidia-cuda-mps-control"
    tool.parent.mkdir()
    tool.write_text(PRETEND)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    folder = tmp_path / "mps"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(EngineError, match="mode 777"):
        Mps(folder).env()

    folder.rmdir()
    assert Mps(folder).env()["CUDA_MPS_PIPE_DIRECTORY"] == str(folder / "pipe-0")


def test_each_gpu_has_a_daemon_and_all_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "nvidia-cuda-mps-control"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $* $(cat)" >> "$CUDA_MPS_PIPE_DIRECTORY/asked"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    mps = Mps(tmp_path / "mps")

    clients = [mps.env(gpu) for gpu in (0, 3, 3)]
    mps.end()

    asked = {
        gpu: (tmp_path / "mps" / f"pipe-{gpu}" / "asked").read_text().split("\n") for gpu in (0, 3)
    }
    assert asked == {gpu: [f"{gpu} -d ", f"{gpu}  quit", ""] for gpu in (0, 3)}
    assert {client["CUDA_VISIBLE_DEVICES"] for client in clients} == {"0"}
    assert clients[0]["CUDA_MPS_PIPE_DIRECTORY"] != clients[1]["CUDA_MPS_PIPE_DIRECTORY"]
