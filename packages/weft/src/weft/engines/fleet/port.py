"""The narrow port that Slurm, Ray, Kubernetes and the like implement.

An attempt over several nodes is a gang of parts: one folder and one agent (`weft.node.agent`) a
node. A manager starts those agents and says what happened to them; everything else, from rendezvous
and graceful stops to logs and adoption, is done through the folders by `FleetEngine`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from weft.core.errors import WeftError
from weft.core.model.cluster import Node
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.about import Controls
from weft.core.protocols import DeviceSharing
from weft.frozen import frozen

Key = tuple[JobId, int]  # job and attempt


class ControllerUnreachable(WeftError):  # noqa: N818 - a state of the controller, not a failure of anyone
    """The controller cannot be reached: nothing is known, and nothing is lost for it."""


@frozen
class AttemptPart:
    """One node's share of an attempt; `folder` is where its agent finds its `spec.json`.

    `gpus` are device numbers where the manager takes them exactly, else only their number counts.
    `cpus` and `mem_gb` are 0 where not requested. `device` is what its GPUs are called there, where
    that differs between nodes. `numbers` are what its agent knows the ranks on these devices by;
    none: counted from the first part on.
    """

    node: NodeId
    gpus: tuple[int, ...]
    cpus: float
    mem_gb: float
    folder: Path
    device: str = ""
    numbers: tuple[int, ...] = ()


@frozen
class Gang:
    """All parts of an attempt, the one with rank 0 first.

    `name` is what people call the job. A `time_limit_s` of 0 is none; it bounds the attempt with
    all its grace times, so that a manager may end it then. `image` is a container's, empty for the
    nodes' own software, and sees `volumes` besides. `asked` are variables of the job that its
    manager reads as requests. `priority` is the job's class by name (`weft.core.model.job`).
    """

    job: JobId
    attempt: int
    name: str
    tenant: str
    parts: tuple[AttemptPart, ...]
    time_limit_s: float = 0.0
    grace_s: float = 30.0
    image: str = ""
    volumes: tuple[str, ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    priority: str = "normal"

    @property
    def key(self) -> Key:
        return self.job, self.attempt


class AttemptPhase(StrEnum):
    """The phase to which a manager has brought an attempt."""

    PENDING = "pending"  # accepted, not begun
    RUNNING = "running"  # some of its agents may have processes
    ENDED = "ended"  # nothing of it runs any more
    LOST = "lost"  # nothing of it runs that the manager can reach: nodes are gone


@frozen
class AttemptObservation:
    """An observation of a manager about one attempt.

    `reason` is why it is pending, ended or lost, in words for people. `code` is the exit code it
    knows, negative for a signal; None where it knows none. `nodes` are those that were lost: with
    RUNNING some of its nodes, the others still have processes.
    """

    phase: AttemptPhase
    reason: str = ""
    code: int | None = None
    nodes: tuple[NodeId, ...] = ()


class NodeHealth(StrEnum):
    """The fitness of a node for jobs."""

    UP = "up"
    DRAINING = "draining"  # what runs there may end in peace, nothing more is put there
    DOWN = "down"  # gone, with whatever ran there


@frozen
class Closing:
    """A time from which none of our jobs may use a node, and its end; seconds since the epoch."""

    name: str
    start: float
    end: float


@frozen
class Machine:
    """A node as the manager sees it; `address` is how the others reach it.

    `taken` of its GPUs are held by jobs that are not ours; `closings` are announced. It is for jobs
    of `tenant` alone, or of all where that is empty.
    """

    node: Node
    health: NodeHealth = NodeHealth.UP
    reason: str = ""
    address: str = "127.0.0.1"
    taken: int = 0
    closings: tuple[Closing, ...] = ()
    tenant: str = ""


@frozen
class Abilities:
    """The abilities of a manager; each is checked by `weft.testing.check_engine`.

    `controls` are the allocation fields that it honours, `exact_devices` says that a part has
    exactly the devices that were asked for, else they are learnt from CUDA_VISIBLE_DEVICES there.
    `limits_host` says that the manager itself holds parts to their CPUs; else the agent binds its
    ranks to cores. `sharing` is how a device serves several jobs. `images` says that it runs
    containers. `sees_state` says that agents see all of the state folder, not only `jobs` below it.
    `tokens` says that it runs a coordinator of stage tokens on a node for every file in the folder
    `tokens/NODE` of the state, which is named by a discipline. `sleeps` says that devices of a
    frozen attempt can be given to another one. `as_users` says that agents themselves run as their
    job's user, where it has one. `frees` is the least of an attempt that gives its devices back
    while the rest goes on: a single device, a part, or only all that was submitted together. `near`
    says that agents are processes of this machine: the engine itself sees whether they live, and
    the last word of an agent is the end of all that it started.
    """

    controls: Controls
    exact_devices: bool = False
    limits_host: bool = False
    sharing: DeviceSharing = "timeslicing"
    images: bool = False
    sees_state: bool = True
    tokens: bool = False
    sleeps: bool = False
    as_users: bool = False
    frees: Literal["device", "part", "gang"] = "gang"
    near: bool = False


def name_extension(job: JobId, epoch: int) -> JobId:
    """The name under which parts that join a running attempt are submitted: a gang of their own.

    No job is called so: its id would have a space.
    """
    return JobId(f"{job} +{epoch}")


def name_job(gang: JobId) -> JobId:
    """The job that a gang belongs to, be it an extension or not."""
    return JobId(gang.partition(" +")[0])


class Manager(Protocol):
    """Starts agents on nodes. Calls raise Unreachable while the controller cannot be reached.

    It finds what it started by tags that it put there, so that nothing of ours need survive. All
    of this service is distinguished from that of others by `owner`, which `open` gets.
    """

    @property
    def abilities(self) -> Abilities:
        """Its abilities; may be read after `open`."""
        ...

    async def open(self, owner: str) -> None:
        """Look around; EngineError if this can never work here. `owner` is 12 hex digits."""
        ...

    async def close(self) -> None:
        """Let go; what runs goes on running."""
        ...

    async def nodes(self) -> Sequence[Machine]:
        """Every node there is, also those that are down."""
        ...

    def check(self, job: Job) -> None:
        """Raise InvalidConfig for a job that can never run here."""
        ...

    async def submit(self, gang: Gang) -> None:
        """Run `python -m weft.node.agent FOLDER` for every part on its node, all or none.

        Idempotent: a gang whose key is there already is left as it is. EngineError or InvalidConfig
        if it is refused, with what to change.
        """
        ...

    async def cancel(self, key: Key) -> None:
        """End it at once, without grace; fine for one that is not there."""
        ...

    async def poll(self) -> Mapping[Key, AttemptObservation]:
        """All attempts of this owner in one question; ended ones may be left out."""
        ...


class Channel(Protocol):
    """The way of parts' files to their nodes and back; everything is read and written here.

    The engine writes `spec.json`, `stop.json`, `adjust.json` below its own state folder, and
    reads `events.jsonl`, `beat` and rank logs there. On a shared file system that is all.
    """

    async def send(self, files: Sequence[Path]) -> None:
        """These files, just written here, are to be seen on their nodes."""
        ...

    async def fetch(self, folders: Sequence[Path]) -> Mapping[Path, Sequence[str]]:
        """Bring what agents wrote into these folders of parts since the last time.

        Returns what a person should know about what is left out of some, once.
        """
        ...


class SharedFolder:
    """The state folder is on a file system that all nodes have: there is nothing to carry."""

    async def send(self, files: Sequence[Path]) -> None:
        """Do nothing: the files are there."""

    async def fetch(self, folders: Sequence[Path]) -> Mapping[Path, Sequence[str]]:  # noqa: ARG002 - as every channel is asked
        """Do nothing: the files are here."""
        return {}
