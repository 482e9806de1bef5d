"""Devices that are kept for a tenant, or for no one, for a while.

Written `NODE[:GPUS][@START-END][=TENANT]`, `+` between several nodes: `n1:0-1+n2@1000-2000=nlp`.
Times are in seconds since the epoch; without a tenant no job may use them. `~` in front lets jobs
that are there run to their end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, NodeId, Sharing, Slice
from weft.core.spec.part_spec import PartSpec
from weft.core.state.capacity import EPS, Capacity
from weft.frozen import frozen

NUMBER = r"\d+(?:\.\d+)?"
WRITTEN = re.compile(rf"(~?)([^@=~]+)(?:@({NUMBER})?-({NUMBER})?)?(?:=(.+))?", re.ASCII)
# Names of windows that no person wrote: drained devices, and those set aside for their faults.
DRAIN, ASIDE = "drain:", "aside:"
EXAMPLE = "for example n1@1700000000-1700003600, n1:0,2-3 or n1@-1700003600=nlp"


@frozen
class ReservedWindow:
    """Devices by node (None: all of it), from `start` until `end`, for `tenant` alone.

    With `when_done` the jobs there run to their end.
    """

    name: str
    devices: Mapping[NodeId, tuple[int, ...] | None]
    start: float = 0.0
    end: float = inf
    tenant: str = ""
    when_done: bool = False

    def holds(self, now: float) -> bool:
        return self.start <= now < self.end

    def mask(self, node: NodeId, gpus: int) -> int:
        """Its devices of a node as bits."""
        if node not in self.devices:
            return 0
        chosen = self.devices[node]
        whole = (1 << gpus) - 1
        return whole if chosen is None else whole & sum(1 << gpu for gpu in chosen)

    def touches(self, on: Allocation, cluster: Cluster) -> bool:
        """True if an allocation has some of its devices."""
        for part in on.slices:
            at = cluster.index.get(part.node)
            if at is None:
                continue
            mask = self.mask(part.node, cluster.nodes[at].gpus)
            if any(mask >> gpu & 1 for gpu in part.gpus):
                return True
        return False

    def admits(self, job: Job, now: float) -> bool:
        """True if a job may start on its devices now.

        Before it begins: a job that says how long it takes must be through by then.
        """
        if self.tenant and job.tenant == self.tenant:
            return True
        if now >= self.end:
            return True
        if now >= self.start:
            return False
        limit = job.launch.time_limit_s if job.launch is not None else 0.0
        return not limit or now + limit <= self.start

    @property
    def text(self) -> str:
        nodes = "+".join(
            node if gpus is None else f"{node}:{','.join(map(str, gpus))}"
            for node, gpus in self.devices.items()
        )
        when = ""
        if self.start > 0.0 or self.end < inf:
            start = f"{self.start:.0f}" if self.start > 0.0 else ""
            when = f"@{start}-{'' if self.end == inf else f'{self.end:.0f}'}"
        return f"{'~' * self.when_done}{nodes}{when}" + (f"={self.tenant}" if self.tenant else "")


def read_window(name: str, text: str) -> ReservedWindow:
    """The window that `ReservedWindow.text` wrote; InvalidConfig for anything else."""
    match = WRITTEN.fullmatch(text.strip())
    if match is None:
        raise InvalidConfig(f"reservation {name}: {text!r} cannot be read", hint=EXAMPLE)
    soft, nodes, start, end, tenant = match.groups()
    devices = dict(_devices(name, node) for node in nodes.split("+"))
    begin, finish = float(start or 0.0), inf if end is None else float(end)
    if begin >= finish:
        raise InvalidConfig(f"reservation {name}: it ends at {finish:g}, before it begins")
    return ReservedWindow(name, devices, begin, finish, tenant or "", bool(soft))


def find_windows(policy: PartSpec) -> list[ReservedWindow]:
    """Find the windows that are kept around a policy."""
    rules = next((wrapper.params for wrapper in policy.wrappers if wrapper.name == "reserve"), {})
    return [read_window(name, text) for name, text in rules.get("windows", {}).items()]


@contextmanager
def kept_away(free: Capacity, windows: Iterable[ReservedWindow]) -> Iterator[None]:
    """Take what is left of these windows' devices away meanwhile."""
    mark = free.mark()
    try:
        take_away(free, [*windows])
        yield
    finally:
        free.rollback(mark)


def take_away(free: Capacity, windows: Sequence[ReservedWindow]) -> None:
    """Take what is left of these windows' devices."""
    for i, node in enumerate(free.cluster.nodes):
        mask = 0
        for window in windows:
            mask |= window.mask(node.id, node.gpus)
        if idle := mask & free.idle_mask(i):
            gpus = tuple(gpu for gpu in range(node.gpus) if idle >> gpu & 1)
            free.take(Allocation((Slice(node.id, gpus),)))
        for gpu in range(node.gpus):
            left = 1.0 - free.claimed(i, gpu)
            if (mask ^ idle) >> gpu & 1 and left > EPS:  # a part is taken
                free.take(Allocation((Slice(node.id, (gpu,)),), Sharing(left)))


def _devices(name: str, text: str) -> tuple[NodeId, tuple[int, ...] | None]:
    node, colon, gpus = text.partition(":")
    if not node or (colon and not gpus):
        raise InvalidConfig(f"reservation {name}: {text!r} names no devices", hint=EXAMPLE)
    return NodeId(node), read_gpus(name, gpus) if colon else None


def read_gpus(name: str, text: str) -> tuple[int, ...]:
    """`0,2-3` as numbers."""
    gpus: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InvalidConfig(f"{name}: {text!r} are not GPU numbers", hint="such as 0 or 0,2-3")
        gpus |= set(range(int(low), int(high or low) + 1))
    return tuple(sorted(gpus))
