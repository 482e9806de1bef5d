"""Build the engine that was named, with what its class says it wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from weft.core.errors import InvalidConfig
from weft.core.knowledge.measured import Sees
from weft.core.knowledge.programs import can_wait
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Job
from weft.core.plan.about import Wants
from weft.core.protocols import DeviceSharing, Engine
from weft.core.spec.registry import Described, build, find, read_spec
from weft.perf.replay import Replay
from weft.perf.sharing.batching import find_batching
from weft.perf.sharing.colocation import Colocated, never_waits
from weft.perf.sharing.device_models import Unordered, profile_of, unordered
from weft.perf.sharing.host import ByModel, load_shipped
from weft.wire.identity import Identity

NOBODY: Mapping[str, Identity] = MappingProxyType({})


def build_engine(
    described: Described,
    *,
    state: Path | None = None,
    slots: int = 0,
    pass_env: tuple[str, ...] = (),
    users: Mapping[str, Identity] = NOBODY,
    seconds: Callable[[], float] = time.monotonic,
    why_apart: Callable[[Job, Node], str] | None = None,
) -> Engine:
    """The engine that is described; `slots` 0 leaves their number to it.

    `seconds` is how time passes for an engine that only simulates it; `why_apart` is the reason why
    a job must not be a client of MPS, empty if it may.
    """
    spec = read_spec("engine", described)
    name, params = spec.name, spec.params
    wants: Wants = find("engine", name).wants
    given: dict[str, object] = {}
    if Wants.STATE in wants:
        if state is None:
            raise InvalidConfig(f"engine {name!r} needs a folder", hint="name one with --state")
        given["state"] = state
    if Wants.SLOTS in wants and slots and "slots" not in params:
        given["slots"] = slots
    if pass_env:
        if Wants.VARIABLES not in wants:
            raise InvalidConfig(f"engine {name!r} hands no variables on", hint="drop --pass-env")
        given["pass_env"] = pass_env
    if users:
        if Wants.USERS not in wants:
            raise InvalidConfig(f"engine {name!r} runs no jobs as users", hint="drop --users")
        given["users"] = users
    if why_apart is not None and Wants.CLIENTS in wants:
        given["why_apart"] = why_apart
    if Wants.PHYSICS in wants:
        given |= {"perf": Replay(), "coupling": couple_jobs, "seconds": seconds}
    engine: Engine = build("engine", spec, **given)
    return engine


def build_real_engine(spec: str, state: Path) -> Engine:
    """An engine for code that measures processes; InvalidConfig where there are none."""
    engine = build_engine(spec, state=state)
    if not engine.real:
        raise InvalidConfig(
            f"engine {spec!r} runs no processes, so there is nothing to measure",
            hint="choose --engine local",
        )
    return engine


def colocate_on(engine: Engine, cluster: Cluster, pairs: str) -> Colocated:
    """Beliefs about jobs that share devices; of simulated ones it is the truth."""
    if not engine.real:
        return couple_jobs(cluster, engine.sharing)
    waits = can_wait if Sees.WAITS in engine.sees else never_waits
    return Colocated(profile_of, unordered(engine.sharing, pairs), waits=waits)


def couple_jobs(cluster: Cluster, sharing: DeviceSharing) -> Colocated:
    """The effect of neighbours, host and batch on a job's speed, as in `weft simulate`."""
    return Colocated(
        profile_of,
        Unordered(sharing),
        sensitivity=ByModel.on(cluster, load_shipped()),
        batching=find_batching,
    )
