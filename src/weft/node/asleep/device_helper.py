"""A process of ours that moves what others hold on their devices to host memory, and back.

It is a process because a move takes seconds, in which the agent has to go on reading what its
ranks print, and because the driver's library does not belong into an agent.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Sequence


class DeviceHelper:
    """Runs `command suspend PID...` and `command restore PID...`, one at a time.

    It prints a JSON object: `moved`, the processes that had anything to move, and `error`, empty
    where it went well. After an error everything is where it was before.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._moved: list[int] = []
        self._restoring = False
        self.error = ""

    @property
    def there(self) -> bool:
        """Whether there is such a program here."""
        return bool(self._command)

    @property
    def busy(self) -> bool:
        """Whether something is being moved."""
        return self._process is not None

    @property
    def pids(self) -> list[int]:
        """The helper's own process."""
        return [] if self._process is None else [self._process.pid]

    def suspend(self, pids: Collection[int]) -> None:
        """Begin to move what these processes hold to host memory."""
        self._restoring = False
        self._begin("suspend", pids)

    def restore(self) -> None:
        """Begin to move it back."""
        self._restoring = True
        self._begin("restore", self._moved)

    def _begin(self, what: str, pids: Collection[int]) -> None:
        command = [*self._command, what, *map(str, pids)]
        self.error = ""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            self.error = f"{command[0]} cannot be run: {error.strerror}"

    def done(self) -> bool:
        """Whether it has come to its end, well or with an `error`."""
        process = self._process
        if process is None:
            return True
        if process.poll() is None:
            return False
        assert process.stdout is not None
        with process.stdout:
            self._read(process.stdout.read(), process.returncode)
        self._process = None
        return True

    def _read(self, text: str, code: int) -> None:
        try:
            body = json.loads(text)
            moved, self.error = [int(pid) for pid in body["moved"]], str(body["error"])
        except (ValueError, KeyError, TypeError):
            self.error = f"the driver's helper ended with exit code {code}"
            return
        if not self._restoring and not self.error:
            self._moved = moved
