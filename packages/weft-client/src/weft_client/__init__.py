"""Submit jobs and functions to a Weft scheduler from Python.

with Client() as client:
job = client.submit(["python", "train.py"], gpus=1)
print(client.submit(train, 0.1, epochs=3, gpus=2).result())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft_client.errors import (
    ClientError,
    JobCancelled,
    JobFailed,
    Misused,
    NoResult,
    Refused,
    ServiceFailed,
    Unreachable,
    Untrusted,
)
from weft_client.version import __version__

if TYPE_CHECKING:
    from weft_client.aio import AsyncClient as AsyncClient
    from weft_client.client import Client as Client
    from weft_client.job import Explanation as Explanation
    from weft_client.job import Job as Job
    from weft_client.job import JobStatus as JobStatus
    from weft_client.job import Sweep as Sweep

HOMES = {
    "AsyncClient": "aio",
    "Client": "client",
    "Explanation": "job",
    "Job": "job",
    "JobStatus": "job",
    "Sweep": "job",
}
__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Explanation",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobStatus",
    "Misused",
    "NoResult",
    "Refused",
    "ServiceFailed",
    "Sweep",
    "Unreachable",
    "Untrusted",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # HTTP and certificates load on first use, so that an import takes no time.
    if name not in HOMES:
        raise AttributeError(f"module 'weft_client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"weft_client.{HOMES[name]}"), name)
