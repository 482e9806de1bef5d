"""The engine's end of `weft.node.warm`: starts it, and asks it for agents once it is ready."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ASK_S = 2.0
AGAIN_S = 30.0


class WarmServer:
    """One server process; it may not be ready yet, or may have died: then nothing is forked."""

    def __init__(
        self, path: str, errors: Path, modules: Sequence[str], env: Mapping[str, str]
    ) -> None:
        self._path, self._errors, self._modules, self._env = path, errors, modules, env
        self._start()

    def _start(self) -> None:
        self._began, me = time.monotonic(), str(os.getpid())
        Path(self._path).unlink(missing_ok=True)
        with self._errors.open("wb") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own server
                [sys.executable, "-m", "weft.node.warm", self._path, me, *self._modules],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._env,
            )

    def look(self) -> None:
        """Start it again if it has died, but not over and over."""
        if self._process.poll() is not None and time.monotonic() - self._began > AGAIN_S:
            self._start()

    @property
    def ready(self) -> bool:
        """Whether it has imported everything and listens."""
        return self._process.poll() is None and Path(self._path).exists()

    def fork(self, folder: Path) -> bool:
        """Have an agent forked for the attempt in `folder`; False if it must be started cold."""
        if not self.ready:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(ASK_S)
                line.connect(self._path)
                line.sendall(f"{folder}\n".encode())
                return line.recv(8) == b"ok\n"
        except OSError:
            # It may or may not have forked. Two agents do no harm: one of them gets the claim.
            return False

    def close(self) -> None:
        """End it; the agents it forked go on."""
        self._process.kill()
        self._process.wait()
        Path(self._path).unlink(missing_ok=True)
