"""Device counts of all jobs: guarantees first, then the least of each, then the rest."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from weft.core.model.job import Job
from weft.core.model.job import Tier as Hold
from weft.frozen import frozen
from weft_papers.singularity.splicing import Iteration


class ServiceTier(IntEnum):
    """The part of its GPU time that a job is guaranteed."""

    PREMIUM = 0
    STANDARD = 1
    BASIC = 2


def tier_of(job: Job) -> ServiceTier:
    """Above normal priority premium, below it or opportunistic basic, else standard."""
    if job.priority < 0.0 or job.tier is Hold.OPPORTUNISTIC:
        return ServiceTier.BASIC
    return ServiceTier.PREMIUM if job.priority > 0.0 else ServiceTier.STANDARD


@frozen
class Claim:
    """Sizes that one row could use, from the least to the full one, on any of `kinds`.

    `deficit` is what it lacks of its guarantee; `urgent` says that it must get all it can now. Who
    is `firm` keeps what it holds.
    """

    row: int
    tier: ServiceTier
    deficit: float
    sizes: tuple[int, ...]
    kinds: tuple[str, ...]
    held: int = 0
    urgent: bool = False
    firm: bool = False


Sizes = dict[int, tuple[str, int]]  # row to kind and devices


def choose_sizes(claims: Sequence[Claim], room: dict[str, int], law: Iteration) -> Sizes:
    """Kind and size of every row that runs; who is not in it waits."""
    deal = _Deal(dict(room))
    for claim in (firm for firm in claims if firm.firm):
        deal.grant(claim, claim.held)
    rest = [claim for claim in claims if not claim.firm]
    for tier in (ServiceTier.PREMIUM, ServiceTier.STANDARD):
        urgent = _ranked(claim for claim in rest if claim.tier is tier and claim.urgent)
        # Jobs at full size stay there: too few devices for all should not fail all.
        urgent.sort(key=lambda claim: -claim.held / claim.sizes[-1])
        deal.each(urgent, lambda claim: claim.sizes[0])
        deal.each(urgent, lambda claim: claim.sizes[-1])
    others = sorted(_ranked(rest), key=lambda claim: (claim.tier, not claim.held))
    deal.each(others, lambda claim: claim.sizes[0])
    deal.each(others, lambda claim: claim.held)
    deal.hand_out(rest, law)
    return deal.sizes


def _ranked(claims: Iterable[Claim]) -> list[Claim]:
    """The largest deficit first; of equals the earlier."""
    return sorted(claims, key=lambda claim: (-round(claim.deficit, 9), claim.row))


class _Deal:
    """Devices left of each kind, and what rows have got so far."""

    def __init__(self, room: dict[str, int]) -> None:
        self._room = room
        self.sizes: Sizes = {}

    def each(self, claims: Sequence[Claim], wanted: Callable[[Claim], int]) -> None:
        """Grow each in turn towards what is wanted, as far as there is room."""
        for claim in claims:
            limit = wanted(claim)
            for size in reversed([fitting for fitting in claim.sizes if fitting <= limit]):
                if size <= self._has(claim) or self.grant(claim, size):
                    break

    def grant(self, claim: Claim, size: int) -> bool:
        """Give a row this many devices if its kind has them; a new row goes where most are left."""
        has = self._has(claim)
        kinds = (self.sizes[claim.row][0],) if claim.row in self.sizes else claim.kinds
        kind = max(kinds, key=lambda other: self._room.get(other, 0), default=None)
        if kind is None or self._room.get(kind, 0) < size - has:
            return False  # all nodes of its kinds may be away
        self._room[kind] -= size - has
        self.sizes[claim.row] = (kind, size)
        return True

    def _has(self, claim: Claim) -> int:
        return self.sizes[claim.row][1] if claim.row in self.sizes else 0

    def hand_out(self, claims: Sequence[Claim], law: Iteration) -> None:
        """Grow the job that gains most per device by its next size, until none can use more."""
        heap = [offer for claim in claims for offer in self._offer(claim, law)]
        heapq.heapify(heap)
        by_row = {claim.row: claim for claim in claims}
        while heap:
            *_, row, size = heapq.heappop(heap)
            claim = by_row[row]
            if size > self._has(claim) and self.grant(claim, size):
                for offer in self._offer(claim, law):
                    heapq.heappush(heap, offer)

    def _offer(self, claim: Claim, law: Iteration) -> list[tuple[float, int, int, int]]:
        """Every larger size, by what it adds to the throughput for each device."""
        has, full = self._has(claim), claim.sizes[-1]
        offers = []
        for size in (larger for larger in claim.sizes if larger > has):
            gain = full * (law.speed(size, full) - law.speed(has, full)) / (size - has)
            offers.append((-round(gain, 9), int(claim.tier), claim.row, size))
        return offers
