"""Two jobs on the same devices as a choice of a program that gives each job one size.

At the prices of a program a pair is worth what both make there together, less the one price. Pairs
that beat what their jobs would have alone are matched, the best first, and the program is solved
again with each pair as one job; then who would still wait may join who runs. So is the program with
all pairs as they are now: matching the best first would part some of them for little. The best of
all answers counts, so that sharing is chosen only where it gains by the program's own measure.
A running job is joined where it is: it is not moved to share.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from weft.core.model import Config, JobId
from weft.core.table import Bools, Floats, Rows
from weft.core.view import View
from weft.pieces.share.pair_speeds import PairSpeeds, read_pair_speeds
from weft.pieces.share.partners import Partners, may_share
from weft.pieces.size.hurried import Worth
from weft.solve.multiple_choice import Answer

ROUNDS = 2
FOLLOWERS = 128  # rows without devices that are looked at, the heaviest first
NEAREST = 8  # leaders that each of them is offered
Solve = Callable[[Floats, Floats], Answer]  # values and first prices to an answer
Improve = Callable[[Answer, Solve], "Shared"]


class Pair(NamedTuple):
    """Two rows on devices of one size, and what each keeps of its speed alone there."""

    leader: int
    follower: int
    size: int
    speeds: tuple[float, float]


class Shared(NamedTuple):
    """Sizes of all rows, those of pairs included, and who shares."""

    answer: Answer
    pairs: tuple[Pair, ...] = ()


class _Offer(NamedTuple):
    gain: float
    pair: Pair
    worth: float


def share_devices(
    view: View, configs: tuple[Config, ...], worth: Worth, alone: Worth, held: Floats, now: Partners
) -> Improve:
    """A function that improves an answer of one size a job by pairs.

    `worth` is what sizes are worth to rows where they are, `alone` the same where guests have left
    the devices of their hosts.
    """
    may = may_share(view, now)
    if len(may) < 2:
        return lambda answer, *_: Shared(answer)
    search = _Search(view, configs, worth, alone, held, now, read_pair_speeds(view, may))
    return search.improve


class _Search:
    """Pairs for one decision."""

    def __init__(
        self,
        view: View,
        configs: tuple[Config, ...],
        worth: Worth,
        alone: Worth,
        held: Floats,
        now: Partners,
        speeds: PairSpeeds,
    ) -> None:
        kinds = view.cluster.kinds
        self._kind = np.array([kinds.index(config.kind) for config in configs], dtype=np.intp)
        self._count = np.array([float(config.gpus) for config in configs])
        self._worth, self._alone, self._speeds = worth, alone, speeds
        self._held, self._asked = held.astype(np.intp), view.table.gpus
        self._hosts: Bools = now.leave(held) >= 0.0
        both = [(h, g) for h, g in now.second.items() if speeds.able[h] and speeds.able[g]]
        self._pairs_now = np.array(both, dtype=np.intp).reshape(-1, 2)
        self._new: Bools = speeds.able & ~self._hosts  # nobody's guests
        self._new[self._pairs_now[:, 1]] = False

    def improve(self, answer: Answer, solve: Solve) -> Shared:
        """The best of the answer with those who wait attached, and of programs with pairs."""
        best = self._attach(answer, ())
        prices = answer.prices
        if len(self._pairs_now):
            best = _better(best, self._solve(self._stay(), prices, solve))
        for _ in range(ROUNDS):
            offers = self._match(prices)
            if not offers:
                break
            found = self._solve(offers, prices, solve)
            best = _better(best, found)
            prices = (prices + found.answer.prices) / 2.0
        return best

    def _solve(self, offers: list[_Offer], prices: Floats, solve: Solve) -> Shared:
        """The program with each of these pairs as one job, and who still waits attached."""
        value = self._alone.value.copy()
        for offer in offers:
            value[[offer.pair.leader, offer.pair.follower]] = -np.inf
            value[offer.pair.leader, offer.pair.size] = offer.worth
        solved = solve(value, prices)
        pick = solved.pick.copy()
        kept = tuple(one.pair for one in offers if pick[one.pair.leader] == one.pair.size)
        for pair in kept:
            pick[pair.follower] = pair.size
        return self._attach(replace(solved, pick=pick), kept)

    def _stay(self) -> list[_Offer]:
        """All pairs that share now, whatever their jobs would have alone."""
        nothing = np.zeros(len(self._held))
        return self._keep(self._pairs_now, nothing, np.zeros(int(self._kind.max()) + 1))

    # ---- pairs before the program

    def _match(self, prices: Floats) -> list[_Offer]:
        """Pairs that are worth more than their jobs alone at these prices, no job in two."""
        net = self._alone.value - (prices[self._kind] * self._count)[None, :]
        own = np.maximum(net.max(axis=1), 0.0)
        home = np.where(self._hosts, self._held, net.argmax(axis=1))
        leaders, followers = np.flatnonzero(self._speeds.able), self._heaviest(self._new)
        offers = self._offer(leaders, followers, home, own, prices)
        return _take_best(offers + self._keep(self._pairs_now, own, prices))

    def _heaviest(self, mask: Bools) -> Rows:
        rows = np.flatnonzero(mask)
        order = np.argsort(-self._alone.weight[rows], kind="stable")
        found: Rows = np.sort(rows[order[:FOLLOWERS]])
        return found

    # ---- pairs after it

    def _attach(self, answer: Answer, pairs: tuple[Pair, ...]) -> Shared:
        """Who waits joins who has devices of its own, where both together make more.

        Who runs on its own and would be stopped does not join others: it would have to move.
        """
        taken = {row for pair in pairs for row in (pair.leader, pair.follower)}
        free = np.array([row not in taken for row in range(len(answer.pick))], dtype=bool)
        leaders = np.flatnonzero(self._speeds.able & free & (answer.pick >= 0))
        followers = self._heaviest(free & (answer.pick < 0) & self._new)
        own = np.zeros(len(answer.pick))
        own[leaders] = self._alone.value[leaders, answer.pick[leaders]]
        nothing = np.zeros(int(self._kind.max()) + 1)
        host, guest = self._pairs_now.T
        stay = free[host] & free[guest] & (answer.pick[guest] < 0)
        stay &= answer.pick[host] == self._held[host]
        offers = self._offer(leaders, followers, answer.pick, own, nothing)
        offers += self._keep(self._pairs_now[stay], own, nothing)
        chosen: list[_Offer] = []
        while best := _take_best(offers):  # who was offered only what others took is asked again
            chosen += best
            free[[row for one in best for row in one.pair[:2]]] = False
            leaders, followers = leaders[free[leaders]], followers[free[followers]]
            offers = self._offer(leaders, followers, answer.pick, own, nothing)
        pick = answer.pick.copy()
        for offer in chosen:
            pick[offer.pair.follower] = offer.pair.size
        gained = answer.value + sum(offer.gain for offer in chosen)
        bound = max(answer.bound, gained)  # of sizes alone
        whole = (*pairs, *(offer.pair for offer in chosen))
        return Shared(replace(answer, pick=pick, value=gained, bound=bound), whole)

    # ---- both

    def _offer(
        self, leaders: Rows, followers: Rows, home: Rows, own: Floats, prices: Floats
    ) -> list[_Offer]:
        """Every follower with the leaders that it gains most with, at their sizes."""
        if not len(leaders) or not len(followers):
            return []
        size = home[leaders]
        one, other, at_size = leaders[:, None], followers[None, :], size[:, None]
        speeds = self._check_size(self._find(at_size, one, other), one, other, at_size)
        lead = _slow(self._alone, one, at_size, speeds[0])
        follow = _slow(self._alone, other, at_size, speeds[1])
        price = (prices[self._kind[size]] * self._count[size])[:, None]
        worth = np.where(speeds[0] > 0.0, lead + follow, -np.inf)
        gain = worth - price - own[leaders][:, None] - own[followers][None, :]
        gain[one == other] = -np.inf
        near = np.argsort(-gain, axis=0, kind="stable")[:NEAREST]
        found = []
        for column, follower in enumerate(followers.tolist()):
            for at in near[:, column].tolist():
                if not gain[at, column] > 0.0:
                    break
                kept = (float(speeds[0, at, column]), float(speeds[1, at, column]))
                pair = Pair(int(leaders[at]), follower, int(size[at]), kept)
                found.append(_Offer(float(gain[at, column]), pair, float(worth[at, column])))
        return found

    def _keep(self, pairs: Rows, own: Floats, prices: Floats) -> list[_Offer]:
        """Guests stay with their hosts: they need not be started, and go to no other host."""
        host, guest = pairs.T
        size = self._held[host]
        speeds = self._check_size(self._find(size, host, guest), host, guest, size)
        worth = _slow(self._worth, host, size, speeds[0]) + _slow(
            self._worth, guest, size, speeds[1]
        )
        gain = worth - prices[self._kind[size]] * self._count[size] - own[host] - own[guest]
        found = []
        for at in np.flatnonzero((gain > 0.0) & (speeds[0] > 0.0)).tolist():
            kept = (float(speeds[0, at]), float(speeds[1, at]))
            pair = Pair(int(host[at]), int(guest[at]), int(size[at]), kept)
            found.append(_Offer(float(gain[at]), pair, float(worth[at])))
        return found

    def _find(self, size: Rows, one: Rows, other: Rows) -> Floats:
        """Speeds of both together, on devices of a size; the three are broadcast."""
        kind = self._kind[size]
        return np.stack([self._speeds.find(kind, one, other), self._speeds.find(kind, other, one)])

    def _check_size(self, speeds: Floats, one: Rows, other: Rows, size: Rows) -> Floats:
        """The speeds, 0 where they were not measured on so many GPUs."""
        if not self._speeds.asked_only:
            return speeds
        count = self._count[size]
        asked: Floats = speeds * (self._asked[one] == count) * (self._asked[other] == count)
        return asked


def _better(one: Shared, other: Shared) -> Shared:
    return other if other.answer.value > one.answer.value else one


def _slow(worth: Worth, rows: Rows, size: Rows, speed: Floats) -> Floats:
    """What a size is worth to rows at part of their speed: what a change costs stays the same."""
    value = worth.value[rows, size]
    made = worth.weight[rows] * worth.speed[rows, size]
    slowed: Floats = value - (1.0 - speed) * np.clip(value, 0.0, made)
    return slowed


def _take_best(offers: list[_Offer]) -> list[_Offer]:
    """The offers with the largest gains, no row in two of them."""
    taken: set[int] = set()
    found = []
    for offer in sorted(offers, key=lambda one: (-one.gain, one.pair)):
        rows = {offer.pair.leader, offer.pair.follower}
        if not rows & taken:
            taken |= rows
            found.append(offer)
    return found


def explain_pairs(view: View, pairs: Iterable[Pair], rows: Container[int]) -> dict[JobId, str]:
    """With whom each of these rows shares, and which speed it was promised."""
    found = {}
    for pair in pairs:
        both = ((pair.leader, pair.follower), (pair.follower, pair.leader))
        for (row, other), speed in zip(both, pair.speeds, strict=True):
            if row in rows:
                found[view.job(row).id] = (
                    f"shares its devices with {view.job(other).id}: "
                    f"{speed:.0%} of its speed alone is predicted"
                )
    return found
