"""Network links that jobs share under a placement, their compatibility, and time shifts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import truediv
from statistics import fmean
from typing import Literal

from weft.core.model.job import Allocation, JobId, TimeShift
from weft.core.plan.view import View
from weft.frozen import frozen
from weft_papers.cassini.circles import Circle, choose_grid, circle_of, round_periods
from weft_papers.cassini.compatibility import (
    LinkFit,
    find_groups,
    fit_link,
    has_loop,
    merge_links,
    unite_shifts,
)

DIGITS = 6  # of a score: links that differ by less are alike
SHIFT_DIGITS = 9  # of a second: less than that is rounding
EPS = 1e-9
Over = Literal["mean", "least", "total"]  # how the scores of links make that of a placement
OVER: Mapping[Over, Callable[[list[float]], float]] = {
    "mean": fmean,
    "least": min,
    "total": lambda scores: 1.0 - sum(1.0 - score for score in scores),
}
PARTS = (1, 2, 3)  # of one job's period, as a grid for the others'
MOST_LONGER = 1.15  # periods than iterations
MOST_GRIDS = 4
MOST_HARMONIC = 12  # jobs that hang together for which coarser grids are tried


@frozen
class Crossing:
    """Jobs that share links: those on each link, its Gbit/s, and one iteration of every job."""

    shared: Mapping[str, tuple[JobId, ...]]
    gbps: Mapping[str, float]
    circles: Mapping[JobId, Circle]

    @property
    def loops(self) -> bool:
        """True if the shifts of its links may contradict each other."""
        return has_loop(self.shared)

    def without_loops(self) -> Crossing:
        """Return the crossing without the links that hang together in loops."""
        kept = [
            link
            for group in find_groups(self.shared)
            if not has_loop({link: self.shared[link] for link in group})
            for link in group
        ]
        return Crossing({link: self.shared[link] for link in kept}, self.gbps, self.circles)

    def break_loops(self) -> Crossing:
        """Return the crossing without the links that need shifts least, until there is no loop."""
        shared = dict(self.shared)
        ease = {link: self.fit(link, self.circles).unshifted for link in shared}
        for link in sorted(shared, key=lambda link: -ease[link]):
            if not has_loop(shared):
                break
            if _is_in_loop(shared, link):
                del shared[link]
        return Crossing(shared, self.gbps, self.circles)

    def fit(self, link: str, circles: Mapping[JobId, Circle]) -> LinkFit:
        """Fit the jobs of a link together, with iterations drawn on `circles`."""
        on_it = tuple(circles[job] for job in self.shared[link])
        return fit_link(on_it, self.gbps[link])


@frozen
class Shifts:
    """Compatibility of a placement, and the start of each job's iterations on shared links."""

    score: float
    shifts: Mapping[JobId, TimeShift]


def find_crossing(view: View, held: Mapping[JobId, Allocation]) -> Crossing:
    """The links that two jobs or more of `held` cross and fill, as far as jobs say what they send.

    Jobs that a link can carry all at once do not hinder each other there.
    """
    crossed: dict[JobId, list[str]] = {}
    circles: dict[JobId, Circle] = {}
    gbps: dict[str, float] = {}
    for job, on in held.items():
        if len(on.slices) < 2:
            continue
        traffic = view.job(view.table.row(job)).traffic
        if traffic is None or not traffic.talking:
            continue
        links = view.cluster.crossed(on)
        gbps.update((link.name, link.gbps) for link in links)
        crossed[job] = [link.name for link in links]
        circles[job] = circle_of(traffic)
    shared = {
        link: jobs
        for link, jobs in merge_links(crossed, gbps).items()
        if sum(circles[job].peak_gbps for job in jobs) > gbps[link]
    }
    return Crossing(shared, gbps, circles)


