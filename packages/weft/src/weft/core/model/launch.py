"""How a real job is run: its command and what it may use. Simulated jobs have none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from weft.frozen import frozen

DEFAULT_GRACE_S = 30.0
SHORTEST_SECRET = 4
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)(KEY|KEYS|AUTH)(_|$)", re.IGNORECASE)


class Processes(StrEnum):
    """How often a command is started."""

    AUTO = "auto"  # for each GPU if it is a script that imports weft.train, else once per node
    ONE = "1"  # once per node; it sees all GPUs that the job has there
    PER_GPU = "per-gpu"


class SoftwareKind(StrEnum):
    """Where a job's programs and packages come from."""

    VENV = "venv"  # a folder with bin/activate
    CONDA = "conda"  # an environment by name or path
    UV = "uv"  # a folder with pyproject.toml, or a file of requirements
    IMAGE = "image"  # a container's


@frozen
class Software:
    """An environment that is activated before anything of a job runs; paths from its workdir.

    `volumes` are what an image's processes see: folders of the node, `/path`, `/path:/inside:ro`,
    or by name what Kubernetes keeps, `CLAIM:/inside` and `secret/NAME:/inside`.
    """

    kind: SoftwareKind
    name: str
    volumes: tuple[str, ...] = ()


@frozen
class Launch:
    """What an engine needs to run a job, beyond the devices it was given.

    `command` is run in `workdir` without a shell, as often as `processes` says, with `env` on top
    of the harmless part of the service's environment. `checkpoint` is where the job keeps what it
    restarts from, empty for none of its own. A stop may take `grace_s` seconds. A failed attempt
    is repeated `retries` times, first after `backoff_s` seconds and then twice as long each time;
    with `retry_on`, only if it ended with one of these exit codes (-9 is SIGKILL). `setup` is a
    script that runs once on each node before the command. A job that runs for `time_limit_s`
    (0: no limit) fails for good; its processes get SIGUSR1 `warn_s` before.
    With `pty` the command has a terminal that its owner can look at and type into, and ends when
    nothing was typed or printed there for `idle_s` (0: never).
    `software` is the environment that it runs in, None for the service's own. Values of variables
    that `secrets` names, or whose names look secret, are never shown.
    `parameters` are its values in a sweep, for people: they are in the command and `env` already.
    `account` is whose rights it has on the machine, by the service's list of users; empty means
    its tenant's. Only the service sets it.
    `watch` has its Python processes count their steps, where the service does.
    CPU cores and memory are the job's (`Job.cpus`, `Job.mem_gb`).
    """

    command: tuple[str, ...]
    workdir: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    checkpoint: str = ""
    grace_s: float = DEFAULT_GRACE_S
    retries: int = 3
    backoff_s: float = 2.0
    account: str = ""
    processes: Processes = Processes.AUTO
    setup: str = ""
    time_limit_s: float = 0.0
    warn_s: float = 0.0
    retry_on: tuple[int, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    software: Software | None = None
    secrets: tuple[str, ...] = ()
    pty: bool = False
    idle_s: float = 0.0
    watch: bool = True

    def is_secret(self, name: str) -> bool:
        """Whether a variable's value is hidden wherever it appears."""
        return name in self.secrets or SECRET.search(name) is not None

    def secret_values(self) -> tuple[str, ...]:
        """Values to hide, longest first; what is too short to be one is left out."""
        values = {
            value
            for name, value in self.env.items()
            if self.is_secret(name) and len(value) >= SHORTEST_SECRET
        }
        return tuple(sorted(values, key=len, reverse=True))
