"""Which running job may share its devices with a newcomer."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.policies.lucid.scores import MOST

LARGEST = 8  # gangs above one node are never packed
SPAN = 2.0  # a newcomer may be at most this much longer than its host


@frozen
class Candidate:
    """A job as the binder sees it: size, sharing score, peak memory, predicted GPU-seconds.

    `device_gb` is the memory of each device that a host is on.
    """

    id: JobId
    gpus: int
    score: int
    mem_gb: float
    gpu_s: float
    device_gb: float = inf


def first_host(new: Candidate, hosts: Iterable[Candidate]) -> Candidate | None:
    """The first host, in order of start, that passes every rule; None if there is none."""
    for host in hosts:
        if (
            new.gpus == host.gpus <= LARGEST
            and new.mem_gb + host.mem_gb < host.device_gb
            and new.score + host.score <= MOST
            and new.gpu_s <= SPAN * host.gpu_s
        ):
            return host
    return None
