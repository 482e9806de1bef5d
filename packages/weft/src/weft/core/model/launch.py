"""The way a real job is run: its command and what it may use. Simulated jobs have none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from weft.core.model.search import SearchTerms
from weft.frozen import frozen
from weft.run_terms import RunTerms

SHORTEST_SECRET = 4
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)(KEY|KEYS|AUTH)(_|$)", re.IGNORECASE)


class SoftwareKind(StrEnum):
    """The source of a job's programs and packages."""

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
class Launch(RunTerms):
    """Everything that an engine needs to run a job, beyond the devices it was given.

    `command` is run in `workdir` without a shell, with `env` on top of the harmless part of the
    service's environment. `checkpoint` is where the job keeps what it restarts from, empty for none
    of its own. A failed attempt is repeated `retries` times, first after `backoff_s` seconds and
    then twice as long each time; with `retry_on`, only if it ended with one of these exit codes
    (-9 is SIGKILL).
    `software` is the environment that it runs in, None for the service's own. Values of variables
    that `secrets` names, or whose names look secret, are never shown.
    `parameters` are its values in a sweep, for people: they are in the command and `env` already.
    `search` is how that sweep searches, if it does. `notify` are the ways in which its user wants
    to hear of its end. `artifacts` is a folder below `workdir` whose files may be fetched.
    `account` is whose rights it has on the machine, by the service's list of users; empty means
    its tenant's. `owner` is whose mailbox hears of it: the name of the token that submitted it,
    or whom an admin named; empty where that is unknown. Only the service sets these two.
    CPU cores and memory are the job's (`Job.cpus`, `Job.mem_gb`).
    """

    command: tuple[str, ...]
    workdir: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    checkpoint: str = ""
    retries: int = 3
    backoff_s: float = 2.0
    account: str = ""
    retry_on: tuple[int, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    software: Software | None = None
    secrets: tuple[str, ...] = ()
    search: SearchTerms | None = None
    notify: tuple[str, ...] = ()
    artifacts: str = ""
    owner: str = ""

    def is_secret(self, name: str) -> bool:
        """True if a variable's value is hidden wherever it appears."""
        return name in self.secrets or SECRET.search(name) is not None

    def secret_values(self) -> tuple[str, ...]:
        """Values to hide, longest first; what is too short to be one is left out."""
        values = {
            value
            for name, value in self.env.items()
            if self.is_secret(name) and len(value) >= SHORTEST_SECRET
        }
        return tuple(sorted(values, key=len, reverse=True))
