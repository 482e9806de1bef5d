"""Slurm's reservations: nodes that are kept for others, or for no one, from one time to another.

Slurm starts no job there that might still run when one begins, and none without a time limit at
all. So jobs get a time limit that ends before, and Weft keeps its plans off these nodes in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from weft.core.errors import EngineError
from weft.core.model.job import NodeId
from weft.engines.fleet.port import Closing
from weft.engines.slurm.answers import SlurmNode, expand_hosts
from weft.engines.slurm.clients import Clients

QUESTION = ("scontrol", "-o", "show", "reservation")  # times are in seconds, see `Clients`
ASK_S = 15.0
LEAD_S = 180.0  # jobs have left so long before Slurm's own time: what they have to save in


@dataclass
class Reservations:
    """Those there are, less the one that is `ours`."""

    ours: str = ""
    closings: dict[NodeId, tuple[Closing, ...]] = field(default_factory=dict)
    own: frozenset[NodeId] | None = None  # the nodes of `ours`
    _asked: float = -inf

    async def refresh(self, clients: Clients) -> None:
        """Ask for them, unless that was done lately."""
        now = time.monotonic()
        if now - self._asked < ASK_S:
            return
        text = await clients.ask(*QUESTION)
        self._asked = now
        closings: dict[NodeId, list[Closing]] = {}
        self.own = None
        for closing, nodes in read_reservations(text):
            if closing.name == self.ours:
                self.own = frozenset(nodes)
                continue
            early = Closing(closing.name, closing.start - LEAD_S, closing.end)
            for node in nodes:
                closings.setdefault(node, []).append(early)
        self.closings = {node: tuple(some) for node, some in closings.items()}

    def minutes_left(self, nodes: Iterable[NodeId], now: float) -> int:
        """How long a job may run there before one begins; 0 if none is announced."""
        starts = [c.start for node in nodes for c in self.closings.get(node, ()) if c.end > now]
        return max(int((min(starts) + LEAD_S - now) // 60), 1) if starts else 0

    def keep_own(self, nodes: Mapping[NodeId, SlurmNode]) -> dict[NodeId, SlurmNode]:
        """Those that may be used: of our reservation alone, where we have one."""
        if self.ours and self.own is None:
            raise EngineError(
                f"Slurm has no reservation {self.ours!r} with nodes",
                hint="`scontrol show reservation` lists them: --engine slurm:reservation=NAME",
            )
        return {name: node for name, node in nodes.items() if self.own is None or name in self.own}

    def are_closed(self, node: NodeId, now: float) -> bool:
        """Whether a node is kept for others, or will be at once."""
        return any(closing.start <= now < closing.end for closing in self.closings.get(node, ()))


def read_reservations(text: str) -> Sequence[tuple[Closing, list[NodeId]]]:
    """The answer to `QUESTION`."""
    reservations = []
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        nodes = [NodeId(name) for name in expand_hosts(fields.get("Nodes", ""))]
        times = fields.get("StartTime", ""), fields.get("EndTime", "")
        if fields.get("Nodes", "(null)") != "(null)" and all(at.isdigit() for at in times):
            start, end = map(float, times)
            reservations.append((Closing(fields["ReservationName"], start, end), nodes))
    return reservations
