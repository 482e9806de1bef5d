"""The folders that a person's client of Slurm makes for a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from weft.cli.connect.batch_client import make_folders
from weft.cli.connect.client import ServiceClient
from weft.service.responses.answers import FoldersToMake


class Service:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def post(self, _kind: object, path: str, body: Any) -> None:
        self.heard.append((path, body))


def made(*folders: Path) -> Service:
    service = Service()
    wanted = FoldersToMake(secret="s", folders=[str(folder) for folder in folders])
    make_folders(cast("ServiceClient", service), wanted, lambda _: None)
    return service


def test_folders_have_the_group_of_the_room_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o3733)
    before = os.umask(0o077)
    try:
        assert not made(tmp_path / "a", tmp_path / "b").heard
        assert not made(tmp_path / "a").heard  # asked for once more
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    for name in ("a", "b"):
        facts = (tmp_path / name).stat()
        assert (facts.st_mode & 0o7777, facts.st_gid) == (0o2770, tmp_path.stat().st_gid)


def test_a_client_reports_what_it_cannot_make(tmp_path: Path) -> None:
    ((path, body),) = made(tmp_path / "gone" / "a").heard
    assert path == "/batch-jobs/report"
    assert body["secret"] == "s"
    assert "cannot be made" in body["refusal"]
