"""Checks that the service does its work: the engine, log, lease, decisions, and its own loop.

Alive means that the parts without which it can do nothing still move; ready, that it does all it
promises. The service manager is notified: systemd by its own protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping

from weft.app.serve.live import Live
from weft.app.serve.standby import STALE_S
from weft.frozen import frozen
from weft.runtime.loop.background import end_task

log = logging.getLogger(__name__)

STUCK_S = 60.0  # a write or a decision that takes longer is not coming back
LATE_S = 5.0
BEAT_S = 1.0
NOTIFY = "NOTIFY_SOCKET"


@frozen
class PartCheck:
    """One part: whether it is well, what is wrong, and whether nothing goes without it."""

    ok: bool
    message: str = ""
    vital: bool = False


class Watchdog:
    """Looks at one service; `beat` is how late its loop is."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.late_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def checks(self) -> dict[str, PartCheck]:
        """Every part."""
        driver = self._live.driver
        engine = driver.engine.health
        writing_s, deciding_s = driver.store.appends.busy_s(), driver.decisions.took.busy_s()
        trouble = driver.trouble if engine.ok else ""
        silent_s = self._live.leading.unrenewed_s  # a standby may have taken it meanwhile
        return {
            "loop": PartCheck(
                self.late_s < LATE_S, f"{self.late_s:.1f} s late" * (self.late_s > 1.0)
            ),
            "engine": PartCheck(engine.ok, engine.reason),
            "log": PartCheck(writing_s < STUCK_S, _since("writes", writing_s), vital=True),
            "lease": PartCheck(
                silent_s < STALE_S, f"not renewed for {silent_s:.0f} s" * (silent_s >= STALE_S)
            ),
            "decisions": PartCheck(
                not trouble and deciding_s < STUCK_S, trouble or _since("decides", deciding_s)
            ),
        }

    @property
    def alive(self) -> bool:
        """True if a restart would not help."""
        return all(check.ok for check in self.checks().values() if check.vital)

    @property
    def ready(self) -> bool:
        """True if every part of the service works."""
        return all(check.ok for check in self.checks().values())

    def open(self, environment: Mapping[str, str] = os.environ) -> None:
        """Begin to look, and to tell systemd; from the event loop."""
        environment = dict(environment)  # as at our start: later changes are for other processes
        notify_systemd(environment, "READY=1\nSTATUS=serving")
        self._task = asyncio.create_task(self._beat(environment))

    async def close(self, environment: Mapping[str, str] = os.environ) -> None:
        """Say that we leave; nothing is said after that."""
        await end_task(self._task)
        notify_systemd(environment, "STOPPING=1")

    async def _beat(self, environment: Mapping[str, str]) -> None:
        every_s = min(BEAT_S, watchdog_s(environment) / 2.0)
        was_ready = True
        while True:
            began = time.monotonic()
            await asyncio.sleep(every_s)
            self.late_s = max(time.monotonic() - began - every_s, 0.0)
            if self.alive:
                notify_systemd(environment, "WATCHDOG=1")
            if self.ready != was_ready:
                was_ready = not was_ready
                bad = [
                    f"{name}: {check.message}"
                    for name, check in self.checks().items()
                    if not check.ok
                ]
                status = "; ".join(bad).replace("\n", " ")[:500] or "serving"
                log.log(logging.INFO if was_ready else logging.WARNING, "status: %s", status)
                notify_systemd(environment, f"STATUS={status}")


def watchdog_s(environment: Mapping[str, str]) -> float:
    """Within how many seconds systemd wants to hear of us; infinite if it does not."""
    text = environment.get("WATCHDOG_USEC", "")
    meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 1e6 if text.isdigit() and int(text) and meant else float("inf")


def notify_systemd(environment: Mapping[str, str], message: str) -> None:
    """Send a message to the service manager, if it listens; a missed message is not an error."""
    address = environment.get(NOTIFY, "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        out.sendto(message.encode(), address)


def _since(does: str, seconds: float) -> str:
    return f"{does} since {seconds:.0f} s" if seconds > 1.0 else ""