def shift_jobs(
    crossing: Crossing,
    beats: Mapping[JobId, TimeShift],
    *,
    headroom: float = 0.0,
    over: Over = "mean",
) -> Shifts:
    """Turn the jobs of every link against each other, and unite that to one shift a job.

    Of jobs that hang together the first that has one of `beats` keeps it. Loops are broken. Periods
    are longer than iterations by `headroom`, a part of them; jobs that would lose more by that than
    they meet by chance are not shifted.
    The score is the mean of those of links, the least, or 1 less what all lack, each less what
    longer periods cost; 1 where no link is shared.
    """
    if crossing.loops:
        crossing = crossing.break_loops()
    scores: list[float] = []
    shifts: dict[JobId, TimeShift] = {}
    for group in find_groups(crossing.shared):
        jobs = list(dict.fromkeys(job for link in group for job in crossing.shared[link]))
        circles, fits, cost = _turn(crossing, group, jobs, 1.0 + headroom)
        if sum(fit.score - fit.by_chance for fit in fits.values()) <= cost * len(fits):
            scores += [fit.by_chance for fit in fits.values()]
            continue
        scores += [fit.score - cost for fit in fits.values()]
        by_link = {
            link: dict(zip(crossing.shared[link], fit.shifts_s, strict=True))
            for link, fit in fits.items()
        }
        periods = {job: circles[job].period_s for job in jobs}
        kept = {
            job: beats[job].shift_s
            for job in jobs
            if job in beats and beats[job].period_s == periods[job]
        }
        for job, shift in unite_shifts(periods, by_link, kept).items():
            shift = round(shift, SHIFT_DIGITS)
            shifts[job] = TimeShift(periods[job], shift if shift < periods[job] else 0.0)
    return Shifts(round(OVER[over](scores), DIGITS) if scores else 1.0, shifts)


Turned = tuple[dict[JobId, Circle], dict[str, LinkFit], float]


def _turn(crossing: Crossing, group: list[str], jobs: list[JobId], stretch: float) -> Turned:
    """Iterations of jobs on circles, how they get on there, and what longer periods cost.

    Of several grids that periods could be rounded up to, the one that leaves most: on a coarser
    one jobs wait longer, and meet less.
    """
    best: tuple[float, Turned] | None = None
    for circles in _on_grids(crossing, group, jobs, stretch):
        longer = [circles[job].period_s / crossing.circles[job].period_s for job in jobs]
        cost = sum(longer) / len(longer) - 1.0
        fits = {link: crossing.fit(link, circles) for link in group}
        left = sum(fit.score for fit in fits.values()) / len(fits) - cost
        if best is None or left > best[0] + EPS:
            best = (left, (circles, fits, cost))
    assert best is not None
    return best[1]


def _on_grids(
    crossing: Crossing, group: list[str], jobs: list[JobId], stretch: float
) -> Iterator[dict[JobId, Circle]]:
    """Iterations with periods on the finest grid that closes circles, then on some coarser ones."""
    circles = crossing.circles
    longer = {job: stretch * circles[job].period_s for job in jobs}
    periods = list(longer.values())
    finest = choose_grid([[longer[job] for job in crossing.shared[link]] for link in group])
    rounded = [round_periods(periods, finest)]
    if len(jobs) <= MOST_HARMONIC:
        parts = {round_periods([period])[0] / k for period in periods for k in PARTS}
        rounded += [
            lengths
            for grid in sorted(parts, reverse=True)
            if max(map(truediv, lengths := round_periods(periods, grid), periods)) <= MOST_LONGER
        ][:MOST_GRIDS]
    for lengths in rounded:
        yield {job: circles[job].stretched(at) for job, at in zip(jobs, lengths, strict=True)}


def _is_in_loop(shared: Mapping[str, tuple[JobId, ...]], link: str) -> bool:
    """Return true if two jobs of a link are joined without it as well."""
    others = {other: jobs for other, jobs in shared.items() if other != link}
    for group in find_groups(others):
        met = {job for other in group for job in others[other]}
        if len(met.intersection(shared[link])) > 1:
            return True
    return False
