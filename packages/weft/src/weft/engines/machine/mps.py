"""NVIDIA's Multi-Process Service: kernels of several processes on one GPU at the same time.

There is a daemon for each GPU, so that a fault of one client ends only those that share its GPU. A
process is the client of one daemon, so only jobs of one GPU are. Each engine has daemons of its
own, with their pipes in a folder of its own: one that was asked to quit still answers and takes no
client, and a job that finds no GPU may train on the CPU without a word. Daemons outlive the engine,
because running jobs are their clients; the next engine of the same service asks them to quit, which
they do when their last client has ended.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from weft.core.errors import EngineError
from weft.core.knowledge.programs import is_guarded
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job
from weft.core.protocols import DeviceHealth
from weft.engines.machine.devices import LocalMachine
from weft.wire.identity import Identity

log = logging.getLogger(__name__)

CONTROL = "nvidia-cuda-mps-control"
LIMIT_S = 30.0
PRIVATE = 0o700
WhyApart = Callable[[Job, Node], str]  # why a job must not be a client; empty if it may
PIPES = "CUDA_MPS_PIPE_DIRECTORY"


class Mps:
    """The daemons of an engine, each started when its GPU is first asked for.

    `state` is the engine's folder, where the next one finds what these have left. Pipes are below
    `base`, because their paths have to be short.
    """

    def __init__(self, state: Path, base: Path | None = None) -> None:
        self._base = base or Path(f"/tmp/weft-mps-{os.getuid()}")  # noqa: S108 - short, and 0700
        self._folder = self._base / secrets.token_hex(4)
        self._note = state / "mps"
        self._control = shutil.which(CONTROL)
        self._started: set[int] = set()

    @property
    def there(self) -> bool:
        return self._control is not None

    def env(self, gpu: int = 0) -> dict[str, str]:
        """Variables of a client of MPS on a GPU, whose daemon runs on return; empty without MPS.

        A daemon shows its one GPU as the first.
        """
        if not self.there:
            return {}
        if gpu not in self._started:
            self._start(gpu)
        return {**_pipes(self._folder, gpu), "CUDA_VISIBLE_DEVICES": "0"}

    def env_of(self, machine: LocalMachine, on: Allocation) -> dict[str, str]:
        """Variables that make a job of one GPU a client."""
        [gpu] = [machine.gpus[gpu].index for part in on.slices for gpu in part.gpus]
        return self.env(gpu)

    def end(self) -> None:
        """End the daemons; for when no job is left."""
        for gpu in self._started:
            self._run(gpu, [], text="quit\n")
        self._started.clear()
        self._note.unlink(missing_ok=True)

    def _start(self, gpu: int) -> None:
        if not self._started:
            self._succeed()
        for folder in _pipes(self._folder, gpu).values():
            Path(folder).mkdir(exist_ok=True)
        done = self._run(gpu, ["-d"])
        if done.returncode != 0:
            raise EngineError(
                f"the MPS daemon does not start: {(done.stderr or done.stdout).strip()[:300]}",
                hint=f"see {self._folder}/log-{gpu}, or leave sharing to the driver with mps=false",
            )
        self._started.add(gpu)
        log.info("mps=%s gpu=%d started", self._folder, gpu)

    def _succeed(self) -> None:
        """Make a folder for these daemons, and ask those of the engine before to quit."""
        make_own(self._base)
        make_own(self._folder)
        before = Path(self._note.read_text()) if self._note.exists() else None
        self._note.write_text(str(self._folder))
        for pipe in before.glob("pipe-*") if before is not None else ():
            self._run(int(pipe.name.removeprefix("pipe-")), [], text="quit\n", folder=before)

    def _run(
        self, gpu: int, arguments: list[str], text: str = "", folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        assert self._control is not None
        return subprocess.run(  # noqa: S603 - the driver's own tool
            [self._control, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            env={
                **os.environ,
                **_pipes(folder or self._folder, gpu),
                "CUDA_VISIBLE_DEVICES": str(gpu),
            },
        )


def _pipes(folder: Path, gpu: int) -> dict[str, str]:
    return {
        PIPES: str(folder / f"pipe-{gpu}"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / f"log-{gpu}"),
    }


def may_be_client(job: Job, on: Allocation, user: Identity | None) -> bool:
    """True if a job can be a client of a daemon of ours, where it runs.

    A daemon serves one user, and a container has pipes of its own.
    """
    ours = user is None or user.uid == os.getuid()
    return on.gpus == 1 and ours and is_guarded(job)


def nothing_against(job: Job, node: Node) -> str:  # noqa: ARG001 - as `WhyApart`
    """No reason against any client."""
    return ""


def note_clients(
    device: DeviceHealth, attempts: Iterable[tuple[tuple[int, ...], bool]]
) -> DeviceHealth:
    """A device with how many of its attempts are clients, if there are any."""
    here = [client for devices, client in attempts if device.gpu in devices]
    if not any(here):
        return device
    note = f"MPS: {sum(here)} of {len(here)} jobs are clients"
    return replace(device, notes=(*device.notes, note))


def make_own(folder: Path) -> None:
    """A folder that is this user's alone; EngineError if someone made another one there.

    Its parent may be writable for all: the owner of the folder could talk to our jobs.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise EngineError(f"cannot make {folder} for MPS: {error.strerror}") from error
    facts = folder.lstat()  # a link is not followed: it may lead anywhere
    mode = stat.S_IMODE(facts.st_mode)
    if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and mode == PRIVATE:
        return
    what = "a folder" if stat.S_ISDIR(facts.st_mode) else "no folder"
    raise EngineError(
        f"{folder} is {what} of user {facts.st_uid} with mode {mode:03o}, not ours alone (700)",
        hint="remove it if it is not needed, or leave sharing to the driver with mps=false",
    )
