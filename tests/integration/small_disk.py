"""A real disk that is soon full: a small tmpfs, of our own or in a namespace of our own."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S

INSIDE = "WEFT_TEST_IN_NAMESPACE"


def on_a_small_disk(check: Callable[[Path], None], folder: Path, kb: int) -> None:
    """Call `check` with a folder on a disk of `kb` kB.

    Who may not mount runs this same test again as root of a user namespace; where that is not
    allowed either, it is skipped.
    """
    disk = folder / "disk"
    disk.mkdir()
    if not _mounts(disk, kb):
        _again_inside()
        return
    try:
        check(disk)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path, leave_kb: int = 0) -> Path:
    """Take all space of `disk` but a little, by a file; removing it gives the space back."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        out.truncate(max(out.tell() - leave_kb * 1024, 0))
    return filler


def _mounts(disk: Path, kb: int) -> bool:
    if shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={kb}k", "weft-test", str(disk)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _again_inside() -> None:
    unshare = shutil.which("unshare")
    enter = [unshare or "unshare", "-Urm"]
    if (
        INSIDE in os.environ
        or unshare is None
        or subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0
    ):
        pytest.skip("a small tmpfs can be mounted neither as this user nor in a namespace")
    test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
    done = subprocess.run(
        [*enter, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, INSIDE: "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
