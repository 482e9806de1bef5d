"""Jobs that say nothing of themselves on the same GPU: a newcomer joins where its memory fits.

The policy decides as if no jobs shared, over jobs that have devices of their own or wait. A job
that would still wait then joins a device whose residents leave enough memory. A program's memory is
what its runs were seen to hold, and a margin. A program that was never seen is given half of what
is left, and is limited to it; where that is too little, it waits until the memory of those that are
there is known. Where allocations wait for memory, none is limited: a job joins where what it holds
all the time fits, or a little if that is unknown, and waits itself for what it wants beyond. What
residents do to each other's speed is measured as they run: groups that were seen to do no more than
turns, or to break a promise, are not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

import numpy as np

from weft.core.errors import PlanError
from weft.core.knowledge.programs import Programs
from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId, Sharing, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.releasing import devices_of
from weft.core.stops import Rung
from weft.pieces.share.memory_order import doublings_left, order_memory

BROKEN_S = 3.0  # of a promise, although the neighbours were slowed


def find_parted(
    view: View, programs: Programs, together: Mapping[Device, Sequence[int]]
) -> dict[JobId, str]:
    """Jobs that have to leave, one per device, with why they wait."""
    parted = {}
    for device, rows in together.items():
        kind = view.cluster.nodes[view.cluster.index[device[0]]].kind
        for row in rows:
            others = [other for other in rows if other != row and _can_leave(view, other)]
            why = _explain(view, programs, kind, row, rows) if others else ""
            if why:
                parted[view.job(max(others)).id] = why  # the last that came
                break
    return parted


def _explain(view: View, programs: Programs, kind: str, row: int, rows: Sequence[int]) -> str:
    """The reason why the neighbours of a row break its promise; empty if they do not."""
    job = view.job(row)
    if job.slowdown is None or programs.broken_s(job) < BROKEN_S:
        return ""
    slowdown = programs.slowdown(job, kind, [view.job(other) for other in rows if other != row])
    if slowdown is None or slowdown <= job.slowdown:
        return ""
    return (
        f"waits for another GPU: beside it {job.id} took {slowdown:.2f} times as long as alone, "
        f"and was promised {job.slowdown:g}"
    )


def _can_leave(view: View, row: int) -> bool:
    """True if a job may be stopped, and asked for no promise itself."""
    job = view.job(row)
    return job.stoppable and job.slowdown is None


# ---- Which jobs may share a device, by what is known about how they slow each other


WORTH = 1.05  # sum of speeds, each as a part of that alone: with turns it is 1
PROMISES = 2  # on one device: a third is made only where all are known to be kept


def can_promise(programs: Programs, job: Job, group: Sequence[Job], kind: str) -> bool:
    """True if a job of the group that asked for a slowdown can be promised it.

    Two such jobs are tried together. With one more, all of them would break their promises while
    their speeds are measured, so that one waits until the programs are known.
    """
    promised = [member for member in group if member.slowdown is not None]
    if job.slowdown is None or len(promised) <= PROMISES:
        return True
    return all(_slowdown(programs, member, group, kind) is not None for member in promised)


def gets_on(programs: Programs, group: Sequence[Job], kind: str) -> bool:
    """True if nothing that was measured speaks against this group."""
    known = list[float]()
    for member in group:
        slowdown = _slowdown(programs, member, group, kind)
        if slowdown is None:
            continue
        if member.slowdown is not None and slowdown > member.slowdown:
            return False
        known.append(slowdown)
    return len(known) < len(group) or sum(1.0 / slowdown for slowdown in known) >= WORTH


def _slowdown(programs: Programs, member: Job, group: Sequence[Job], kind: str) -> float | None:
    """The factor by which a member's step takes longer in the group; None if not known."""
    return programs.slowdown(member, kind, [other for other in group if other is not member])


