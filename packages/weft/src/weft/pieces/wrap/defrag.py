"""Defragmentation at a price: move running jobs so that a waiting gang can start.

Paper       none; moves of this kind are in Gandiva (Xiao et al., OSDI 2018), without a price.
Objective   gangs that wait although enough devices are idle, only not together, start now.
Needs       what the policy inside needs; how long jobs still run, if there is a predictor.
Controls    where running jobs are; the inner policy decides everything else.
Cost        O(nodes log nodes + jobs) for each of at most three gangs, and a second decision of the
            policy where moves pay.
Deviations  the policy decides first. For a gang that it leaves waiting the node is cleared that
            costs least, by moving its jobs into gaps on others; only jobs on one node are moved,
            each as a whole and to the same kind. The gain is counted against the time when enough
            of a node comes free by itself. The policy is asked again as if the moves were made, and
            they are proposed if it then starts the gang and stops no other job.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.taxonomy import Objective, Preemption, TopologyKnowledge, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable
from weft.pieces.wrap.restart_costs import seconds_left
from weft.pieces.wrap.sub_cluster import carry_out, decide_among
from weft.plural import say_gpus
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper

LOOKED_AT = 32  # nodes that might be cleared
NEXT_S = 0.02  # until the next gang is thought of
TRIES = 3  # gangs that are looked at in one decision
HOUR = 3600.0


@frozen
class DefragMove:
    """A running row that goes elsewhere; `lost_s` are GPU-seconds that its restart costs."""

    row: int
    to: Allocation
    lost_s: float


@frozen
class Defrag(Wrapper):
    """Move running jobs if that lets a waiting gang start, and if it pays.

    At most `moves` jobs are moved in a decision, none that may not be preempted or has run for
    less than `min_run_s` seconds. What a gang gains must be more than `margin` times what is lost.
    """

    adds = declare(
        Objective.COMPLETION_TIME | Objective.UTILIZATION,
        TopologyKnowledge.CONSOLIDATED,
        Preemption.MOVES,
    )
    moves: int = 4
    margin: float = 2.0
    min_run_s: float = 300.0

    def __post_init__(self) -> None:
        if self.moves < 1 or self.margin < 0.0 or self.min_run_s < 0.0:
            raise InvalidConfig(
                f"defrag: moves {self.moves}, margin {self.margin:g}, min_run_s {self.min_run_s:g}",
                hint="moves at least 1, margin and min_run_s not below 0",
            )

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, or another one after moves that pay."""
        mark = view.free.mark()
        plan = ask(self.inner, view)
        view.free.rollback(mark)
        gangs = self._gangs(view, plan)
        if not gangs:
            return plan
        left, restart = seconds_left(view), view.restart_seconds()
        for row in gangs:
            search = _Search(view, plan, row, left, restart, self)
            moves = search.find()
            view.free.rollback(mark)
            if moves and (better := self._after(view, plan, row, moves)) is not None:
                soon = view.now + NEXT_S
                wake = soon if better.wake_at is None else min(better.wake_at, soon)
                better = better.explained(_reasons(view, row, moves, search.saved_s))
                return replace(better, wake_at=wake if len(gangs) > 1 else better.wake_at)
        return plan

    def _gangs(self, view: View, plan: Plan) -> list[int]:
        """Waiting rows, the first first, that would fit if what is idle were together."""
        if not view.running().any():
            return []
        mark = view.free.mark()
        try:
            if not carry_out(view, plan):
                return []
            gangs = []
            for row in np.flatnonzero(view.waiting() & (view.table.gpus > 1.0)).tolist():
                job = view.job(row)
                if job.id in plan.changes or job.id in plan.rejected:
                    continue
                if job.demand.share < 1.0 or job.demand.gpus % (job.demand.nodes or 1):
                    continue
                kinds = acceptable(job, view.free)
                if any(view.free.idle(kind) >= job.demand.gpus for kind in kinds):
                    gangs.append(row)
                if len(gangs) == TRIES:
                    break
            return gangs
        finally:
            view.free.rollback(mark)

    def _after(self, view: View, plan: Plan, gang: int, moves: list[DefragMove]) -> Plan | None:
        """The policy's decision once the moves are made; None if the gang does not start by it."""
        table = view.table.pick(np.ones(len(view.table), dtype=bool))
        moved = {view.job(move.row).id: move for move in moves}
        mark = view.free.mark()
        try:
            for move in moves:
                was = view.allocation(move.row)
                assert was is not None
                view.free.give(was)
                table.allocations[move.row] = move.to
            for move in moves:
                view.free.take(move.to)
            again = decide_among(self.inner, replace(view, table=table))
        finally:
            view.free.rollback(mark)
        if again.changes.get(view.job(gang).id) is None or moved.keys() & again.changes.keys():
            return None
        touched = {job for job in again.changes if view.holds(job) is not None}
        if not touched <= plan.changes.keys():
            return None  # another job would be stopped for it
        changes = {**again.changes, **{job: move.to for job, move in moved.items()}}
        return replace(again, changes=changes)


