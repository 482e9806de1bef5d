"""Rules for plans: nothing promised twice, gangs whole, and only what was declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.core.errors import PlanError
from weft.core.model.cluster import Cluster
from weft.core.model.execution import find_plan
from weft.core.model.gang_nodes import describe_nodes, describe_parts, keeps_nodes
from weft.core.model.job import EXCLUSIVE, Allocation, Demand, Discipline, Job, JobId, Tier
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.plural import say_gpus

SHARED = Controls.SHARE | Controls.TIER


def check_plan(
    view: View, plan: Plan, about: About, tried: Sequence[tuple[bool, Allocation]] = ()
) -> None:
    """Raise PlanError unless every change can be carried out as the policy declared.

    `tried` is what the policy took (True) and gave in the ledger, which was undone since: where
    that is the plan, the ledger has said already that it fits.
    """
    if not plan.changes and not plan.rejected and plan.wake_at is None:
        return
    mark = view.free.mark()
    try:
        _Check(view, about, tried).all_of(plan)
    finally:
        view.free.rollback(mark)


@dataclass(slots=True)
class _Check:
    """One plan against one view."""

    view: View
    about: About
    tried: Sequence[tuple[bool, Allocation]]

    def all_of(self, plan: Plan) -> None:
        free, table = self.view.free, self.view.table
        rows = self._check_names(plan)
        if both := plan.changes.keys() & plan.rejected.keys():
            raise self._wrong(f"both changes and rejects {', '.join(map(repr, sorted(both)))}")
        if plan.wake_at is not None and not plan.wake_at > self.view.now:
            raise self._wrong(f"asked at {self.view.now} to be woken at {plan.wake_at}")
        held = [was for row in rows if (was := table.allocations[row]) is not None]
        fits = self._was_tried(held, plan)
        for was in held if not fits else ():
            free.give(was)
        last = len(rows)
        for number, (job, to) in enumerate(plan.changes.items(), start=1):
            if to is not None:
                check_allocation(
                    table.jobs[rows[number - 1]],
                    to,
                    self.view.cluster,
                    self.about,
                    self.view.decision,
                )
                if fits:
                    continue
                if problem := free.objection(to):
                    what = f"gives {job!r} devices that it cannot have: {problem}"
                    raise self._wrong(what, job) from PlanError(problem)
                if number < last:
                    free.take(to)

    def _was_tried(self, held: list[Allocation], plan: Plan) -> bool:
        """True if the policy gave just what these jobs hold, and took just what they get."""
        if len(self.tried) < len(held):
            return False
        wanted = [to for to in plan.changes.values() if to is not None]
        given = [allocation for taken, allocation in self.tried if not taken]
        return given == held and [to for taken, to in self.tried if taken] == wanted

    def _check_names(self, plan: Plan) -> list[int]:
        """The rows of the jobs that change."""
        table, rows = self.view.table, list[int]()
        for job in (*plan.changes, *plan.rejected):
            row = table.find(job)
            if row is None:
                raise self._wrong(f"names {job!r}, which is not an active job", job)
            if job in table.suspended:
                raise self._wrong(f"names {job!r}, which is suspended", job)
            rows.append(row)
        return rows[: len(plan.changes)]

    def _wrong(self, what: str, job: JobId | None = None) -> PlanError:
        return _wrong(self.about, self.view.decision, what, job)


def check_allocation(
    job: Job, to: Allocation, cluster: Cluster, about: About, decision: int
) -> None:
    """Raise PlanError unless this is what the job asks for, set as the policy declared."""
    if _is_plain(job.demand, to):
        return
    if problem := _find_problem(job, to, cluster, about) or _undeclared(job, to, about.controls):
        raise _wrong(about, decision, problem, job.id)


def _is_plain(demand: Demand, to: Allocation) -> bool:
    """True if these are whole devices of one node, as many as asked for, and nothing else."""
    slices = to.slices
    if len(slices) != 1 or len(slices[0].gpus) != demand.gpus or to.sharing is not EXCLUSIVE:
        return False
    if demand.share != 1.0 or demand.kinds or demand.nodes:
        return False
    return to.batch is None and to.time_shift is None and to.plan is None


def _find_problem(job: Job, to: Allocation, cluster: Cluster, about: About) -> str:
    demand = job.demand
    if not job.shareable and to.sharing.share < demand.share:
        return f"lets {job.id!r} share devices, which its submitter ruled out"
    if to.gpus != demand.gpus:
        low = high = demand.gpus
        if Controls.COUNT in about.controls:
            low, high = demand.min, demand.max
        if not low <= to.gpus <= high:
            return f"gives {job.id!r} {say_gpus(to.gpus)}; it takes {low} to {high}"
    kinds = {
        cluster.nodes[cluster.index[s.node]].kind for s in to.slices if s.node in cluster.index
    }
    if len(kinds) > 1 or (demand.kinds and not kinds <= set(demand.kinds)):
        return f"puts {job.id!r} on {sorted(kinds)}; it takes {demand.kinds or 'one'}"
    if not keeps_nodes(demand, to):
        return f"puts {job.id!r} on {describe_parts(to)}; it takes {describe_nodes(demand)}"
    return ""


def _undeclared(job: Job, to: Allocation, controls: Controls) -> str:  # noqa: PLR0911 - one return a field
    """The first thing that a policy sets without having declared it."""
    sharing = to.sharing
    if sharing.share != job.demand.share and Controls.SHARE not in controls:
        return f"sets the share of {job.id!r} without declaring Controls.SHARE"
    if sharing.tier is not Tier.GUARANTEED and Controls.TIER not in controls:
        return f"sets the tier of {job.id!r} without declaring Controls.TIER"
    if sharing.discipline is not Discipline.NONE and not controls & SHARED:
        return f"sets a discipline for {job.id!r} without declaring Controls.SHARE"
    if sharing.phase and Controls.PHASE not in controls:
        return f"sets the phase of {job.id!r} without declaring Controls.PHASE"
    if to.batch is not None and Controls.BATCH not in controls:
        return f"sets the batch of {job.id!r} without declaring Controls.BATCH"
    if to.time_shift is not None and Controls.SHIFT not in controls:
        return f"shifts the iterations of {job.id!r} without declaring Controls.SHIFT"
    if to.plan is not None and Controls.PLAN not in controls:
        return f"sets the execution plan of {job.id!r} without declaring Controls.PLAN"
    if to.plan is not None and not find_plan(job.plans, to.gpus, to.plan):
        return f"runs {job.id!r} on {say_gpus(to.gpus)} by a plan it lacks: {to.plan.text}"
    return ""


def _wrong(about: About, decision: int, what: str, job: JobId | None) -> PlanError:
    return PlanError(
        f"policy {about.name!r}, decision {decision}: {what}",
        hint="this is a bug in the policy; weft.testing.check_policy finds such plans",
        job=job,
    )
