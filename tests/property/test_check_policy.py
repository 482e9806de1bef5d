"""The checker is checked: each broken promise is caught, with a message that says which."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from weft.core.errors import PlanError
from weft.core.model.job import Allocation, Batch, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import TableColumns
from weft.pieces.pack import backfill
from weft.pieces.place.gangs import most_nodes
from weft.policies.fifo import Fifo
from weft.testing import check_policy

ABOUT = About("bad", "test", idles="for the sake of the test")


def sound(view: View) -> Plan:
    """What a good policy would do: start whatever fits, in order."""
    return backfill(view, np.arange(len(view.table)))


def waiting(view: View) -> list[int]:
    return [row for row, held in enumerate(view.table.held) if not held]


def changed(view: View, to: Any) -> Plan:
    """The good plan with every allocation passed through `to(job, allocation)`."""
    plan = sound(view)
    changes = {
        job: None if on is None else to(view.job(view.table.row(job)), on)
        for job, on in plan.changes.items()
    }
    return replace(plan, changes=changes)


@dataclass(frozen=True)
class OverAllocates:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        """Gives everybody who wants one GPU the same one."""
        plan = sound(view)
        alike = [view.job(row).id for row in waiting(view) if view.job(row).demand == Demand(1)]
        first = next((plan.changes[job] for job in alike if job in plan.changes), None)
        return replace(plan, changes={**plan.changes, **dict.fromkeys(alike, first)})


@dataclass(frozen=True)
class GivesGhosts:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        nowhere = Allocation((Slice(NodeId("ghost"), (0,)),))
        return Plan({view.job(row).id: nowhere for row in waiting(view)})


@dataclass(frozen=True)
class SplitsGangs:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        """Starts the part of a gang that fits on its first node."""

        def first_node(job: object, on: Allocation) -> Allocation:
            part = on.slices[0]
            half = part.gpus[: max(1, len(part.gpus) // 2)]
            return replace(on, slices=(replace(part, gpus=half),))

        return changed(view, first_node)


@dataclass(frozen=True)
class NeverRests:
    about = ABOUT
    rests = True

    def decide(self, view: View) -> Plan:
        """Says that it rests, and wants to be asked again and again."""
        return replace(sound(view), wake_at=view.now + 3600.0)


@dataclass(frozen=True)
class StartsElsewhere(Fifo):
    def fast_start(self, job: Job, free: Capacity, now: float) -> Plan | None:
        """Says of a newcomer that it spreads, and packs it."""
        del now
        on = most_nodes(job, free)
        return None if on is None else Plan({job.id: on})


@dataclass(frozen=True)
class IgnoresKinds:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        free = view.free
        changes: dict[JobId, Allocation | None] = {}
        for row in waiting(view):
            demand = view.job(row).demand
            nodes = range(len(view.cluster.nodes))
            node = next((i for i in nodes if free.on(i) >= demand.gpus), None)
            if node is not None and demand.share == 1.0:
                on = Allocation((free.slice(node, demand.gpus),))
                free.take(on)
                changes[view.job(row).id] = on
        return Plan({**sound(view).changes, **changes})


@dataclass(frozen=True)
class RollsDice:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        order = list(range(len(view.table)))
        random.shuffle(order)
        return backfill(view, np.array(order, dtype=np.intp))


@dataclass(frozen=True)
class RemembersSecretly:
    about = ABOUT
    seen: list[int] = field(default_factory=list)

    def decide(self, view: View) -> Plan:
        """Skips the first job every few decisions, by a counter that no memory holds."""
        self.seen.append(1)
        skip = len(self.seen) % 7 == 3
        return backfill(view, np.arange(len(view.table))[int(skip) :])


@dataclass(frozen=True)
class MutatesTheTable:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        view.table.column(TableColumns.PRIORITY)[:] += 1.0
        return sound(view)


@dataclass(frozen=True)
class MutatesHistory:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        view.history[:] = 0.0
        return sound(view)


@dataclass
class Tally:
    count: int = 0


@dataclass(frozen=True)
class MutatesItsMemory:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        tally = view.memory if isinstance(view.memory, Tally) else Tally()
        tally.count += 1
        return replace(sound(view), memory=tally)


@dataclass(frozen=True)
class Unsaved:
    seen: Any


@dataclass(frozen=True)
class KeepsWhatCannotBeSaved:
    about = ABOUT
    thing: Any

    def decide(self, view: View) -> Plan:
        return replace(sound(view), memory=Unsaved(self.thing))


@dataclass(frozen=True)
class KeepsADictionary:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        return replace(sound(view), memory={"seen": 1})


@dataclass(frozen=True)
class StarvesGangs:
    about = ABOUT
    sleepless: bool = False

    def decide(self, view: View) -> Plan:
        small = np.flatnonzero(view.table.gpus < 8)
        wake = view.now + 60.0 if self.sleepless else None
        return replace(backfill(view, small), wake_at=wake)


@dataclass(frozen=True)
class RejectsGangs:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        large = [row for row in range(len(view.table)) if view.table.gpus[row] >= 8]
        return Plan(
            backfill(view, np.flatnonzero(view.table.gpus < 8)).changes,
            rejected={view.job(row).id: "too large for my taste" for row in large},
        )


@dataclass(frozen=True)
class StretchesJobs:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        """Gives elastic jobs all they could use, without saying that it sets counts."""
        free, changes = view.free, {}
        for row in waiting(view):
            job = view.job(row)
            for i in range(len(view.cluster.nodes)):
                most = job.demand.max
                if not job.demand.rigid and free.on(i) >= most:
                    changes[job.id] = Allocation((free.slice(i, most),))
                    free.take(changes[job.id])
                    break
        return Plan({**sound(view).changes, **changes})


@dataclass(frozen=True)
class TunesBatches:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        def tuned(job: Any, on: Allocation) -> Allocation:
            return on if job.batch is None else replace(on, batch=Batch(64))

        return changed(view, tuned)


@dataclass(frozen=True)
class StarvesHosts:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        def frugal(job: object, on: Allocation) -> Allocation:
            return replace(on, slices=tuple(replace(part, cpus=1.0) for part in on.slices))

        return changed(view, frugal)


@dataclass(frozen=True)
class WakesInThePast:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        return replace(sound(view), wake_at=view.now - 5.0)


@dataclass(frozen=True)
class Sleeper:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        return Plan()


@dataclass(frozen=True)
class Hoards:
    about = About("bad", "test")

    def decide(self, view: View) -> Plan:
        """Keeps the last job waiting while anybody runs."""
        rows = np.arange(len(view.table))
        return backfill(view, rows[:-1] if view.running().any() else rows)


@dataclass(frozen=True)
class NeverGrows:
    about = About("bad", "test", controls=Controls.COUNT)

    def decide(self, view: View) -> Plan:
        return sound(view)


@dataclass
class Thawed:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        return sound(view)


class Plain:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        return sound(view)


@dataclass(frozen=True)
class Nameless:
    about = About("", "test")

    def decide(self, view: View) -> Plan:
        return sound(view)


@dataclass(frozen=True)
class Fails:
    about = ABOUT

    def decide(self, view: View) -> Plan:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (OverAllocates(), "devices that it cannot have: GPU 0 of .* is claimed to 1.00 already"),
        (GivesGhosts(), "gives GPUs that do not exist"),
        (SplitsGangs(), r"gives '\w+' \d GPUs?; it takes (\d) to \1"),
        (IgnoresKinds(), r"puts '\w+' on \['\w+'\]; it takes \('\w+',\)"),
        (RollsDice(), "gives two plans for one view: it draws numbers that are not view.rng's"),
        (RemembersSecretly(), "two plans for one view.* keeps something outside Plan.memory"),
        (MutatesTheTable(), "changes the view"),
        (MutatesHistory(), "changes the view"),
        (MutatesItsMemory(), "changes the view"),
        (KeepsADictionary(), "keeps dict as memory, not a dataclass"),
        (KeepsWhatCannotBeSaved({1, 2}), "memory does not survive JSON"),
        (KeepsWhatCannotBeSaved(Plain()), "memory does not survive JSON"),
        (KeepsWhatCannotBeSaved({1: 2}), "memory does not survive JSON"),
        (StarvesGangs(), r"leaves \d+ jobs waiting forever"),
        (StarvesGangs(sleepless=True), r"starves j\d+ and does not say why"),
        (RejectsGangs(), "starves jobs and does not say why"),
        (StretchesJobs(), r"gives '\w+' \d+ GPUs; it takes (\d+) to \1"),
        (TunesBatches(), "sets the batch of .* without declaring Controls.BATCH"),
        (StarvesHosts(), "sets the host part of .* without declaring Controls.HOST"),
        (WakesInThePast(), "asked at .* to be woken at"),
        (NeverRests(), "says that it rests, but acts"),
        (StartsElsewhere(), "decides otherwise about a newcomer than `fast_start`"),
        (Sleeper(), "leaves a lone job waiting"),
        (Hoards(), r"leaves GPUs idle and does not say why: \w+ waits although it could start"),
        (NeverGrows(), r"leaves GPUs idle and does not say why: \w+ holds \d+ of \d+"),
        (Thawed(), "is not frozen"),
        (Plain(), "is not a dataclass"),
        (Nameless(), "a policy needs a name"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_a_bad_policy_is_caught_and_told_why(policy: Policy, message: str) -> None:
    with pytest.raises((AssertionError, PlanError), match=message):
        check_policy(policy)


def test_a_policy_that_fails_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        check_policy(Fails())


def test_a_good_policy_passes() -> None:
    check_policy(Fifo())


@dataclass(frozen=True)
class Sum:
    total: float
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Honest:
    """Declares what it sets and saves what it keeps."""

    about = About("honest", "test", controls=Controls.BATCH | Controls.HOST)

    def decide(self, view: View) -> Plan:
        def tuned(job: object, on: Allocation) -> Allocation:
            lean = tuple(replace(part, cpus=1.0) for part in on.slices)
            return replace(on, slices=lean, batch=Batch(16))

        old = view.memory if isinstance(view.memory, Sum) else Sum(0.0, ())
        memory = Sum(old.total + view.now, (*old.parts[-3:], view.decision))
        return replace(changed(view, tuned), memory=memory)


def test_what_is_declared_and_saved_is_accepted() -> None:
    check_policy(Honest())


def test_another_seed_draws_other_jobs_and_a_good_policy_still_passes() -> None:
    check_policy(Fifo(), seed=7)
