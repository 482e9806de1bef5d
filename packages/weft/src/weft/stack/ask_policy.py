"""A policy is asked, and gangs that ask for a number of nodes are put right in its plan.

Policies whose placers look at `Demand.nodes` are never overruled. Others count devices alone: where
such a plan puts a gang on other nodes than it asked for, it is placed again beside the rest of the
plan. A job without a place is hidden while the policy decides again, so that another job gets what
it would have held.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.errors import PlanError
from weft.core.model.gang_nodes import count_large_nodes, keeps_nodes
from weft.core.model.job import EXCLUSIVE, Allocation, Job, JobId, Slice, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.table import Bools

TRIES = 3


def ask(policy: Policy, view: View) -> Plan:
    """The policy's decision, with every gang on as many nodes as it asks for."""
    if not view.table.conditional or not any(job.demand.nodes for job in view.table.jobs):
        return policy.decide(view)
    view = _narrow_kinds(view)
    hidden: Bools = np.zeros(len(view.table), dtype=bool)
    plan, homeless = _decide(policy, view)
    for _ in range(TRIES):
        if not homeless:
            return plan
        hidden[[view.table.row(job) for job in homeless]] = True
        part = view.without(hidden)
        try:
            again, others = _decide(policy, part)
        except PlanError:
            if not view.running()[hidden].any():
                raise
            break
        if not _fits(part, again):  # it counts machines, also what is held out of its sight
            break
        plan, homeless = again, others
    return plan


def _narrow_kinds(view: View) -> View:
    """The view with gangs taking only kinds of which there are enough large nodes for them.

    A policy that chooses a kind first would choose one that never holds the gang.
    """
    cluster, narrowed = view.cluster, dict[int, Job]()
    for row, job in enumerate(view.table.jobs):
        if not job.demand.nodes or not job.demand.gpus or len(cluster.kinds) < 2:
            continue
        kinds = tuple(
            kind
            for kind in job.demand.kinds or cluster.kinds
            if count_large_nodes(replace(job.demand, kinds=(kind,)), cluster.nodes)
            >= job.demand.nodes
        )
        if kinds and set(kinds) != set(job.demand.kinds or cluster.kinds):
            narrowed[row] = replace(job, demand=replace(job.demand, kinds=kinds))
    if not narrowed:
        return view
    table = view.table.pick(np.ones(len(view.table), dtype=bool))
    for row, job in narrowed.items():
        table.jobs[row] = job
    return replace(view, table=table)


def _decide(policy: Policy, view: View) -> tuple[Plan, list[JobId]]:
    """A plan put right, in which jobs without a place hold nothing; and which these are."""
    mark = view.free.mark()
    try:
        plan = policy.decide(view)
    finally:
        view.free.rollback(mark)
    wrong = _find_misplaced(view, plan)
    if not wrong:
        return plan, []
    changes = dict(plan.changes)
    homeless = []
    try:
        _carry_out(view, plan, wrong)
        for job in wrong:
            to, was = plan.changes[job], view.holds(job)
            assert to is not None
            allocation = _find_place(view, job, to, was)
            if allocation is not None:
                view.free.take(allocation)
                changes[job] = allocation
            else:
                homeless.append(job)
                changes[job] = None
            if changes[job] == was:
                del changes[job]
    except PlanError:
        return plan, []  # it promises what is not there: for others to say
    finally:
        view.free.rollback(mark)
    return replace(plan, changes=changes), homeless


def _find_misplaced(view: View, plan: Plan) -> list[JobId]:
    table, job_ids = view.table, []
    for job, to in plan.changes.items():
        row = table.find(job) if to is not None else None
        if to is not None and row is not None and not keeps_nodes(table.jobs[row].demand, to):
            job_ids.append(job)
    return job_ids


def _carry_out(view: View, plan: Plan, without: list[JobId]) -> None:
    """Change the ledger as a plan says, but for some of its jobs, which hold nothing."""
    view.release(plan.changes)
    for job, to in plan.changes.items():
        if to is not None and job not in without:
            view.free.take(to)


def _fits(view: View, plan: Plan) -> bool:
    mark = view.free.mark()
    try:
        _carry_out(view, plan, [])
    except PlanError:
        return False
    finally:
        view.free.rollback(mark)
    return True


def _find_place(
    view: View, name: JobId, to: Allocation, was: Allocation | None
) -> Allocation | None:
    """The place of a gang, if it may stay; else one on empty devices, planned kind first."""
    job, free = view.job(view.table.row(name)), view.free
    if was is not None and keeps_nodes(job.demand, was) and free.fits(was):
        return was
    planned = view.cluster.kind_of(to)
    others = [kind for kind in free.kinds if not job.demand.kinds or kind in job.demand.kinds]
    for kind in (planned, *(kind for kind in others if kind != planned)):
        if (allocation := _place(free, job, kind, to)) is not None:
            return allocation
    return None


def _place(free: Capacity, job: Job, kind: str, like: Allocation) -> Allocation | None:
    """The gang on nodes of a kind; it does not share, unless others may push it aside."""
    sharing = like.sharing
    if sharing.tier is Tier.GUARANTEED:
        sharing = replace(EXCLUSIVE, gpu_mem_gb=sharing.gpu_mem_gb)
    slices = list[Slice]()
    sizes = [(free.empty_mask(i).bit_count(), i) for i, _ in enumerate(free.cluster.nodes)]
    for size, node in sorted(sizes):
        if size < job.demand.per_node or free.cluster.nodes[node].kind != kind:
            continue
        part = _slice(free, node, job.demand.per_node, sharing.share, like)
        if free.fits(Allocation((part,), sharing)):
            slices.append(part)
        if len(slices) == job.demand.nodes:
            return replace(like, slices=tuple(slices), sharing=sharing)
    return None


def _slice(free: Capacity, node: int, count: int, share: float, like: Allocation) -> Slice:
    """The first empty devices of a node, with as much of the host as the policy gave them."""
    devices, chosen = free.empty_mask(node), 0
    for _ in range(count):
        low = devices & -devices
        chosen, devices = chosen | low, devices ^ low
    made = free.slice_of(node, chosen, share)
    if all(part == _usual(free, part, like.sharing.share) for part in like.slices):
        return made
    each = count / like.gpus
    cpus, mem_gb = sum(part.cpus for part in like.slices), sum(part.mem_gb for part in like.slices)
    return replace(made, cpus=cpus * each, mem_gb=mem_gb * each)


def _usual(free: Capacity, part: Slice, share: float) -> Slice:
    """Devices with the part of the host that comes with them."""
    node = free.cluster.index[part.node]
    return free.slice_of(node, sum(1 << gpu for gpu in part.gpus), share)
