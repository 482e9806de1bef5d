from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
import torch

from weft_train.base import fence
from weft_train.base.errors import Fenced
from weft_train.checkpoints.files import FOOTER, Checkpoints, load, verify
from weft_train.errors import BadCheckpoint


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_is_loaded_and_the_last_two_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "deep" / "er")
    for step in (1, 2, 30):
        path = kept.save({"weight": torch.full((3,), float(step)), "any": {"x": [1]}}, step, 0)
    newest, warnings = kept.find_newest()

    assert newest == path
    assert warnings == []
    state = load(path)
    assert state["weight"].tolist() == [30.0] * 3
    assert state["any"] == {"x": [1]}
    assert verify(path)["step"] == 30
    assert names(kept.directory) == ["step-000000000002.ckpt", "step-000000000030.ckpt"]


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "tail"])
def test_a_spoilt_newest_is_set_aside_and_the_one_before_it_is_used(
    tmp_path: Path, how: str
) -> None:
    kept = Checkpoints(tmp_path)
    before = kept.save({"n": 1}, 1, 0)
    newest = kept.save({"n": 2}, 2, 0)
    size = newest.stat().st_size
    with newest.open("r+b") as file:
        if how == "flip":
            file.seek(size // 2)
            byte = file.read(1)
            file.seek(size // 2)
            file.write(bytes([byte[0] ^ 1]))
        elif how == "tail":
            file.seek(0, os.SEEK_END)
            file.write(b"more")
        else:
            file.truncate(size - FOOTER if how == "cut" else 0)

    usable, warnings = kept.find_newest()

    assert usable == before
    assert load(before)["n"] == 1
    assert len(warnings) == 1
    assert "step-000000000002.ckpt" in warnings[0]
    assert names(tmp_path) == ["step-000000000001.ckpt", "step-000000000002.ckpt.corrupt"]


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").find_newest() == (None, [])


def test_a_full_disk_leaves_the_old_one_and_no_rubbish(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save({"n": 1}, 1, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            kept.save({"n": torch.zeros(1_000_000)}, 2, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == ["step-000000000001.ckpt"]


def test_another_attempts_directory_is_not_written(tmp_path: Path) -> None:
    fence.claim(tmp_path, 2)

    with pytest.raises(Fenced):
        Checkpoints(tmp_path, attempt=1).save({}, 1, 0)

    assert names(tmp_path) == ["OWNER"]


def test_a_file_that_is_not_ours_is_named(tmp_path: Path) -> None:
    path = tmp_path / "step-000000000001.ckpt"
    path.write_bytes(b"x" * 1000)

    with pytest.raises(BadCheckpoint, match=r"step-000000000001.ckpt is cut short or altered"):
        load(path)


def test_a_checkpoint_with_the_old_name_of_the_random_states_still_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft_train.checkpoints.files.FORMAT", 1)
    path = Checkpoints(tmp_path).save({"chance": [{"torch": 5}]}, 1, 0)
    monkeypatch.undo()

    assert verify(path)["format"] == 1
    assert load(path) == {"rng": [{"torch": 5}]}
