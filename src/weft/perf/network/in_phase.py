"""Jobs that cross the same network links, with their phases in time and their time shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf

from weft.core.knowledge.traffic import Traffic
from weft.core.model.job import TimeShift
from weft.core.model.topology import Uplink
from weft.core.protocols import Resident
from weft.perf.network.fluid import Sender, simulate_iterations

DIGITS = 9  # of a second: shifts that differ by less are one

Key = tuple[Traffic, TimeShift | None, tuple[int, ...]]


class InPhase:
    """The truth where jobs say when they send: links are shared while several do so.

    Of jobs that a neighbour meets elsewhere nothing is seen.
    """

    def gb_s(self, resident: Resident, crossing: Mapping[Uplink, Sequence[Resident]]) -> float:
        """The GB/s at which it would take as long, were they its own all the time."""
        traffic = resident.job.traffic
        if traffic is None or not traffic.talking or not crossing:
            return inf
        seconds = iteration_seconds(resident, crossing)
        longer = sum(seconds) / len(seconds) - traffic.compute_s
        return traffic.gbit / (8.0 * longer) if longer > 0.0 else inf


def iteration_seconds(
    sender: Resident, crossing: Mapping[Uplink, Sequence[Resident]]
) -> tuple[float, ...]:
    """Iterations of a job beside others on its links, as they come."""
    links = list(crossing)
    on: dict[int, tuple[Resident, list[int]]] = {id(sender): (sender, list(range(len(links))))}
    for i, link in enumerate(links):
        for other in crossing[link]:
            on.setdefault(id(other), (other, []))[1].append(i)
    keys = [_key(resident, at) for resident, at in on.values()]
    own, order = keys[0], sorted(keys, key=_rank)
    seen = _simulate(tuple(order), tuple(link.gbps for link in links))
    return seen[order.index(own)]


def _key(resident: Resident, links: Sequence[int]) -> Key:
    traffic, shift = resident.job.traffic, resident.on.time_shift
    assert traffic is not None
    if shift is not None:
        shift = TimeShift(shift.period_s, round(shift.shift_s, DIGITS) % shift.period_s)
    return traffic, shift, tuple(links)


def _rank(key: Key) -> tuple[object, ...]:
    """An order that is the same for whoever of the jobs is asked about."""
    traffic, shift, links = key
    beat = (0.0, 0.0) if shift is None else (shift.period_s, shift.shift_s)
    phases = tuple((phase.start_s, phase.seconds, phase.gbps) for phase in traffic.phases)
    return (traffic.iteration_s, traffic.gbit, traffic.share, phases, beat, links)


@lru_cache(maxsize=1 << 14)
def _simulate(keys: tuple[Key, ...], gbps: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    seen = simulate_iterations([Sender(*key) for key in keys], gbps)
    return tuple(tuple(times) for times in seen)
