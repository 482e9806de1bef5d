"""Machines and devices that get no jobs: where starts fail, with faults, or held by others.

A fold over events: a node is suspect once that many different jobs in a row died on it within
seconds of their start, jobs that are not known to fail elsewhere as well and that are of
different people: no one person's jobs, whatever is wrong with them, set a machine aside. People
whose jobs failed so on several machines are no witnesses before one of theirs has run well, so that
two users whose jobs cannot run put one machine at most out of use.

One that its driver says not to use is set aside alone, and stays so until a person looks.

What was seen is kept on disk: a driver forgets it when the machine starts again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from weft.app.serve.private_file import read_private, write_private
from weft.app.serve.rules import Quotas
from weft.core.batch_work import NO_CLIENT
from weft.core.events.event import Decided, Event, Failed, Finished, Started, StartFailed
from weft.core.model.job import JobId, NodeId
from weft.core.protocols import DeviceHealth, Engine
from weft.runtime.loop.background import Repeated
from weft.stack.windows import ASIDE

IN_A_ROW, PEOPLE = 3, 2
AT_START_S = 60.0


@dataclass(slots=True)
class BadNodes:
    """The faults that each node did to jobs lately."""

    owner_of: Callable[[JobId], str]
    in_a_row: int = IN_A_ROW
    at_start_s: float = AT_START_S
    _on: dict[JobId, NodeId | None] = field(default_factory=dict)
    _since: dict[JobId, float] = field(default_factory=dict)
    _owners: dict[JobId, str] = field(default_factory=dict)
    _failed: defaultdict[NodeId, dict[JobId, str]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _guilty: defaultdict[JobId, set[NodeId]] = field(default_factory=lambda: defaultdict(set))
    _unlucky: defaultdict[str, set[NodeId]] = field(default_factory=lambda: defaultdict(set))

    def check_event(self, at: float, event: Event) -> NodeId | None:
        """Take in one event; the node that has become suspect by it."""
        match event:
            case Decided(_, changes):
                for job, to in changes.items():
                    if to is not None:
                        nodes = {part.node for part in to.slices}
                        self._on[job] = nodes.pop() if len(nodes) == 1 else None
            case Started(job):
                self._since[job] = at
            case Finished(job):
                if (node := self._on.pop(job, None)) is not None:
                    self._note_well(node, job)
                self._since.pop(job, None)
            case Failed(job, _, reason) | StartFailed(job, _, reason):
                return self._note_failure(at, job, reason)
        return None

    def why(self, node: NodeId) -> str:
        """A sentence on what happened there."""
        jobs = self._failed[node]
        last = next(reversed(jobs.values()), "").partition("\n")[0][:120]
        people = len({self._owners[job_id] for job_id in jobs})
        return f"{len(jobs)} jobs of {people} people failed at their start, the last: {last}"

    def forget(self, node: NodeId) -> None:
        """A person says that it is well."""
        self._failed.pop(node, None)

    def _note_failure(self, at: float, job: JobId, reason: str) -> NodeId | None:
        node, since = self._on.get(job), self._since.pop(job, at)
        if node is None or NO_CLIENT in reason:
            return None
        if at - since > self.at_start_s:
            self._note_well(node, job)  # it ran for a while
            return None
        owner = self._owners[job] = self.owner_of(job)
        self._guilty[job].add(node)
        self._unlucky[owner].add(node)
        self._failed[node][job] = reason
        jobs = [job_id for job_id in self._failed[node] if self._is_witness(job_id)]
        owners = {self._owners[job_id] for job_id in jobs}
        return node if len(jobs) >= self.in_a_row and len(owners) >= PEOPLE else None

    def _note_well(self, node: NodeId, job: JobId) -> None:
        """The machine works, and so do jobs of whose this is."""
        self._failed.pop(node, None)
        self._unlucky.pop(self.owner_of(job), None)

    def _is_witness(self, job: JobId) -> bool:
        """True if it failed on one machine alone, as all that its owner submitted of late."""
        return len(self._guilty[job]) == 1 and len(self._unlucky[self._owners[job]]) <= 1


log = logging.getLogger(__name__)


class Change(Protocol):
    """Sets other rules, and says why."""

    def __call__(self, quotas: Quotas, *, why: str = "") -> Awaitable[None]: ...


FAULTS_FILE = "faults.json"


class _Windows(Repeated):
    """Keeps windows in step with what an engine says about its devices."""

    every_s = 3.0

    def __init__(self, engine: Engine, quotas: Callable[[], Quotas], change: Change) -> None:
        self._engine, self._quotas, self._change = engine, quotas, change


class DeviceFaults(_Windows):
    """Moves jobs off devices with faults; one that was put to use again needs a new fault."""

    trouble = "devices with faults are not set aside yet"

    def __init__(
        self, engine: Engine, quotas: Callable[[], Quotas], change: Change, state: Path | None
    ) -> None:
        super().__init__(engine, quotas, change)
        self._file = None if state is None else state / FAULTS_FILE
        stored = None if self._file is None else read_private(self._file)
        self._faults: dict[str, str] = {str(name): str(why) for name, why in (stored or {}).items()}

    async def poll(self) -> None:
        """Set aside what has a new fault; use again what has none after all."""
        quotas, faults, news = self._quotas(), dict(self._faults), list[str]()
        for node, devices in self._engine.health.devices.items():
            for device in devices:
                name = f"{node}:{device.gpu}"
                if device.fault and faults.get(name) != device.fault:
                    faults[name] = device.fault
                    news.append(device.fault)
                    quotas = quotas.with_window(f"{ASIDE}{name}", name)
                    log.warning(
                        "gpu=%s set aside: %s; `weft undrain %s` uses it again",
                        *(name, device.fault, node),
                    )
                elif device.withdrawn and faults.get(name) == device.withdrawn:
                    del faults[name]
                    quotas = quotas.without_windows(f"{ASIDE}{name}")
                    log.warning("gpu=%s is used again, it was not to blame", name)
                elif not device.fault and f"{ASIDE}{name}" not in quotas.windows:
                    faults.pop(name, None)  # the same again is a new fault
        if faults != self._faults:
            self._keep(faults)
            await self._change(quotas, why="; ".join(dict.fromkeys(news)))

    def use_again(self, node: NodeId) -> None:
        """A person uses it again, whatever is wrong with its devices now."""
        others = {
            name: why for name, why in self._faults.items() if not name.startswith(f"{node}:")
        }
        devices = self._engine.health.devices.get(node, ())
        self._keep(
            {
                **others,
                **{f"{node}:{device.gpu}": device.fault for device in devices if device.fault},
            }
        )

    def _keep(self, faults: dict[str, str]) -> None:
        if self._file is not None and faults != self._faults:
            write_private(self._file, faults)
        self._faults = faults

    def devices(self, node: NodeId) -> list[DeviceHealth]:
        """The health of a machine's devices, with why those that are set aside are."""
        aside = {name for name in self._quotas().windows if name.startswith(f"{ASIDE}{node}:")}
        seen = {device.gpu: device for device in self._engine.health.devices.get(node, ())}
        for name in aside:
            gpu = int(name.rpartition(":")[2])
            known = seen.get(gpu, DeviceHealth(gpu))
            fault = known.fault or self._faults.get(name.removeprefix(ASIDE), "")
            seen[gpu] = DeviceHealth(gpu, fault, known.notes, aside=True)
        return [seen[gpu] for gpu in sorted(seen)]


TAKEN, CLOSED, POOL = "taken:", "closed:", "pool:"  # names of windows that no person wrote


class TakenDevices(_Windows):
    """Keeps windows in step with what an engine sees of others: jobs, reservations, tenants' pools.

    After `close` windows stay as they are until the next start.
    """

    trouble = "what jobs outside Weft hold is not recorded yet"

    async def poll(self) -> None:
        """Open and end windows as those jobs come and go."""
        quotas = self._quotas()
        health = self._engine.health
        wanted = {f"{TAKEN}{node}": text for node, text in health.taken.items()}
        wanted |= {f"{CLOSED}{name}": text for name, text in health.closings.items()}
        wanted |= {f"{POOL}{tenant}": text for tenant, text in health.pools.items()}
        ours = (TAKEN, CLOSED, POOL)
        present = {name: text for name, text in quotas.windows.items() if name.startswith(ours)}
        if wanted == present:
            return
        log.info("kept for others or by them: %s", ", ".join(wanted.values()) or "nothing")
        quotas = quotas.without_windows(*present)
        for name, text in wanted.items():
            quotas = quotas.with_window(name, text)
        await self._change(quotas)