RESIDENTS = 16  # on one device
KEPT_FREE = 0.03  # of a device's memory: contexts, fragments, what the driver takes
WAITING_GB = 2.0  # for a program never seen whose allocations wait: a context, and its first data
LEAST_TRIAL = 1 / 16  # of a device's memory: with less, a program never seen is not started
AGAIN_S = 1.0  # until a place is looked for, for a job that had to leave
PATIENCE_S = 300.0  # of a job that fits nowhere: then no later job joins in front of it

Device = tuple[NodeId, int]


@dataclass(slots=True)
class _Residents:
    """Rows on one device, in the order they came, with the memory that each is counted with.

    `asleep` are jobs that are frozen there, and hold their memory without running.
    """

    kind: str
    room_gb: float
    claims: dict[int, float] = field(default_factory=dict)
    asleep: dict[JobId, float] = field(default_factory=dict)

    @property
    def left_gb(self) -> float:
        return self.room_gb - sum(self.claims.values()) - sum(self.asleep.values())


def share_with_strangers(view: View, decide: Callable[[View], Plan]) -> Plan:
    """The plan of `decide` for jobs with devices of their own, and which jobs join which."""
    programs = view.knowledge.programs
    if programs is None:
        return decide(view)
    together = _find_together(view)
    hidden = np.zeros(len(view.table), dtype=bool)
    hidden[[row for rows in together.values() for row in rows]] = True
    mark = view.free.mark()
    plan = decide(view.without(hidden) if hidden.any() else view)
    view.free.rollback(mark)
    plan = _Search(view, programs, plan, together).run()
    return replace(plan, memory_order=order_memory(view, plan.changes, doublings_left))


def _find_together(view: View) -> dict[Device, list[int]]:
    """Rows that have a part of a device which they did not ask for, beside others."""
    parts: dict[Device, list[int]] = {}
    for row, on in enumerate(view.table.allocations):
        if on is not None and on.sharing.share < 1.0 == view.job(row).demand.share:
            for part in on.slices:
                for gpu in part.gpus:
                    parts.setdefault((part.node, gpu), []).append(row)
    return {device: rows for device, rows in parts.items() if not _is_last(view, device, rows)}


def _is_last(view: View, device: Device, rows: Sequence[int]) -> bool:
    """True if one row alone is left of those that shared a device."""
    on = view.allocation(rows[0])
    claimed = view.free.claimed(view.cluster.index[device[0]], device[1])
    return len(rows) == 1 and on is not None and abs(claimed - on.sharing.share) < 1e-6


