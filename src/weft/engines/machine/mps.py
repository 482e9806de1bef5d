"""NVIDIA's Multi-Process Service: kernels of several processes on one GPU at the same time.

The daemon is this user's own: its pipes are in a folder of his. It outlives the engine, because
running jobs are its clients, and is ended when the engine closes and no job is left.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
from pathlib import Path

from weft.core.errors import EngineError

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 30.0
PRIVATE = 0o700


class Mps:
    """The daemon of this user, started when it is first asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(f"/tmp/weft-mps-{os.getuid()}")  # noqa: S108 - short, and 0700
        self._control = shutil.which(CONTROL)
        self._started = False

    @property
    def there(self) -> bool:
        """Whether the daemon is installed."""
        return self._control is not None

    def env(self) -> dict[str, str]:
        """What makes a process its client; the daemon runs on return. Empty where it is not."""
        if not self.there:
            return {}
        if not self._started:
            self._start()
        return self._pipes()

    def end(self) -> None:
        """End the daemon; for when no job is left."""
        if self._started:
            self._run([], text="quit\n")
            self._started = False

    def _pipes(self) -> dict[str, str]:
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self._folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
        }

    def _start(self) -> None:
        make_own(self._folder)
        for name in ("pipe", "log"):
            (self._folder / name).mkdir(exist_ok=True)
        done = self._run(["-d"])
        # A daemon of an earlier engine serves as well; it says so and the new one leaves.
        if done.returncode != 0 and "already running" not in (done.stdout + done.stderr).lower():
            raise EngineError(
                f"the MPS daemon does not start: {(done.stderr or done.stdout).strip()[:300]}",
                hint=f"see {self._folder / 'log'}, or leave sharing to the driver with mps=false",
            )
        self._started = True
        log.info("mps=%s started", self._folder)

    def _run(self, arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
        assert self._control is not None
        return subprocess.run(  # noqa: S603 - the driver's own tool
            [self._control, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={**os.environ, **self._pipes()},
        )


def make_own(folder: Path) -> None:
    """A folder that is this user's alone; EngineError if somebody made another one there.

    Its parent may be anybody's to write: whoever owns the folder could talk to our jobs.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise EngineError(f"cannot make {folder} for MPS: {error.strerror}") from error
    found = folder.lstat()  # a link is not followed: it may lead anywhere
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and mode == PRIVATE:
        return
    what = "a folder" if stat.S_ISDIR(found.st_mode) else "no folder"
    raise EngineError(
        f"{folder} is {what} of user {found.st_uid} with mode {mode:03o}, not ours alone (700)",
        hint="remove it if nobody needs it, or leave sharing to the driver with mps=false",
    )
