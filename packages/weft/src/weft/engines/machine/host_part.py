"""An attempt's part of the host: CPU cores, memory, and memory of its devices. Pure."""

from __future__ import annotations

from math import ceil, isclose

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job
from weft.frozen import frozen

Notice = tuple[str, str]  # level and text
INFO, WARNING = "info", "warning"


@frozen
class HostRequest:
    """The cores and memory that a job asks for itself; 0 leaves it to others."""

    cpus: float = 0.0
    mem_gb: float = 0.0


NOTHING_ASKED = HostRequest()


@frozen
class HostPart:
    """The part of its node that an attempt may use.

    `mem_gb` is a limit, 0 for none; beyond `soft_gb` memory is taken back where that can be done.
    `asked` says that the CPUs are someone's wish, not just in proportion to devices.
    """

    cpus: float
    mem_gb: float = 0.0
    soft_gb: float = 0.0
    asked: bool = False


@frozen
class Means:
    """The limits that this machine lets us apply: control groups, binding to cores, MPS.

    `waits` says that GPU memory is waited for, so that none need be limited for others' sake.
    """

    cpu_controller: bool = False
    memory_controller: bool = False
    pin: bool = True
    mps: bool = False
    gpus: bool = False
    waits: bool = False


def read_asked(job: Job) -> HostRequest:
    """The cores and memory that a job asks for itself."""
    return HostRequest(job.cpus or 0.0, job.mem_gb or 0.0)


def host_part(asked: HostRequest, on: Allocation, node: Node) -> HostPart:
    """The part that a policy set other than in proportion to devices.

    Else what the job asked for.
    """
    cpus, mem = sum(part.cpus for part in on.slices), sum(part.mem_gb for part in on.slices)
    fair = on.gpus / node.gpus
    set_cpus = _set(cpus, node.cpus * fair, on.sharing.share)
    set_mem = _set(mem, node.mem_gb * fair, on.sharing.share)
    wanted = cpus if set_cpus else asked.cpus or cpus or node.cpus * fair * on.sharing.share
    if shares_host(on) and not set_cpus and not asked.cpus:
        wanted = node.cpus * fair
    return HostPart(
        cpus=wanted,
        mem_gb=asked.mem_gb,
        soft_gb=mem if set_mem else 0.0,
        asked=set_cpus or asked.cpus > 0.0,
    )


def shares_host(on: Allocation) -> bool:
    """True if a job has the cores of its devices together with its neighbours there.

    Jobs that share a device by its memory wait in turns for it: cores of one's own would stand
    idle meanwhile. A job that asked for a part of a device has that part of the host.
    """
    return on.sharing.share < 1.0 and on.sharing.gpu_mem_gb is not None


def check_host(job: Job, node: Node) -> None:
    """Raise InvalidConfig for a job that asks for more than `node` has."""
    for name, wanted, there, what in (
        ("cpus", job.cpus, node.cpus, "CPU cores"),
        ("mem_gb", job.mem_gb, node.mem_gb, "GB of memory"),
    ):
        if wanted is not None and not wanted <= there:
            raise InvalidConfig(
                f"job {job.id!r}: {name} is {wanted:g}; this machine has {there:.4g} {what}",
                hint=f"ask for at most {there:.4g}, or leave {name} out",
            )


def notices(part: HostPart, gpu_mem_gb: float, means: Means) -> tuple[Notice, ...]:
    """Notices for people about limits that cannot be applied here as they were meant."""
    notices: list[Notice] = []
    cpus, soft_gb = part.cpus, part.soft_gb
    if part.asked and not means.cpu_controller:
        if not means.pin:
            notices.append(
                (WARNING, f"{cpus:g} CPUs are not enforced: pin=false, no CPU cgroup here")
            )
        elif not isclose(cpus, round(cpus)) or cpus < 1.0:
            whole = max(ceil(cpus), 1)
            notices.append((INFO, f"{cpus:g} CPUs are rounded up to {whole}: no CPU cgroup here"))
    if soft_gb and not means.memory_controller:
        notices.append((INFO, f"{soft_gb:g} GB of memory are not enforced: no memory cgroup here"))
    if gpu_mem_gb and means.gpus and not means.mps:
        notices.append(
            (INFO, f"{gpu_mem_gb:.3g} GB of GPU memory bind torch, JAX and TensorFlow only: no MPS")
        )
    return tuple(notices)


def _set(given: float, fair: float, share: float) -> bool:
    """True if a part is other than in proportion to devices, or to the share of them."""
    return given > 0.0 and not any(
        isclose(given, usual, rel_tol=1e-6) for usual in (fair, fair * share)
    )
