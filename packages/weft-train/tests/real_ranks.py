"""Real ranks in real processes, forked from a warm server so that each starts in no time."""

from __future__ import annotations

import multiprocessing as mp
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from weft_train.base.messages import FROM_AGENT, FromAgent, FromRank, Welcome, from_rank

_WARM = mp.get_context("forkserver")
_WARM.set_forkserver_preload(["weft_train.plans.planned", "torch.distributed", "torch._dynamo"])

LIMIT_S = 600.0  # on a busy machine
HERE = Path(__file__).resolve()
# In an unpacked sdist and in the repository.
EXAMPLES = next(
    folder for up in (1, 3) if (folder := HERE.parents[up] / "examples" / "train").is_dir()
)


def start(
    target: Callable[..., None], ranks: int, env: Mapping[str, str], *args: Any
) -> list[BaseProcess]:
    """`target(*args)` in `ranks` processes that can find each other."""
    port = str(free_port())
    started: list[BaseProcess] = []
    for rank in range(ranks):
        own = {
            **env, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        process = _WARM.Process(target=_run, args=(target, own, args))
        process.start()
        started.append(process)
    return started


def finish(processes: list[BaseProcess], limit_s: float = LIMIT_S) -> list[int | None]:
    """Their exit codes; those that do not end in time are killed and have None."""
    until = time.monotonic() + limit_s
    for process in processes:
        process.join(max(until - time.monotonic(), 0.0))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    return codes


def _run(target: Callable[..., None], env: dict[str, str], args: tuple[Any, ...]) -> None:
    os.environ.update(env)
    import torch

    torch.set_num_threads(1)
    mp.set_start_method("fork", force=True)  # as in a script that was started by hand
    target(*args)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Return when `true` does; AssertionError after `limit_s`."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"no {what} within {limit_s:g} s"
        time.sleep(0.02)


@dataclass
class Agent:
    """The least an agent does: it listens, remembers, and speaks to every rank."""

    path: Path
    heard: list[FromRank] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines: list[socket.socket] = []
        self._lock = threading.Lock()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(self.path))
        self._door.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def send_to_rank(self, message: FromAgent) -> None:
        """To every rank that is there."""
        for line in list(self._lines):
            try:
                line.sendall(FROM_AGENT.encode(message))
            except OSError:
                self._lines = [other for other in self._lines if other is not line]

    def of(self, kind: type) -> list[Any]:
        """What was heard of one type, with all that ranks have sent by now."""
        while True:
            with self._lock:
                if not select.select([self._door, *self._lines], [], [], 0)[0]:
                    return [message for message in self.heard if isinstance(message, kind)]
            time.sleep(0.005)

    def until(self, truth: Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait for something that is to be heard."""
        end = time.monotonic() + limit_s
        while not truth():
            assert time.monotonic() < end, self.heard[-5:]
            time.sleep(0.005)

    def _accept(self) -> None:
        while select.select([self._door], [], []):
            with self._lock:
                line, _ = self._door.accept()
                line.sendall(FROM_AGENT.encode(Welcome()))
                self._lines.append(line)
            threading.Thread(target=self._read, args=(line,), daemon=True).start()

    def _read(self, line: socket.socket) -> None:
        words, chunk = from_rank(), b"-"
        while chunk:
            select.select([line], [], [])
            with self._lock:
                try:
                    chunk = line.recv(65_536)
                except OSError:
                    chunk = b""
                self.heard.extend(words.feed(chunk))
                if not chunk:
                    line.close()
                    self._lines = [other for other in self._lines if other is not line]