class _Search:
    """Moves that bring enough devices together for one gang; the ledger is left changed."""

    def __init__(
        self, view: View, plan: Plan, gang: int, left: Floats, restart: Floats, rule: Defrag
    ) -> None:
        self._view, self._plan, self._rule = view, plan, rule
        self._job: Job = view.job(gang)
        self._left, self._restart = left, restart
        self._targets: set[int] = set()
        self._there = self._rows_by_node()
        self.saved_s = 0.0

    def find(self) -> list[DefragMove]:
        """The moves, if they cost less than they gain; the kinds in turn."""
        view = self._view
        if not carry_out(view, self._plan):
            return []
        for kind in acceptable(self._job, view.free):
            if view.free.idle(kind) < self._job.demand.gpus:
                continue
            mark = view.free.mark()
            self._targets = set()
            self.saved_s = self._wait_s(kind)
            moves = self._gather(kind)
            view.free.rollback(mark)
            lost = sum(move.lost_s for move in moves or ())
            gained = self._job.demand.gpus * self.saved_s
            if moves and gained > self._rule.margin * lost:
                return moves
        return []

    def _rows_by_node(self) -> dict[NodeId, list[tuple[int, int]]]:
        """Rows that run on each node and that the plan leaves alone, with their devices there."""
        rows_by_node: dict[NodeId, list[tuple[int, int]]] = {}
        for row, on in enumerate(self._view.table.allocations):
            if on is None or self._view.job(row).id in self._plan.changes:
                continue
            for part in on.slices:
                rows_by_node.setdefault(part.node, []).append((row, len(part.gpus)))
        return rows_by_node

    def _sizes(self, kind: str) -> list[int]:
        """Devices that the gang takes of each node, whole nodes first."""
        most, count = self._view.cluster.node_size(kind), self._job.demand.gpus
        if nodes := self._job.demand.nodes:
            return [count // nodes] * nodes
        whole, rest = divmod(count, most)
        return [most] * whole + ([rest] if rest else [])

    def _gather(self, kind: str) -> list[DefragMove] | None:
        """Clear one node after the other, each the cheapest; None if one cannot be."""
        moves: list[DefragMove] = []
        for size in self._sizes(kind):
            cleared = self._clear(kind, size, self._rule.moves - len(moves))
            if cleared is None:
                return None
            node, more = cleared
            moves += more
            self._targets.add(node)
        return moves

    def _clear(self, kind: str, size: int, most: int) -> tuple[int, list[DefragMove]] | None:
        """The node where `size` devices come free at the least loss, and the jobs that leave it."""
        best: tuple[float, int, list[DefragMove]] | None = None
        for node in self._emptiest(kind, size):
            mark = self._view.free.mark()
            moves = self._empty(node, size, most)
            self._view.free.rollback(mark)
            if moves is not None:
                lost = sum(move.lost_s for move in moves)
                if best is None or (lost, node) < best[:2]:
                    best = lost, node, moves
        if best is None:
            return None
        self._make(best[1], best[2], size)
        return best[1], best[2]

    def _emptiest(self, kind: str, size: int) -> list[int]:
        """Nodes that are large enough, those with the most idle devices first, not too many."""
        free, nodes = self._view.free, self._view.cluster.nodes
        emptiest = [
            node
            for node, machine in enumerate(nodes)
            if machine.kind == kind and machine.gpus >= size and node not in self._targets
        ]
        return sorted(emptiest, key=lambda node: (-free.on(node), node))[:LOOKED_AT]

    def _empty(self, node: int, size: int, most: int) -> list[DefragMove] | None:
        """The jobs that leave a node so that `size` devices are free; the ledger follows."""
        free = self._view.free
        moves: list[DefragMove] = []
        for row in self._movable(node):
            if free.on(node) >= size:
                break
            if len(moves) == most:
                return None
            on = self._view.allocation(row)
            assert on is not None
            free.give(on)
            kept = self._keep(node)
            to = self._place(row, on)
            if kept is not None:
                free.give(kept)
            if to is None:
                free.take(on)
                continue
            free.take(to)
            lost = on.gpus * float(self._restart[row])
            moves.append(DefragMove(row, to, lost))
        return moves if free.on(node) >= size else None

    def _movable(self, node: int) -> list[int]:
        """Rows that run on this node alone and may leave it, the cheapest for each device first."""
        view, table = self._view, self._view.table
        name = view.cluster.nodes[node].id
        rows = []
        for row, _ in self._there.get(name, ()):
            on = view.allocation(row)
            assert on is not None
            runs = table.get(row, TableColumns.RAN_RATE) > 0.0 and view.job(row).stoppable
            age = view.now - table.get(row, TableColumns.RAN_SINCE)
            if runs and age >= self._rule.min_run_s and len(on.slices) == 1 and _is_whole(on):
                rows.append(row)
        return sorted(rows, key=lambda row: (float(self._restart[row]), row))

    def _keep(self, node: int) -> Allocation | None:
        """Take what is idle on the nodes to be cleared, so that no job is moved there."""
        view, slices = self._view, []
        for at in sorted({node, *self._targets}):
            if view.free.on(at):
                machine = view.cluster.nodes[at]
                gpus = tuple(g for g in range(machine.gpus) if view.free.idle_mask(at) >> g & 1)
                slices.append(Slice(machine.id, gpus))
        kept = Allocation(tuple(slices)) if slices else None
        if kept is not None:
            view.free.take(kept)
        return kept

    def _place(self, row: int, on: Allocation) -> Allocation | None:
        """A gap on another node that a job fits into as a whole, of a kind it may use."""
        view = self._view
        for kind in acceptable(view.job(row), view.free):
            if kind == view.cluster.kind_of(on):
                at = view.free.best_fit(kind, on.gpus)
                return None if at is None else replace(on, slices=(view.free.slice(at, on.gpus),))
        return None

    def _make(self, node: int, moves: list[DefragMove], size: int) -> None:
        """Make moves in the ledger, and take the gang's part of the node."""
        free = self._view.free
        for move in moves:
            was = self._view.allocation(move.row)
            assert was is not None
            free.give(was)
            free.take(move.to)
        free.take(Allocation((free.slice(node, size),)))

    def _wait_s(self, kind: str) -> float:
        """Seconds until the gang could start if no job is moved: nodes empty as their jobs end."""
        sizes = self._sizes(kind)
        times = sorted(
            self._free_after(node, max(sizes))
            for node, machine in enumerate(self._view.cluster.nodes)
            if machine.kind == kind and machine.gpus >= max(sizes)
        )
        wait = times[len(sizes) - 1] if len(times) >= len(sizes) else inf
        return wait if np.isfinite(wait) else 0.0

    def _free_after(self, node: int, size: int) -> float:
        """Seconds until that many devices of a node are free, by what is known about its jobs."""
        view, free = self._view, self._view.free.on(node)
        name = view.cluster.nodes[node].id
        ends = [(float(self._left[row]), mine) for row, mine in self._there.get(name, ())]
        for left, gpus in sorted(ends):
            if free >= size:
                return 0.0
            free += gpus
            if free >= size:
                return left
        return 0.0 if free >= size else inf


def _is_whole(on: Allocation) -> bool:
    return on.sharing.share == 1.0 and on.sharing.tier is Tier.GUARANTEED


def _reasons(view: View, gang: int, moves: list[DefragMove], saved_s: float) -> dict[JobId, Reason]:
    """The reason why each job is moved.

    The gang's gain is divided by the devices that they free.
    """
    job = view.job(gang)
    gained = job.demand.gpus * saved_s / HOUR
    freed = sum(move.to.gpus for move in moves)
    reasons = {}
    for move in moves:
        was = view.allocation(move.row)
        assert was is not None
        numbers = {
            "origin": _node(was),
            "target": _node(move.to),
            "starts": f"a gang of {say_gpus(job.demand.gpus)}",
            "lost": move.lost_s / HOUR,
            "gained": gained * move.to.gpus / freed,
        }
        reasons[view.job(move.row).id] = Reason(Blocker.MOVED, numbers)
    return reasons


def _node(on: Allocation) -> NodeId:
    return on.slices[0].node
