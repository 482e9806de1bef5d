"""The environment every rank is started with.

    WEFT_JOB            id of the job; absent: the script runs alone
    WEFT_ATTEMPT        incarnation of the job, counted from 1
    WEFT_CHECKPOINTS    directory of its checkpoints
    WEFT_AGENT          path of its agent's Unix socket
    WEFT_COORDINATOR    path of the node's stage-token socket; absent: no tokens are asked for
    WEFT_TIER           guaranteed (if absent) or opportunistic: who goes first at tokens
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
from collections.abc import Mapping

from weft.frozen import frozen
from weft.wire.errors import WireError


@frozen
class Environment:
    """Who a process is: its job, its place in the gang, and whom it may talk to.

    Paths are empty where there is nobody to talk to.
    """

    job: str = ""
    attempt: int = 0
    checkpoints: str = ""
    agent: str = ""
    coordinator: str = ""
    tier: str = "guaranteed"
    weight: float = 1.0
    phase: float = 0.0
    devices: tuple[int, ...] = ()
    kind: str = ""
    nodes: int = 1
    cpus: float = 0.0
    gpu_mem_gb: float = 0.0
    plan: str = ""
    most_ranks: int = 0
    member: int = -1
    join: int = 0
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    master_addr: str = ""
    master_port: int = 0

    @classmethod
    def read(cls, env: Mapping[str, str] | None = None) -> Environment:
        """From `env`, or from this process's variables."""
        env = os.environ if env is None else env
        world = _whole(env, "WORLD_SIZE", 1)
        rank = _whole(env, "RANK", 0)
        if not 0 <= rank < world:
            raise WireError(f"RANK is {rank}, expected 0 to WORLD_SIZE - 1 = {world - 1}")
        return cls(
            job=env.get("WEFT_JOB", ""),
            attempt=_whole(env, "WEFT_ATTEMPT", 0),
            checkpoints=env.get("WEFT_CHECKPOINTS", ""),
            agent=env.get("WEFT_AGENT", ""),
            coordinator=env.get("WEFT_COORDINATOR", ""),
            tier=env.get("WEFT_TIER") or "guaranteed",
            weight=_number(env, "WEFT_WEIGHT", 1.0),
            phase=_part(env, "WEFT_PHASE"),
            devices=_wholes(env, "WEFT_DEVICES"),
            kind=env.get("WEFT_KIND", ""),
            nodes=_whole(env, "WEFT_NODES", 1),
            cpus=_number(env, "WEFT_CPUS", 0.0),
            gpu_mem_gb=_number(env, "WEFT_GPU_MEM_GB", 0.0),
            plan=env.get("WEFT_PLAN", ""),
            most_ranks=_whole(env, "WEFT_MOST_RANKS", 0),
            member=_whole(env, "WEFT_MEMBER", -1),
            join=_whole(env, "WEFT_JOIN", 0),
            rank=rank,
            world_size=world,
            local_rank=_whole(env, "LOCAL_RANK", rank),
            local_world_size=_whole(env, "LOCAL_WORLD_SIZE", world),
            master_addr=env.get("MASTER_ADDR", ""),
            master_port=_whole(env, "MASTER_PORT", 0),
        )

    def variables(self) -> dict[str, str]:
        """What `read` reads; a launcher merges it into a rank's environment."""
        values = {
            "WEFT_JOB": self.job,
            "WEFT_ATTEMPT": str(self.attempt),
            "WEFT_CHECKPOINTS": self.checkpoints,
            "WEFT_AGENT": self.agent,
            "WEFT_COORDINATOR": self.coordinator,
            "WEFT_TIER": self.tier,
            "WEFT_WEIGHT": str(self.weight),
            "WEFT_PHASE": str(self.phase) if self.phase else "",
            "WEFT_DEVICES": ",".join(map(str, self.devices)),
            "WEFT_KIND": self.kind,
            "WEFT_NODES": str(self.nodes),
            "WEFT_CPUS": f"{self.cpus:g}" if self.cpus else "",
            "WEFT_GPU_MEM_GB": f"{self.gpu_mem_gb:g}" if self.gpu_mem_gb else "",
            "WEFT_PLAN": self.plan,
            "WEFT_MOST_RANKS": str(self.most_ranks or ""),
            "WEFT_MEMBER": str(self.member) if self.member >= 0 else "",
            "WEFT_JOIN": str(self.join or ""),
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port or ""),
        }
        return {name: value for name, value in values.items() if value}

    @property
    def number(self) -> int:
        """What the agent knows this process by: the rank that it was started with."""
        return self.member if self.member >= 0 else self.rank

    @property
    def device(self) -> int:
        """The node's number of this rank's device; its local rank if nobody said."""
        return self.gang_devices[self.local_rank]

    @property
    def gang_devices(self) -> tuple[int, ...]:
        """The node's numbers of the devices of this job's ranks on this node, by local rank."""
        if len(self.devices) >= self.local_world_size:
            return self.devices
        return tuple(range(self.local_world_size))


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


def _part(env: Mapping[str, str], name: str) -> float:
    text = env.get(name, "")
    try:
        part = float(text) if text else 0.0
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected a number") from error
    if not 0.0 <= part < 1.0:
        raise WireError(f"{name} is {text!r}, expected at least 0 and less than 1")
    return part


def _wholes(env: Mapping[str, str], name: str) -> tuple[int, ...]:
    text = env.get(name, "")
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise WireError(f"{name} is {text!r}, expected whole numbers like 0,1") from error
