"""Singularity: tiers of service by GPU fraction; jobs shrink, grow and move, and lose nothing.

Paper       Shukla et al., "Singularity: Planet-scale, preemptive and elastic scheduling of AI
            workloads", arXiv 2202.07848, 2022.
Objective   the part of its GPU time that each tier is guaranteed over a window, then no idle
            device.
Needs       nothing of jobs but what they ask for: `priority` above normal is the premium tier,
            below it (or opportunistic) the basic one, else standard; the least size is one replica.
Controls    who runs, on how many of the GPUs it asks for (any divisor), and where.
Cost        O(jobs log jobs) for sizes, and O(nodes) for each job that starts, grows or moves; a
            move for others looks at every node of the kind.
Deviations  the paper has goals and mechanisms, and no scheduling policy: this is our own. A premium
            job below its full size, and a standard one near its target, get all they can use before
            anybody else, first those that hold most of it; then everybody their least, what they
            hold, and the rest by what it adds to the throughput for each device. Jobs are resized
            within what their demand allows: a rigid one keeps its size. Speeds on fewer devices are
            a law of four parts (`--perf splicing` makes it true), not measured. One region; a node
            is the domain that a gang should not leave, and a gang that no move can help is spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from weft.core.errors import bad_values
from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.memory import recall
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, Knowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.formulas.sharing.splicing import Checkpoint, Iteration, find_legal_sizes
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable
from weft.policies.singularity.place import Placing, Price, forget
from weft.policies.singularity.sizes import Claim, Tier, choose_sizes, tier_of

ABOUT = About(
    "singularity",
    "Shukla et al. 2022",
    controls=Controls.COUNT,
    starves="a basic job waits while jobs of higher tiers want every device",
    idles="sizes divide what a job asked for",
    ties=Ties.NONE,
    taxonomy=classify(
        Objective.GUARANTEES | Objective.UTILIZATION,
        Knowledge.NOTHING,
        Preemption.STOPS | Preemption.RESIZES | Preemption.MOVES,
        Elasticity.GPUS,
    ),
)
NEAR, CURED = 0.1, 0.3  # so far above its target a standard job is safe, and well off again


@frozen
class SingularityMemory:
    """What jobs held since when, within the window, and when they were moved for others."""

    held: Mapping[JobId, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    moved: Mapping[JobId, float] = field(default_factory=dict)


@frozen
class Singularity:
    """GPU fractions of `premium` and `standard` over `window` seconds; basic is best effort.

    Guarantees are looked at every `review` seconds while somebody has less than it asked for. A
    move that puts a gang on one node is worth `gain_s` seconds of each of its devices; a job is
    moved at most once in `rest_s` seconds.
    """

    premium: float = 0.95
    standard: float = 0.70
    window: float = 3600.0
    review: float = 300.0
    gain_s: float = 120.0
    rest_s: float = 1800.0

    about = ABOUT

    def __post_init__(self) -> None:
        if not 0.0 <= self.standard <= self.premium <= 1.0 or min(self.window, self.review) <= 0.0:
            raise bad_values(
                "singularity",
                self,
                "premium standard window review",
                "0 <= standard <= premium <= 1, and times are above 0",
            )

    def decide(self, view: View) -> Plan:
        """Deficits, sizes, places."""
        if view.empty:
            return Plan()
        memory = recall(view, SingularityMemory)
        held = self._account(view, memory)
        claims = [self._claim(view, row, held) for row in self._whole(view)]
        mark = view.free.mark()
        sizes = choose_sizes(claims, _room(view), Iteration())
        price = Price(self.gain_s, self.rest_s, Checkpoint())
        placing = Placing(view, price, forget(memory.moved, view))
        changes = placing.place(sizes)
        view.free.rollback(mark)
        after = {
            job: add_point(points, view.now, _gpus(view, job, changes), view.now - self.window)
            for job, points in held.items()
        }
        short = any(after[view.job(c.row).id][-1][1] < c.sizes[-1] for c in claims)
        return Plan(
            {job: to for job, to in changes.items() if to != view.holds(job)},
            wake_at=view.now + self.review if short else None,
            memory=SingularityMemory(after, placing.moved),
        )

    def _account(
        self, view: View, memory: SingularityMemory
    ) -> dict[JobId, tuple[tuple[float, float], ...]]:
        """What every job held up to now; a loss since the last decision happened just now."""
        oldest, held = view.now - self.window, {}
        for row, job in enumerate(view.table.jobs):
            points = memory.held.get(job.id, ((job.submitted, 0.0),))
            held[job.id] = add_point(points, view.now, float(view.table.held[row]), oldest)
        return held

    def _whole(self, view: View) -> list[int]:
        """Rows whose devices are decided on: all but those that share one already."""
        shared = [job.demand.share < 1.0 for job in view.table.jobs]
        return np.flatnonzero(~(np.array(shared) & view.running())).tolist()

    def _claim(
        self, view: View, row: int, held: Mapping[JobId, tuple[tuple[float, float], ...]]
    ) -> Claim:
        job, on = view.job(row), view.allocation(row)
        tier, asked = tier_of(job), job.demand.gpus
        since = max(view.now - self.window, job.submitted)
        has = 0 if on is None else on.gpus
        fraction = gpu_fraction(held[job.id], asked, since, view.now) if view.now > since else 0.0
        target = (self.premium, self.standard, 0.0)[tier]
        sizes = find_legal_sizes(asked, job.demand.min)
        safe = target + (CURED if has == asked else NEAR)
        return Claim(
            row,
            tier,
            target - fraction if tier is not Tier.BASIC else 0.0,
            sizes if has in (0, *sizes) else tuple(sorted({*sizes, has})),
            (view.cluster.kind_of(on),) if on is not None else acceptable(job, view.free),
            has,
            urgent=tier is Tier.PREMIUM or (tier is Tier.STANDARD and fraction < safe),
            firm=on is not None and not job.preemptible,
        )


def _room(view: View) -> dict[str, int]:
    """Devices of each kind that are idle, or held by jobs that have them whole."""
    room = dict(zip(view.free.kinds, view.free.idle_by_kind(), strict=True))
    for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
        if on is not None and job.demand.share == 1.0:
            room[view.cluster.kind_of(on)] += on.gpus
    return room


def _gpus(view: View, job: JobId, changes: Mapping[JobId, Allocation | None]) -> float:
    """Devices of a job once the changes are made."""
    on = changes.get(job, view.holds(job))
    return 0.0 if on is None else float(on.gpus)


# GPU fraction: device time received over that of an uninterrupted run at full size.

Points = Sequence[tuple[float, float]]  # (from when on, devices held), in order of time


def gpu_fraction(points: Points, asked: float, since: float, until: float) -> float:
    """Of the time from `since` to `until`; more devices than `asked` count for no more.

    1 where there is no time yet.
    """
    if until <= since or asked <= 0.0:
        return 1.0
    received = 0.0
    for i, (at, gpus) in enumerate(points):
        end = points[i + 1][0] if i + 1 < len(points) else until
        seconds = min(end, until) - max(at, since)
        if seconds > 0.0:
            received += seconds * min(gpus, asked)
    return received / (asked * (until - since))


def window_fractions(points: Points, asked: float, window: float, end: float) -> list[float]:
    """Of each window since the first point, the last one cut at `end`."""
    fractions, since = [], points[0][0]
    while since < end - 1e-6:
        until = min(since + window, end)
        fractions.append(gpu_fraction(points, asked, since, until))
        since = until
    return fractions


def add_point(
    points: Points, at: float, gpus: float, oldest: float
) -> tuple[tuple[float, float], ...]:
    """With one more change, without what ended before `oldest`."""
    kept: Iterable[tuple[float, float]] = points
    if not points or points[-1][1] != gpus:
        kept = (*(point for point in points if point[0] < at), (at, gpus))
    known = tuple(kept)
    first = max((i for i, (when, _) in enumerate(known) if when <= oldest), default=0)
    return known[first:]
