"""The environment every rank is started with.

    WEFT_JOB            id of the job; absent: the script runs alone
    WEFT_ATTEMPT        incarnation of the job, counted from 1
    WEFT_CHECKPOINTS    directory of its checkpoints
    WEFT_AGENT          path of its agent's Unix socket
    WEFT_COORDINATOR    path of the node's stage-token socket; absent: no tokens are asked for
    WEFT_TIER           guaranteed (if absent) or opportunistic: which jobs go first at tokens
    WEFT_WEIGHT         its share of contended tokens (1 if absent)
    WEFT_PHASE          its place in the period of those that take turns, 0 to 1 (0 if absent)
    WEFT_DEVICES        the node's device numbers of this job, by local rank: "2,3"
    WEFT_KIND           the devices' kind, for instance h200 or cpu
    WEFT_NODES          nodes the gang is spread over (1 if absent)
    WEFT_CPUS           CPU cores of this rank; OMP_NUM_THREADS is set to it, rounded down
    WEFT_MOST_RANKS     ranks that the job may come to have as it trains; absent: none may join
    WEFT_MEMBER         what its agent knows this process by; RANK if absent
    WEFT_JOIN           the epoch that this process is to join; absent: it begins with the others
    WEFT_WATCH          1: count the steps of a program that says nothing (`weft.node.watcher`)
    WEFT_GPU_MEMORY_FRACTION  the part of its device's memory that torch may take; absent: all
    WEFT_GPU_MEM_GB     its claim on the memory of its device; absent: all of it
    WEFT_PLAN           its execution plan, for instance tp2-zero1-gc; absent: its own choice

and torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import WireError


def _text(env: Mapping[str, str], name: str, default: str) -> str:
    return env.get(name) or default


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected a whole number") from error


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        if not text:
            return default
        number = float(text)
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected a number") from error
    if not 0.0 < number < float("inf"):
        raise WireError(f"{name} is {text!r}, expected a positive number")
    return number


def _part(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        part = float(text) if text else default
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected a number") from error
    if not 0.0 <= part < 1.0:
        raise WireError(f"{name} is {text!r}, expected at least 0 and less than 1")
    return part


def _wholes(env: Mapping[str, str], name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    text = env.get(name, "")
    try:
        return tuple(int(part) for part in text.split(",")) if text else default
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected whole numbers like 0,1") from error


def _variable(
    name: str,
    default: Any,
    read: Callable[[Mapping[str, str], str, Any], Any] = _text,
    write: Callable[[Any], str] = str,
    *,
    always: bool = False,
) -> Any:
    """A field with the variable that it is read from; at its default it is left out.

    With `always` it is written whatever it is.
    """
    return field(
        default=default, metadata={"variable": name, "read": read, "write": write, "always": always}
    )


def _commas(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


@dataclass(frozen=True, slots=True)
class Environment:
    """The job of a process, its place in the gang, and the addresses that it may talk to.

    Paths are empty where there is no agent to talk to.
    """

    job: str = _variable("WEFT_JOB", "")
    attempt: int = _variable("WEFT_ATTEMPT", 0, _whole, always=True)
    checkpoints: str = _variable("WEFT_CHECKPOINTS", "")
    agent: str = _variable("WEFT_AGENT", "")
    coordinator: str = _variable("WEFT_COORDINATOR", "")
    tier: str = _variable("WEFT_TIER", "guaranteed", always=True)
    weight: float = _variable("WEFT_WEIGHT", 1.0, _number, always=True)
    phase: float = _variable("WEFT_PHASE", 0.0, _part)
    devices: tuple[int, ...] = _variable("WEFT_DEVICES", (), _wholes, _commas)
    kind: str = _variable("WEFT_KIND", "")
    nodes: int = _variable("WEFT_NODES", 1, _whole, always=True)
    cpus: float = _variable("WEFT_CPUS", 0.0, _number, "{:g}".format)
    gpu_mem_gb: float = _variable("WEFT_GPU_MEM_GB", 0.0, _number, "{:g}".format)
    plan: str = _variable("WEFT_PLAN", "")
    most_ranks: int = _variable("WEFT_MOST_RANKS", 0, _whole)
    member: int = _variable("WEFT_MEMBER", -1, _whole)
    join: int = _variable("WEFT_JOIN", 0, _whole)
    rank: int = _variable("RANK", 0, _whole, always=True)
    world_size: int = _variable("WORLD_SIZE", 1, _whole, always=True)
    local_rank: int = _variable("LOCAL_RANK", 0, _whole, always=True)
    local_world_size: int = _variable("LOCAL_WORLD_SIZE", 1, _whole, always=True)
    master_addr: str = _variable("MASTER_ADDR", "")
    master_port: int = _variable("MASTER_PORT", 0, _whole)

    @classmethod
    def read(cls, env: Mapping[str, str] | None = None) -> Environment:
        """Read the settings from `env`, or from this process's variables."""
        env = os.environ if env is None else env
        rank, world = _whole(env, "RANK", 0), _whole(env, "WORLD_SIZE", 1)
        if not 0 <= rank < world:
            raise WireError(f"RANK is {rank}, expected 0 to WORLD_SIZE - 1 = {world - 1}")
        alone = {"local_rank": rank, "local_world_size": world}  # all ranks are on one node
        return cls(
            **{
                each.name: each.metadata["read"](
                    env, each.metadata["variable"], alone.get(each.name, each.default)
                )
                for each in fields(cls)
            }
        )

    def variables(self) -> dict[str, str]:
        """Return variables for `read`; a launcher merges them into a rank's environment."""
        values = asdict(self)
        return {
            each.metadata["variable"]: each.metadata["write"](values[each.name])
            for each in fields(self)
            if each.metadata["always"] or values[each.name] != each.default
        }

    @property
    def number(self) -> int:
        """The rank that this process was started with, by which the agent knows it."""
        return self.member if self.member >= 0 else self.rank

    @property
    def device(self) -> int:
        """The node's number of this rank's device; its local rank if not stated."""
        return self.gang_devices[self.local_rank]

    @property
    def gang_devices(self) -> tuple[int, ...]:
        """The node's numbers of the devices of this job's ranks on this node, by local rank."""
        if len(self.devices) >= self.local_world_size:
            return self.devices
        return tuple(range(self.local_world_size))
