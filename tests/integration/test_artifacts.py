"""Files that jobs leave, and attempts to get at others by them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.engines.left_files import HOSTILE, KEPT, LEAVES, LEFT_OUT
from tests.integration.serving import API, bearer, serving, token
from weft.cli.main import cli
from weft.core.errors import WeftError
from weft.engines.machine import artifacts
from weft.engines.machine.artifacts import ArtifactFolder
from weft_client import Client
from weft_client.errors import Misused
from weft_client.fetching import place_of

ENGINE = "local:cpu=true,slots=2,warm=false"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with what `LEAVES` leaves, and a secret beside it."""
    (tmp_path / "secret").write_text("hush")
    assert os.system(f"cd {tmp_path} && {LEAVES}") == 0
    return tmp_path


def test_plain_files_of_the_jobs_user_are_listed_and_nothing_else(folder: Path) -> None:
    files, left_out = ArtifactFolder(folder, "out", os.geteuid()).list_files()

    assert {file.path: file.size for file in files} == KEPT
    assert left_out == LEFT_OUT
    assert ArtifactFolder(folder, "out", os.geteuid() + 1).list_files() == ([], 6)
    assert ArtifactFolder(folder, "out/up", os.geteuid()).list_files() == ([], 1)
    assert ArtifactFolder(folder, "nothing", os.geteuid()).list_files() == ([], 0)


@pytest.mark.parametrize("path", [*HOSTILE, "out/best", "out/none", "out/a\0b", "out/" + "x" * 300])
def test_no_path_leads_out_of_the_folder(folder: Path, path: str) -> None:
    with pytest.raises(WeftError):
        ArtifactFolder(folder, "out", os.geteuid()).read_piece(path, 0)


def test_files_of_others_are_not_opened(folder: Path) -> None:
    with pytest.raises(WeftError, match="no plain file of the job's user"):
        ArtifactFolder(folder, "out", os.geteuid() + 1).read_piece("out/best/model.pt", 0)


def test_below_a_volume_no_link_is_followed_and_no_other_file_system_counts(folder: Path) -> None:
    device = folder.stat().st_dev
    (folder.parent / "linked").symlink_to(folder)

    def listed(workdir: Path, device: int) -> tuple[int, int]:
        place = ArtifactFolder(workdir, "out", os.geteuid(), folder.parent, device)
        files, left_out = place.list_files()
        return len(files), left_out

    assert listed(folder, device) == (len(KEPT), LEFT_OUT)
    assert listed(folder, device + 1) == (0, LEFT_OUT + len(KEPT))
    assert listed(folder.parent / "linked", device) == (0, 1)


def test_a_list_is_bounded_by_the_characters_of_its_paths(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MOST_TEXT", 20)
    files, left_out = ArtifactFolder(folder, "out", os.geteuid()).list_files()

    assert (len(files), left_out) == (1, LEFT_OUT + 1)


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", "", "a\nb", "linked/file"])
def test_copies_are_made_below_their_folder_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "linked").symlink_to("/")

    with pytest.raises(Misused):
        place_of(tmp_path, name)
    assert place_of(tmp_path, "a/b") == tmp_path / "a" / "b"


def test_what_a_job_left_is_fetched_by_the_client(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    with serving(ENGINE, tmp_path / "state", "fifo") as service:
        address = str(service.base_url)
        with Client(address) as client:
            fields = {"artifacts": "out/", "workdir": str(tmp_path)}
            job = client.submit({"run": LEAVES, **fields}, name="leaves")
            bare = client.submit({"run": "true", "workdir": str(tmp_path)}, name="bare")
            assert job.wait().state == bare.wait().state == "succeeded"
            listed = job.artifacts()
            to = tmp_path / "copies"
            best = job.fetch("out/best", to)
            (to / "out" / "a b.txt").symlink_to(tmp_path / "secret")
            every = job.fetch(to=to)
            with pytest.raises(Misused, match="has left no 'out/other'"):
                job.fetch("out/other", to)
        env, runner = {"WEFT_URL": address, "COLUMNS": "100", "NO_COLOR": "1"}, CliRunner()
        shown = runner.invoke(cli, ["fetch", job.id, "--list"], env=env)
        typed = runner.invoke(
            cli, ["fetch", job.id, "out/best/", "--to", str(tmp_path / "c")], env=env
        )
        missed = runner.invoke(cli, ["fetch", job.id, "oops"], env=env)
        refused = [
            service.get(f"{API}/jobs/{job.id}/artifacts/file", params={"path": path}).status_code
            for path in HOSTILE
        ]
        nothing = service.get(f"{API}/jobs/{bare.id}/artifacts")
        climbs = service.post(f"{API}/jobs", json={"run": "true", "artifacts": "../up"})
        admin = token(service, "admin")
        viewer = bearer(token(service, "viewer", "default", by=admin))
        seen = service.get(f"{API}/jobs/{job.id}/artifacts", headers=viewer)

    assert listed == KEPT
    assert [path.relative_to(to).as_posix() for path in best] == ["out/best/model.pt"]
    assert {path.relative_to(to).as_posix(): path.read_bytes() for path in every} == {
        "out/a b.txt": b"x",
        "out/best/model.pt": b"1234",
    }
    assert (tmp_path / "secret").read_text() == "hush"  # the link was replaced, not followed
    assert set(refused) <= {404, 422}
    assert "out/best/model.pt" in shown.output
    assert "4 left out" in shown.output
    assert (tmp_path / "c" / "out" / "best" / "model.pt").read_bytes() == b"1234", typed.output
    assert missed.exit_code != 0
    assert (nothing.status_code, climbs.status_code, seen.status_code) == (404, 422, 403)
    assert "artifacts: out" in nothing.json()["hint"]