class _Search:
    """The search for jobs that join others in one decision."""

    def __init__(
        self, view: View, programs: Programs, plan: Plan, together: Mapping[Device, list[int]]
    ) -> None:
        self._view, self._programs, self._plan = view, programs, plan
        self._after: list[Allocation | None] = list(view.table.allocations)
        for job, on in plan.changes.items():
            self._after[view.table.row(job)] = on
        self._joined: dict[JobId, str] = {}
        self._parted = find_parted(view, programs, together)
        for parted in self._parted:
            self._after[view.table.row(parted)] = None
        self._devices = self._find_devices(together)
        self._kinds = {device.kind: device.room_gb for device in self._devices.values()}
        self._full: dict[tuple[str, ...], float] = {}  # needs for which there is no room
        self._unpromised: set[int] = set()  # rows whose promise cannot be judged

    def run(self) -> Plan:
        """The plan with the jobs that join, and all parts of their devices put right."""
        view = self._view
        mark = view.free.mark()
        try:
            self._apply_plan()
            waiting = self._join_all()
            changes = {
                **self._plan.changes,
                **dict.fromkeys(self._parted, None),
                **self._put_right(),
            }
        finally:
            view.free.rollback(mark)
        reasons = {job: text for job, text in self._plan.reasons.items() if job not in self._joined}
        why = self._explain(waiting)
        wakes = [self._plan.wake_at, view.now + AGAIN_S if self._parted else None]
        return replace(
            self._plan,
            changes=changes,
            wake_at=min((at for at in wakes if at is not None), default=None),
            reasons={**reasons, **self._joined, **why, **self._parted},
            blockers={**self._plan.blockers, **dict.fromkeys(why, Blocker.NO_ROOM)},
        )

    def _apply_plan(self) -> None:
        free, table = self._view.free, self._view.table
        for job in (*self._plan.changes, *self._parted):
            if (was := table.allocations[table.row(job)]) is not None:
                free.give(was)
        for on in self._plan.changes.values():
            if on is not None:
                free.take(on)

    # ---- places

    def _find_devices(self, together: Mapping[Device, list[int]]) -> dict[Device, _Residents]:
        """Devices that a job may join: all residents are seen, and none of them objects."""
        rows_on: dict[Device, list[int]] = {}
        for row, on in enumerate(self._after):
            if on is None:
                continue
            for part in on.slices:
                for gpu in part.gpus:
                    rows_on.setdefault((part.node, gpu), []).append(row)
        devices: dict[Device, _Residents] = {}
        for device, rows in rows_on.items():
            if device in together or len(rows) == 1:
                residents = self._see(device, rows)
                if residents is not None:
                    devices[device] = residents
        return devices

    def _see(self, device: Device, rows: Sequence[int]) -> _Residents | None:
        view = self._view
        at = view.cluster.index[device[0]]
        node = view.cluster.nodes[at]
        if not isfinite(node.device_gb) or not all(self._may_have_company(row) for row in rows):
            return None
        seen = sum(on.sharing.share for row in rows if (on := self._after[row]) is not None)
        if view.free.claimed(at, device[1]) - seen > 1e-6:
            return None  # jobs that are not shown here have a part of it
        room_gb = node.device_gb * (1.0 - KEPT_FREE)
        residents = _Residents(node.kind, room_gb)
        residents.asleep.update(self._find_frozen(device, rows, residents))
        for row in sorted(rows):
            residents.claims[row] = self._count(row, self._after[row], residents)
        return residents

    def _find_frozen(
        self, device: Device, rows: Sequence[int], residents: _Residents
    ) -> Iterable[tuple[JobId, float]]:
        """Jobs that are frozen on a device and stay so, with the memory that they keep there."""
        for job, sleeping in self._view.asleep.items():
            if sleeping.rung is not Rung.FREEZE or device not in devices_of(sleeping.on):
                continue
            if (row := self._view.table.find(job)) is None:  # others decide for it
                known_gb = max(sleeping.device_gb, sleeping.on.sharing.gpu_mem_gb or 0.0)
                yield job, known_gb or residents.room_gb
            elif row not in rows:
                yield job, max(sleeping.device_gb, self._count(row, sleeping.on, residents))

    def _may_have_company(self, row: int) -> bool:
        job, on = self._view.job(row), self._after[row]
        if on is None or on.gpus != 1 or on.sharing.tier is not Tier.GUARANTEED:
            return False
        return on.sharing.discipline is Discipline.NONE and _is_shareable(job)

    def _count(self, row: int, on: Allocation | None, residents: _Residents) -> float:
        """Memory that a resident is counted with: what it needs, else what it was given."""
        job = self._view.job(row)
        held_gb = self._programs.held_gb(job)
        if self._waits(job, residents.kind):
            return self._least_gb(job, residents.kind, residents.room_gb)
        need_gb = self._programs.need_gb(job, residents.kind)
        if need_gb is not None and not self._programs.must_be_alone(job, residents.kind):
            return max(need_gb, held_gb)
        if self._programs.must_be_alone(job, residents.kind):
            return residents.room_gb
        trial_gb = None if on is None else on.sharing.gpu_mem_gb
        return max(held_gb, residents.room_gb / 2 if trial_gb is None else trial_gb)

    # ---- joining

    def _join_all(self) -> list[int]:
        """Let rows join, of higher priority and older ones first; those that wait."""
        view, waiting = self._view, list[int]()
        may = [r for r, on in enumerate(self._after) if on is None and _is_shareable(view.job(r))]
        left_out = view.table.suspended | self._parted.keys()
        may = [row for row in may if view.job(row).id not in left_out]
        # A running job that was to leave for others stays beside them, if it can.
        for row in sorted(may, key=lambda r: (self._home(r) is None, *_rank(view.job(r)), r)):
            if not self._is_patient(waiting) or not self._join(row):
                waiting.append(row)
        return waiting

    def _is_patient(self, waiting: Sequence[int]) -> bool:
        waited = self._view.waited()
        return not any(waited[row] > PATIENCE_S for row in waiting if row not in self._unpromised)

    def _join(self, row: int) -> bool:
        job, room, home = self._view.job(row), False, self._home(row)
        if home is not None and (self._stay(row, home) or job.id not in self._view.savers):
            return self._after[row] is not None  # elsewhere it would lose its work
        if self._is_hopeless(job):
            return False
        order = sorted(self._devices.items(), key=lambda entry: (len(entry[1].claims), entry[0]))
        for device, residents in order:
            claim_gb = self._claim(job, residents)
            if claim_gb is None:
                continue
            room = True
            group = [self._view.job(other) for other in residents.claims] + [job]
            if not can_promise(self._programs, job, group, residents.kind):
                self._unpromised.add(row)
            elif gets_on(self._programs, group, residents.kind) and self._take(
                row, device, residents, claim_gb
            ):
                self._unpromised.discard(row)
                return True
        if not room and not self._must_be_alone(job):
            need_gb = self._least_need(job)
            self._full[job.demand.kinds] = min(need_gb, self._full.get(job.demand.kinds, inf))
        return False

    def _home(self, row: int) -> Device | None:
        """The one device where a row runs or sleeps; None if it has none, or several."""
        on, sleeping = self._view.allocation(row), self._view.asleep.get(self._view.job(row).id)
        on = sleeping.on if on is None and sleeping is not None else on
        if on is None or on.gpus != 1:
            return None
        part = next(part for part in on.slices if part.gpus)
        return part.node, part.gpus[0]

    def _stay(self, row: int, home: Device) -> bool:
        """Let a row go on where it is, beside the jobs that were to take its place."""
        residents = self._devices.get(home)
        if residents is None or len(residents.claims) >= RESIDENTS:
            return False
        job, on = self._view.job(row), self._view.allocation(row)
        kept_gb = residents.asleep.pop(job.id, 0.0)
        now_gb = max(self._count(row, on, residents), kept_gb)
        group = [self._view.job(other) for other in residents.claims] + [job]
        fits = now_gb <= residents.left_gb and gets_on(self._programs, group, residents.kind)
        if fits and self._take(row, home, residents, now_gb):
            return True
        if kept_gb:
            residents.asleep[job.id] = kept_gb
        return False

    def _must_be_alone(self, job: Job) -> bool:
        return any(self._programs.must_be_alone(job, kind) for kind in self._kinds)

    def _is_hopeless(self, job: Job) -> bool:
        """True if a job that needs no more found no room: those that join only take some."""
        return self._least_need(job) >= self._full.get(job.demand.kinds, inf)

    def _least_need(self, job: Job) -> float:
        """Memory without which it joins no other job, on the kind where that is least."""
        least = inf
        for kind, room_gb in self._kinds.items():
            least = min(least, self._least_gb(job, kind, room_gb))
        return least

    def _least_gb(self, job: Job, kind: str, room_gb: float) -> float:
        """Memory without which it joins no other job on a kind."""
        need_gb = self._programs.need_gb(job, kind)
        if self._waits(job, kind):
            usual_gb = self._programs.usual_gb(job, kind)
            known_gb = need_gb if usual_gb is None else usual_gb
            return WAITING_GB if known_gb is None else min(known_gb, room_gb)
        return room_gb * LEAST_TRIAL if need_gb is None else need_gb

    def _waits(self, job: Job, kind: str) -> bool:
        return self._programs.waits(job) and not self._programs.must_be_alone(job, kind)

    def _claim(self, job: Job, residents: _Residents) -> float | None:
        """The memory that a job is given beside these; None where it cannot join them."""
        kind = residents.kind
        if len(residents.claims) >= RESIDENTS or (
            job.demand.kinds and kind not in job.demand.kinds
        ):
            return None
        if self._programs.must_be_alone(job, kind):
            return None
        need_gb, left_gb = self._programs.need_gb(job, kind), residents.left_gb
        least = self._least_gb(job, kind, residents.room_gb)
        if left_gb < least:
            return None
        if self._waits(job, kind):
            return least
        return need_gb if job.gpu_mem_gb is not None else max(least, left_gb / 2)

    def _take(self, row: int, device: Device, residents: _Residents, claim_gb: float) -> bool:
        """Make room for a row beside these, in the ledger too; False where it has no place."""
        members = {**residents.claims, row: claim_gb}
        free, mark = self._view.free, self._view.free.mark()
        for other in residents.claims:
            if (on := self._after[other]) is not None:
                free.give(on)
        made = {
            member: _place(free, device, 1.0 / len(members), gb) for member, gb in members.items()
        }
        try:
            for on in made.values():
                free.take(on)
        except PlanError:
            free.rollback(mark)
            return False
        self._after[row] = made[row]
        for other in residents.claims:
            self._after[other] = _keep_terms(self._after[other], made[other])
        residents.claims[row] = claim_gb
        self._joined[self._view.job(row).id] = self._describe(row, device, residents)
        return True

    # ---- afterwards

    def _put_right(self) -> dict[JobId, Allocation | None]:
        """Changes of jobs that stay: equal parts of a device, all of it for a job alone there."""
        view, changes = self._view, dict[JobId, Allocation | None]()
        for device, residents in self._devices.items():
            count = len(residents.claims)
            for row, claim_gb in residents.claims.items():
                on, was = self._after[row], view.allocation(row)
                if on is None:
                    continue
                if not np.isclose(on.sharing.share, 1.0 / count):
                    # A job that is alone again was started with a limit, and may still keep to it.
                    gb = on.sharing.gpu_mem_gb if count == 1 else claim_gb
                    to = _place(view.free, device, 1.0 / count, gb)
                    on = _keep_terms(on, to)
                if on != was:
                    changes[view.job(row).id] = on
        return changes

    def _describe(self, row: int, device: Device, residents: _Residents) -> str:
        others = [self._view.job(other).id for other in residents.claims if other != row]
        names = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        return (
            f"shares GPU {device[1]} of {device[0]} with {names}; "
            f"{residents.claims[row]:.3g} GB of its memory are set aside for it"
        )

    def _explain(self, waiting: Iterable[int]) -> dict[JobId, str]:
        """Reasons why rows that could share do not."""
        reasons = {}
        for row in waiting:
            job = self._view.job(row)
            if job.id not in self._plan.reasons and job.id not in self._view.asked:
                continue
            if self._must_be_alone(job):
                reasons[job.id] = "it runs alone, as memory or a GPU fault ended it beside others"
            elif row in self._unpromised:
                reasons[job.id] = (
                    f"waits for a GPU with fewer than {PROMISES} other jobs that were promised a "
                    "slowdown, as it is not known yet whether the promise to one more can be kept"
                )
            elif self._kinds:
                reasons[job.id] = "no shared GPU has enough memory left for it"
        return reasons


def _rank(job: Job) -> tuple[float, float]:
    """Higher priority first, then the oldest."""
    return -job.priority, job.submitted


def _is_shareable(job: Job) -> bool:
    demand = job.demand
    return job.shareable and demand.gpus == 1 and demand.share == 1.0 and demand.nodes <= 1


def _place(free: Capacity, device: Device, share: float, gb: float | None) -> Allocation:
    at = free.cluster.index[device[0]]
    part = free.slice_of(at, 1 << device[1], share)
    return Allocation((part,), Sharing(share=share, gpu_mem_gb=gb))


def _keep_terms(was: Allocation | None, to: Allocation) -> Allocation:
    """An allocation with the batch and time shift of the one before."""
    return to if was is None else replace(to, batch=was.batch, time_shift=was.time_shift)
