"""Throw-away users of this machine, for tests that run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.wire.identity import Identity

ANN, BOB, STAFF = 61001, 61002, 61500
AS_ROOT = os.geteuid() == 0

USERS = f"""
[a]
uid = {ANN}
groups = [{STAFF}]
umask = "027"

[b]
uid = {BOB}
"""


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can walk to, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="weft-users-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def own_folder(parent: Path, uid: int) -> Path:
    """A folder of one user, closed to all others."""
    folder = parent / f"home-{uid}"
    folder.mkdir(mode=0o700)
    os.chown(folder, uid, uid)
    return folder


def python_as(uid: int, code: str, *args: str) -> str:
    """What Python code prints that becomes another user first.

    It does so itself, after its imports: the interpreter may lie where only root can read.
    """
    drop = f"os.setgroups([]); os.setresgid({uid}, {uid}, {uid}); os.setresuid({uid}, {uid}, {uid})"
    command = [sys.executable, "-c", f"import os, socket, sys\n{drop}\n{code}", *args]
    done = subprocess.run(command, text=True, capture_output=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def system_user(name: str) -> Identity:
    """One that every machine has, such as `nobody`."""
    entry = pwd.getpwnam(name)
    return Identity(entry.pw_uid, entry.pw_gid, name=name, umask=0o027)
