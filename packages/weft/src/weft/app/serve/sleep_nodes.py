"""Nodes of a live service that are put to sleep and woken: `weft serve --sleep-nodes`.

A node that sleeps is drained, then the admin's command (or the cluster's own) switches it off; to
wake it another command is run, and it is used again after its boot time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.app.serve.private_file import write_private
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import NodeId
from weft.formulas.node_sleeper import NodeSleeper, SleepRule
from weft.frozen import frozen
from weft.runtime.loop.background import Repeated
from weft.runtime.loop.driver import Driver
from weft.wire.ending import end_process

log = logging.getLogger(__name__)

EVERY_S, LEAST_S = 10.0, 0.05  # of cluster time, and of the wall clock
LIMIT_S = 120.0  # for a command
FILE = "asleep.json"
NODE, DRAINED = "{node}", "drained:"
# What clusters bring themselves: a command for sleep, one to wake.
BY_ENGINE: Mapping[str, tuple[str, str]] = {
    "slurm": (
        "scontrol update NodeName={node} State=POWER_DOWN",
        "scontrol update NodeName={node} State=POWER_UP",
    ),
    "kubernetes": ("kubectl cordon {node}", "kubectl uncordon {node}"),
}


@frozen
class SleepSettings:
    """Settings of sleeping nodes: `spare` idle ones stay awake, `boot_s` is the time to come back.

    `sleep` and `wake` are commands with `{node}`; without them nodes are drained alone, or by what
    their cluster has for it.
    """

    spare: int
    boot_s: float = 300.0
    sleep: str = ""
    wake: str = ""

    def __post_init__(self) -> None:
        if self.spare < 0 or self.boot_s < 0.0:
            raise InvalidConfig(
                f"sleep nodes: spare={self.spare}, boot_s={self.boot_s:g}",
                hint="both are 0 or more",
            )
        if bool(self.sleep) != bool(self.wake):
            raise InvalidConfig(
                "nodes that a command puts to sleep need a command to wake them",
                hint="give both --sleep-command and --wake-command",
            )
        for text in (self.sleep, self.wake):
            if text and NODE not in text:
                raise InvalidConfig(f"the command {text!r} has no {NODE} in it")

    def on(self, engine: str) -> SleepSettings:
        """The settings with the commands of an engine, where the admin gave none."""
        if self.sleep or engine not in BY_ENGINE:
            return self
        return SleepSettings(self.spare, self.boot_s, *BY_ENGINE[engine])


@dataclass
class SleepNodes(Repeated):
    """Follows a driver; what sleeps is kept in `folder`, so that a restart wakes it."""

    every_s = EVERY_S
    trouble = "nodes are not put to sleep or woken"
    waits_first = True
    driver: Driver
    settings: SleepSettings
    folder: Path | None = None
    sleeper: NodeSleeper = field(init=False)
    _drained: dict[NodeId, Node] = field(default_factory=dict)  # by a person, while they slept

    def __post_init__(self) -> None:
        rule = SleepRule(spare=self.settings.spare)
        self.sleeper = NodeSleeper(rule, self.settings.boot_s)

    def open(self) -> None:
        """Restore the list of sleeping nodes, and begin."""
        words = dict(self.driver.nodes())
        drained = {node.id: node for node, word in words.items() if word == "drained"}
        for name in self._read():
            node = drained.get(NodeId(name.removeprefix(DRAINED)))
            if node is not None and name.startswith(DRAINED):
                self._drained[node.id] = node
            elif node is not None:
                self.sleeper.asleep[node.id] = (node, self.driver.now)
        super().open()

    def keep_drained(self, node: NodeId) -> None:
        """A person drained it: it stays unused until a person undrains it, whichever jobs wait."""
        sleeper = self.sleeper
        away = sleeper.asleep.pop(node, None) or sleeper.booting.pop(node, None)
        if away is not None:
            self._drained[node] = away[0]
            self._write()

    async def wake(self, node: NodeId) -> bool:
        """Begin to boot a node that a person wants to use; False if it does not sleep."""
        sleeper = self.sleeper
        slept = sleeper.asleep.pop(node, None)
        sleeping = self._drained.pop(node, None) or (slept and slept[0])
        if sleeping is not None:
            sleeper.booting[node] = (sleeping, self.driver.now + self.settings.boot_s)
            self._write()
            await self._call(self.settings.wake, sleeping)
        return node in sleeper.booting

    @property
    def away(self) -> set[str]:
        """Nodes that sleep or boot, which are drained for that alone."""
        return {*self.sleeper.asleep, *self.sleeper.booting}

    @property
    def pause_s(self) -> float:
        """Seconds between polls, so that the cluster's time between them is always equal."""
        return max(EVERY_S / self.driver.engine.speed, LEAST_S)

    async def poll(self) -> None:
        """Put to sleep, wake, and use again what has booted."""
        driver, sleeper = self.driver, self.sleeper
        for node in sleeper.take_booted(driver.now):
            await driver.undrain(node.id)
        turn = sleeper.step(driver.now, driver.scheduler.state)
        for node in turn.sleep:
            await driver.drain(node.id, why="it had nothing to do and sleeps")
        if turn.sleep or turn.wake:
            self._write()
        for nodes, command in ((turn.sleep, self.settings.sleep), (turn.wake, self.settings.wake)):
            for node in nodes:
                await self._call(command, node)

    async def _call(self, command: str, node: Node) -> None:
        """Run the admin's command; one that fails is said, and the node comes back by itself."""
        words = [word.replace(NODE, node.id) for word in shlex.split(command)]
        log.info("node=%s %s", node.id, " ".join(words) or "drained, or used again")
        if not words:
            return
        child = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, output = await asyncio.wait_for(child.communicate(), LIMIT_S)
        except TimeoutError:
            await end_process(child)
            log.warning("node=%s %r took longer than %g s", node.id, command, LIMIT_S)
            return
        if child.returncode:
            output_text = output.decode(errors="replace").strip()[-500:]
            log.warning(
                "node=%s %r exited with %s: %s", node.id, command, child.returncode, output_text
            )

    def _read(self) -> list[str]:
        if self.folder is None or not (self.folder / FILE).exists():
            return []
        names: list[str] = json.loads((self.folder / FILE).read_text())
        return names

    def _write(self) -> None:
        if self.folder is not None:
            names = [*sorted(self.away), *(f"{DRAINED}{node}" for node in self._drained)]
            write_private(self.folder / FILE, names)
