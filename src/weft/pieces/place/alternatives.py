"""Other placements of a plan that are as good to its policy: the same shapes elsewhere.

Jobs that the plan starts or moves are put on other nodes of their kind, as many devices on each of
as many nodes, and only on nodes that they fit as well. Jobs that stay, or that share devices, stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import PlanError
from weft.core.model.job import EXCLUSIVE, Allocation, JobId, Slice
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.wrap.fits import carry_out

TRIES = 3  # for each placement asked for: many drawn ones are alike


def find_alternatives(view: View, plan: Plan, count: int, rng: np.random.Generator) -> list[Plan]:
    """The plan itself, and up to `count` - 1 others that differ in places alone.

    The ledger is left as it was. Of three that are drawn one keeps jobs below few uplinks, one
    also below uplinks that nobody else has, and one takes any nodes.
    """
    moved = _movable(view, plan)
    plans = [plan]
    if not any(len(to.slices) > 1 for to in moved.values()):
        return plans
    seen = {_where(moved)}
    others = Plan({job: to for job, to in plan.changes.items() if job not in moved})
    for number in range(TRIES * (count - 1)):
        if len(plans) == count:
            break
        mark = view.free.mark()
        draw = _Draw(view, rng, near=number % 3 != 2, apart=number % 3 == 0)
        placed = draw.place(moved) if _make_room(view, others, moved) else None
        view.free.rollback(mark)
        if placed is not None and (where := _where(placed)) not in seen:
            seen.add(where)
            plans.append(replace(plan, changes={**plan.changes, **placed}))
    return plans


def _movable(view: View, plan: Plan) -> dict[JobId, Allocation]:
    """What the plan gives to jobs on devices of their own that were elsewhere before."""
    allocations = {}
    for job, to in plan.changes.items():
        if to is None or to.sharing != EXCLUSIVE or not to.gpus:
            continue
        was = view.holds(job)
        if was is None or not was.stays(to):
            allocations[job] = to
    return allocations


def _make_room(view: View, others: Plan, moved: dict[JobId, Allocation]) -> bool:
    """Carry out the rest of the plan, and take away what movable jobs hold."""
    for job in moved:
        if (was := view.holds(job)) is not None:
            view.free.give(was)
    return carry_out(view, others)


def _where(placed: dict[JobId, Allocation]) -> tuple[object, ...]:
    return tuple((job, frozenset(to.devices)) for job, to in sorted(placed.items()))


@dataclass(slots=True)
class _Draw:
    """One way to place jobs; `near` fills what is below an uplink, `apart` an empty one first."""

    view: View
    rng: np.random.Generator
    near: bool
    apart: bool

    def place(self, moved: dict[JobId, Allocation]) -> dict[JobId, Allocation] | None:
        """Places for all of them, in a drawn order; None where one finds none."""
        names = list(moved)
        placed: dict[JobId, Allocation] = {}
        for i in self.rng.permutation(len(names)).tolist():
            to = moved[names[i]]
            slices = self._slices(to)
            if slices is None:
                return None
            placed[names[i]] = replace(to, slices=slices)
            try:
                self.view.free.take(placed[names[i]])
            except PlanError:  # the host part of a node is taken by somebody without devices
                return None
        return {name: placed[name] for name in names}

    def _slices(self, to: Allocation) -> tuple[Slice, ...] | None:
        kind = self.view.cluster.kind_of(to)
        chosen: list[tuple[int, int]] = []
        counts = sorted((len(part.gpus) for part in to.slices), reverse=True)
        for i, count in enumerate(counts):
            node = self._node(kind, count, [node for node, _ in chosen], len(counts) - i)
            if node is None:
                return None
            chosen.append((node, count))
        return tuple(self.view.free.slice(node, count) for node, count in sorted(chosen))

    def _node(self, kind: str, count: int, used: list[int], left: int) -> int | None:
        """Any of the nodes that so many devices fit best; `left` are still to be found."""
        free = self.view.free
        for size in range(count, self.view.cluster.node_size(kind) + 1):
            if nodes := [node for node in free.nodes_with(kind, size) if node not in used]:
                return self._pick(nodes, used, left)
        return None

    def _pick(self, nodes: Sequence[int], used: list[int], left: int) -> int:
        if self.near:
            machines = self.view.cluster.nodes
            above = {link for node in used for link in machines[node].uplinks[1:]}
            room = Counter(machines[node].uplinks[1:] for node in nodes)
            size = Counter(node.uplinks[1:] for node in machines) if self.apart else room

            def liking(node: int) -> tuple[int, bool, int]:
                way = machines[node].uplinks[1:]
                spare = room[way] - left
                # Where it is already; then where nobody is; then all of a rack, or what it fits.
                there = -sum(link in above for link in way)
                return there, room[way] < size[way], spare if spare >= 0 else 1 - spare

            best = min(map(liking, nodes))
            nodes = [node for node in nodes if liking(node) == best]
        return nodes[int(self.rng.integers(len(nodes)))]
