"""Devices that are not given to jobs: those with faults, and those that jobs of others hold.

One that its driver says not to use is set aside alone, and stays so until a person looks.

What was seen is kept on disk: a driver forgets it when the machine starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from weft.app.serve.private_file import read_private, write_private
from weft.app.serve.rules import Quotas
from weft.core.model.job import NodeId
from weft.core.protocols import DeviceHealth, Engine
from weft.runtime.loop.background import Repeated

log = logging.getLogger(__name__)

Change = Callable[[Quotas], Awaitable[None]]
ASIDE = "aside:"  # names of windows that no person wrote
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

    async def look(self) -> None:
        """Set aside what has a new fault; use again what has none after all."""
        quotas, faults = self._quotas(), dict(self._faults)
        for node, devices in self._engine.health.devices.items():
            for device in devices:
                name = f"{node}:{device.gpu}"
                if device.fault and faults.get(name) != device.fault:
                    faults[name] = device.fault
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
            await self._change(quotas)

    def forgive(self, node: NodeId) -> None:
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
        """How the devices of a machine are, with why those that are set aside are."""
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

    async def look(self) -> None:
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
