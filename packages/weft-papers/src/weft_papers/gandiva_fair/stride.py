"""Gang-aware stride: which jobs run in the next quantum, on one server and over several.

Every gang has a pass, which grows by the GPU time it takes over the GPUs it is entitled to. The
least pass goes first; a gang that does not fit is skipped and keeps its pass, so it soon
stands first, when all GPUs are free (sections 3 and 4 of the paper).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft.core.model.job import JobId, NodeId
from weft.frozen import frozen

Device = tuple[str, int]


@frozen
class StrideGang:
    """A job in line: its GPUs on each of its servers, its pass, and when it came.

    It goes on only on its `devices` if it has any.
    """

    id: JobId
    on: Mapping[NodeId, int]
    passed: float
    arrived: float
    pinned: bool = False
    devices: frozenset[Device] = frozenset()

    @property
    def large(self) -> bool:
        """True if it needs more than one server at once."""
        return len(self.on) > 1


def choose(
    gangs: Iterable[StrideGang], gpus: int, used: Collection[Device] = ()
) -> list[StrideGang]:
    """Choose jobs for a server with `gpus` free: the least pass first, if it fits.

    None of them goes on where others `used` a device.
    """
    chosen, taken = [], {*used}
    for gang in sorted(gangs, key=lambda g: (not g.pinned, g.passed, g.arrived)):
        (size,) = gang.on.values()
        if size <= gpus and taken.isdisjoint(gang.devices):
            chosen.append(gang)
            gpus -= size
            taken |= gang.devices
    return chosen


def choose_split(
    gangs: Sequence[StrideGang], free: Mapping[NodeId, int], servers: Mapping[NodeId, float]
) -> list[StrideGang]:
    """Large gangs against servers by pass; servers that are left run their own gangs.

    `servers` has the pass of each server's small gangs together. A large gang takes the GPUs it
    needs if no server before it in the line needs them.
    """
    left, closed, used = dict(free), set[NodeId](), set[Device]()
    chosen: list[StrideGang] = []
    large = [gang for gang in gangs if gang.large]
    line: list[tuple[bool, float, int, float, StrideGang | NodeId]] = [
        (not gang.pinned, gang.passed, 0, gang.arrived, gang) for gang in large
    ]
    line += [(True, passed, 1, 0.0, node) for node, passed in servers.items()]
    for *_, entity in sorted(line, key=lambda entry: entry[:4]):
        if not isinstance(entity, StrideGang):
            closed.add(entity)
        elif all(
            left[n] >= size and n not in closed for n, size in entity.on.items()
        ) and used.isdisjoint(entity.devices):
            chosen.append(entity)
            used |= entity.devices
            for node, size in entity.on.items():
                left[node] -= size
    local: dict[NodeId, list[StrideGang]] = {node: [] for node in free}
    for gang in gangs:
        if not gang.large:
            local[next(iter(gang.on))].append(gang)
    for node, here in local.items():
        chosen += choose(here, left[node], used)
    return chosen
