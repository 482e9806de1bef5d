"""The folder in which a service of one's own keeps its state, and the address it left there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HERE, LOG = Path("weft-state"), "events.db"
ADDRESS = "address.json"
PRIVATE = 0o600


def state_folder() -> Path:
    """The folder of a service that names none: `./weft-state` if a service used it, or the user's.

    The user's is `weft` below XDG_STATE_HOME, by default `~/.local/state`.
    """
    return HERE if (HERE / LOG).exists() else user_folder()


def user_folder() -> Path:
    """The folder for state of this user, wherever a command is typed."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # noqa: PTH117 - "" is no path; the standard ignores relative ones
        base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - expanduser of Path may raise
    return Path(base) / "weft"


@contextmanager
def publish_address(folder: Path, url: str) -> Iterator[None]:
    """Publish a service's address in its folder while it runs, for commands without WEFT_URL."""
    path = folder / ADDRESS
    mine = json.dumps({"url": url, "pid": os.getpid(), "began": _began(os.getpid())})
    with suppress(OSError):  # a full disk, or one that cannot be written to
        path.touch(PRIVATE)
        path.write_text(mine)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text() == mine:
                path.unlink()


def running_url(folder: Path | None = None) -> str:
    """The address of a service of this user that runs here; empty if there is none."""
    for place in (HERE, user_folder()) if folder is None else (folder,):
        try:
            if (place / ADDRESS).stat().st_uid != os.getuid():
                continue  # a folder of another user's, which must not be given our token
            left = json.loads((place / ADDRESS).read_text())
            if left["began"] and left["began"] == _began(int(left["pid"])):
                return str(left["url"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ""


def _began(pid: int) -> str:
    """The start of a process, which tells it from a later one of the same number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if stat[0] in "ZX" else stat[19]
    except (OSError, IndexError):
        return ""
