"""CASSINI: of equally good placements of a policy, the one whose jobs share links best.

Paper       Rajasekaran et al., "CASSINI: Network-Aware Job Scheduling in Machine Learning
            Clusters", NSDI 2024.
Objective   iterations that are not held up by other jobs' traffic: of several placements of the
            policy inside, the one whose links have the most compatible jobs, and a time shift for
            every job, so that those on a link send one after the other.
Needs       a cluster that describes how nodes are connected, and `Job.traffic`: how long an
            iteration takes and when it sends. Without either it changes nothing.
Controls    on which nodes jobs start, and when their iterations begin. The inner policy decides
            which jobs run, on how many devices of which kind and on how many nodes.
Cost        O(N l A^2) a decision for N placements, l links that two jobs or more cross and A
            samples of a circle; links with the same jobs are looked at once.
Deviations  the paper has no public code. Placements are compared by what all of their links lack;
            by the mean, as in the paper (`score=mean`), one with many poor links is no worse than
            one with a single such link: around `themis` iterations are better by 1.07 and 1.08
            then (two and four servers an uplink, three traces), by 1.09 and 1.11 as it is. Policies
            return one plan: one that declares that others of its placements would do as well
            (`About.ties`) has jobs that start or move put on other nodes of the same kind and
            shape, drawn here; without these (`candidates=1`) it is 1.02 and 0.99. Links that carry
            the same jobs, or some of another link's, count as one, else two jobs between the same
            two racks were a loop. Where every placement has a loop the first is taken, and jobs of
            its loops are not shifted; `loops=break` leaves out the link that needs shifts least,
            until there is none.
            Periods are longer than iterations by `headroom`, and rounded up to the finest common
            grid on which they soon repeat together, so that a job keeps its beat by waiting; where
            that costs more than meeting by chance, jobs are not shifted and count by chance. Jobs
            that an outer wrapper hides are not seen: write `cassini` first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from weft.core.errors import PlanError, bad_values
from weft.core.model.job import EXCLUSIVE, Allocation, JobId, Slice, TimeShift
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, TopologyKnowledge, declare
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.wrap.sub_cluster import carry_out
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper
from weft_papers.cassini.link_shifts import Crossing, Over, Shifts, find_crossing, shift_jobs

STREAM = 15  # of random numbers, beside those of the policy inside


@frozen
class Cassini(Wrapper):
    """Choose among up to `candidates` placements by how well jobs share links.

    `score` is how the scores of links are combined for a placement: 1 less what all of them lack,
    their mean as in the paper, or the least of them. A placement with loops in its links is taken
    only if all have some; `loops=break` then ignores some links. `headroom` is the part of an
    iteration that a job may wait for its beat.
    """

    candidates: int = 10
    score: Over = "total"
    loops: Literal["discard", "break"] = "discard"
    headroom: float = 0.01

    adds = declare(Objective.THROUGHPUT, NeededKnowledge.TRAFFIC, TopologyKnowledge.NETWORK)

    def __post_init__(self) -> None:
        if self.candidates < 1:
            raise bad_values("cassini", self, "candidates", "1 shifts jobs where they are")
        if not 0.0 <= self.headroom <= 1.0:
            raise bad_values("cassini", self, "headroom", "a part of an iteration, such as 0.01")

    @property
    def about(self) -> About:
        """The inner policy's, and that iterations are shifted."""
        about = self.inner.about
        return replace(about, controls=about.controls | Controls.SHIFT)

    def decide(self, view: View) -> Plan:
        """The inner policy's decision on the nodes that suit the network, with time shifts."""
        bare = _without_shifts(view)
        mark = view.free.mark()
        plan = ask(self.inner, bare)
        view.free.rollback(mark)
        if not view.cluster.links:
            return plan if bare is view else _shifted(view, bare, plan, {})
        beats = {job: on.time_shift for job, on in view.held().items() if on.time_shift is not None}
        best, shifts = self._choose(bare, plan, beats)
        return _shifted(view, bare, best, shifts)

    def _choose(
        self, bare: View, plan: Plan, beats: Mapping[JobId, TimeShift]
    ) -> tuple[Plan, Mapping[JobId, TimeShift]]:
        """The first of the most compatible placements without a loop, and its shifts."""
        best: tuple[float, Plan, Shifts] | None = None
        first: Crossing | None = None
        for candidate in self._candidates(bare, plan):
            crossing = find_crossing(bare, bare.after(candidate))
            first = crossing if first is None else first
            if crossing.loops and self.loops == "discard":
                continue
            shifts = shift_jobs(crossing, beats, headroom=self.headroom, over=self.score)
            if best is None or shifts.score > best[0]:
                best = (shifts.score, candidate, shifts)
            if shifts.score == 1.0:
                break  # nothing is better, and the first of equals is taken
        if best is not None:
            return best[1], best[2].shifts
        assert first is not None
        return plan, shift_jobs(first.without_loops(), beats, headroom=self.headroom).shifts

    def _candidates(self, bare: View, plan: Plan) -> list[Plan]:
        about = self.inner.about
        if about.ties is Ties.NONE or Controls.HOST in about.controls:
            return [plan]
        rng = np.random.default_rng([bare.seed, bare.decision, STREAM])
        return find_alternatives(bare, plan, self.candidates, rng)


def _without_shifts(view: View) -> View:
    """Return the view of the policy inside: jobs as it placed them, without time shifts."""
    if all(on is None or on.time_shift is None for on in view.table.allocations):
        return view
    table = view.table.pick(np.ones(len(view.table), dtype=bool))
    for row, on in enumerate(table.allocations):
        if on is not None and on.time_shift is not None:
            table.allocations[row] = replace(on, time_shift=None)
    return replace(view, table=table)


def _shifted(view: View, bare: View, plan: Plan, shifts: Mapping[JobId, TimeShift]) -> Plan:
    """The plan with the shift of every job; a change that is none is left out."""
    changes: dict[JobId, Allocation | None] = {}
    for job, to in plan.changes.items():
        wanted = None if to is None else replace(to, time_shift=shifts.get(job))
        if wanted != view.holds(job):
            changes[job] = wanted
    for job, on in bare.held().items():
        if job not in plan.changes:
            wanted = replace(on, time_shift=shifts.get(job))
            if wanted != view.holds(job):
                changes[job] = wanted
    return replace(plan, changes=changes)


# ---- Other placements of a plan that are as good to whoever made it: the same shapes elsewhere
#
# Jobs that the plan starts or moves are put on other nodes of their kind, as many devices on
# each of as many nodes, and only on nodes that they fit as well. Jobs that stay, or that share
# devices, stay.


TRIES = 3  # for each placement asked for: many drawn ones are alike


def find_alternatives(view: View, plan: Plan, count: int, rng: np.random.Generator) -> list[Plan]:
    """The plan itself, and up to `count` - 1 others that differ in places alone.

    The ledger is left as it was. Of three that are drawn one keeps jobs below few uplinks, one
    also below uplinks that no other job uses, and one takes any nodes.
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
    """Return allocations of jobs on devices of their own that the plan starts or moves."""
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
            except PlanError:  # the host part of a node is taken by a job without devices
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
        """Any of the nodes that fit this many devices best; `left` are still to be found."""
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
                # Where it is already; then where no job is; then all of a rack, or what it fits.
                there = -sum(link in above for link in way)
                return there, room[way] < size[way], spare if spare >= 0 else 1 - spare

            best = min(map(liking, nodes))
            nodes = [node for node in nodes if liking(node) == best]
        return nodes[int(self.rng.integers(len(nodes)))]
