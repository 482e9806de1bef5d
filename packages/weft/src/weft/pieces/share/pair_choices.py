"""Two jobs on the same devices as a choice of a program that gives each job one size.

At the prices of a program a pair is worth what both make there together, less the one price. Pairs
that beat what their jobs would have alone are matched, the best first, and the program is solved
again with each pair as one job; then jobs that would still wait may join running ones. So is the
program with all pairs as they are now: matching the best first would part some of them for little.
The best of all answers counts, so that sharing is chosen only where it gains by the program's own
measure. A running job is joined where it is: it is not moved to share.

Speeds of jobs two by two on shared devices: as measured on the kind, else as predicted.

Jobs of one type (model, size, what they do with a device) are alike: each type is looked up once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.knowledge.profile import Profile
from weft.core.model.cluster import Cluster
from weft.core.model.job import Config, Discipline, Job, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.share.partners import Partners, may_share
from weft.pieces.size.change_seconds import Worth
from weft.solve.multiple_choice import Answer

NO_TYPE = -1
LEAST_GAIN = 0.05  # of one job's speed: together two must do more than one alone
CONTEXT_GB = 0.5  # what a process holds on a device beside its tensors


@frozen
class PairSpeeds:
    """Speeds of types beside types as parts of their speeds alone: kinds x types x types.

    0 where two may not be together: their memory does not fit, it is unknown, or together they do
    no more than one alone. `types` is of rows, NO_TYPE for jobs that do not share; `asked_only`
    says that pairs were measured on the number of GPUs that jobs ask for, and hold for no other;
    `able` are the rows that may share at all.
    """

    types: Rows
    beside: Floats
    asked_only: bool
    able: Bools

    def find(self, kinds: Rows, rows: Rows, other: Rows) -> Floats:
        """Speeds of `rows` beside rows `other` on kinds; the three are broadcast."""
        speeds: Floats = self.beside[kinds, self.types[rows], self.types[other]]
        return speeds


def read_pair_speeds(view: View, rows: Sequence[int]) -> PairSpeeds:
    """Speeds among these rows, which share only with each other."""
    sharing, types = view.sharing(), np.full(len(view.table), NO_TYPE, dtype=np.intp)
    known: dict[tuple[Profile, str, int], int] = {}
    first: list[int] = []
    for row in rows:
        job = view.job(row)
        key = (sharing.profile(job), job.model, job.demand.gpus)
        if key not in known:
            known[key] = len(known)
            first.append(row)
        types[row] = known[key]
    measured = _read_measured(view, np.array(first, dtype=np.intp))
    beside = _predict(view, [view.job(row) for row in first]) if measured is None else measured
    both = beside * (beside.transpose(0, 2, 1) > 0.0)
    gains = both + both.transpose(0, 2, 1) > 1.0 + LEAST_GAIN
    return PairSpeeds(types, both * gains, measured is not None, types != NO_TYPE)


def _read_measured(view: View, rows: Rows) -> Floats | None:
    """Measured speeds of these rows two by two; None without measurements."""
    kinds, beliefs, count = view.cluster.kinds, view.believed(), len(rows)
    first, second = np.repeat(rows, count), np.tile(rows, count)
    pairs = beliefs.pairs(view.table, kinds, first, second)
    if pairs is None:
        return None
    alone = beliefs.rates(view.table, kinds)[rows]
    together = pairs[:, :, 0].reshape(count, count, len(kinds))
    parts = np.minimum(together / np.maximum(alone, 1e-12)[:, None, :], 1.0)
    parts = np.where(alone[:, None, :] > 0.0, parts, 0.0)
    speeds: Floats = parts.transpose(2, 0, 1)
    return speeds


def _predict(view: View, jobs: Sequence[Job]) -> Floats:
    """Believed speeds of jobs two by two, where the memory of both is known and fits."""
    sharing, kinds = view.sharing(), view.cluster.kinds
    table = np.zeros((len(kinds), len(jobs), len(jobs)))
    need = [sharing.profile(job).mem_gb for job in jobs]
    for at, kind in enumerate(kinds):
        room = _device_gb(view.cluster, kind)
        for i, first in enumerate(jobs):
            for j in range(i, len(jobs)):
                if min(need[i], need[j]) <= 0.0 or need[i] + need[j] + 2 * CONTEXT_GB > room:
                    continue
                speeds = sharing.speeds((first, jobs[j]), kind, Discipline.NONE)
                table[at, i, j], table[at, j, i] = speeds
    return table


def _device_gb(cluster: Cluster, kind: str) -> float:
    """Memory of the smallest device of a kind."""
    return min(node.device_gb for node in cluster.nodes if node.kind == kind)


FOLLOWERS = 128  # rows without devices that are looked at, the heaviest first
NEAREST = 8  # leaders that each of them is offered
NOBODY: Rows = np.zeros(0, dtype=np.intp)
Solve = Callable[[Floats], Answer]  # values to an answer
Improve = Callable[[Answer, Solve], "Shared"]


class Pair(NamedTuple):
    """Two rows on devices of one size, and what each keeps of its speed alone there."""

    leader: int
    follower: int
    size: int
    speeds: tuple[float, float]


class Shared(NamedTuple):
    """Sizes of all rows, those of pairs included, and which jobs share."""

    answer: Answer
    pairs: tuple[Pair, ...] = ()


class _Offers(NamedTuple):
    """Pairs as columns: what they gain over their jobs alone, and what they are worth."""

    gain: Floats
    worth: Floats
    leader: Rows
    follower: Rows
    size: Rows
    speeds: Floats  # of leaders and of followers

    def add(self, other: _Offers) -> _Offers:
        rest = iter(other)
        return self.change(lambda column: np.concatenate([column, next(rest)], axis=-1))

    def pick(self, at: Rows | Bools) -> _Offers:
        return self.change(lambda column: column[..., at])

    def change(self, each: Callable[[NDArray[Any]], NDArray[Any]]) -> _Offers:
        """Offers with a function applied to each column, from the first to the last."""
        gain, worth, leader = each(self.gain), each(self.worth), each(self.leader)
        return _Offers(gain, worth, leader, each(self.follower), each(self.size), each(self.speeds))

    def is_of(self, other: _Offers) -> bool:
        mine, theirs = (sorted(zip(o.leader, o.follower, strict=True)) for o in (self, other))
        return mine == theirs

    def as_pairs(self) -> tuple[Pair, ...]:
        rows = (self.leader.tolist(), self.follower.tolist(), self.size.tolist())
        speeds = zip(*self.speeds.tolist(), strict=True)
        return tuple(Pair(*fields) for fields in zip(*rows, speeds, strict=True))


class _PairAnswer(NamedTuple):
    answer: Answer
    pairs: _Offers


def share_devices(
    view: View, configs: tuple[Config, ...], worth: Worth, alone: Worth, held: Floats, now: Partners
) -> Improve:
    """A function that improves an answer of one size per job by pairs.

    `worth` is what sizes are worth to rows where they are, `alone` the same where guests have left
    the devices of their hosts.
    """
    may = may_share(view, now)
    if len(may) < 2:
        return lambda answer, *_: Shared(answer)
    search = _Search(view, configs, worth, alone, held, now, read_pair_speeds(view, may))
    return search.improve


class _Search:
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
        self._alone, self._speeds = alone, speeds
        self._slows = _slows(alone)
        self._held, self._asked = held.astype(np.intp), view.table.gpus
        self._hosts: Bools = now.leave(held) >= 0.0
        able = speeds.able.tolist()
        both = [(host, guest) for host, guest in now.second.items() if able[host] and able[guest]]
        self._pairs_now = np.array(both, dtype=np.intp).reshape(-1, 2)
        self._new: Bools = speeds.able & ~self._hosts  # not yet guests
        self._new[self._pairs_now[:, 1]] = False
        self._now = self._see(worth)

    def improve(self, answer: Answer, solve: Solve) -> Shared:
        """The best of the answer with waiting jobs attached, and of programs with pairs."""
        shared = [self._attach(answer, self._now.pick(NOBODY))]
        matched = self._match(answer.prices)
        programs = (self._now,) if matched.is_of(self._now) else (self._now, matched)
        shared += [self._solve(offers, solve) for offers in programs if len(offers.gain)]
        best = max(shared, key=lambda candidate: candidate.answer.value)
        return Shared(best.answer, best.pairs.as_pairs())

    def _solve(self, offers: _Offers, solve: Solve) -> _PairAnswer:
        """The program with each of these pairs as one job, and waiting jobs attached."""
        value = self._alone.value.copy()
        value[offers.leader] = value[offers.follower] = -np.inf
        value[offers.leader, offers.size] = offers.worth
        solved = solve(value)
        pick = solved.pick.copy()
        kept = offers.pick(pick[offers.leader] == offers.size)
        pick[kept.follower] = kept.size
        return self._attach(replace(solved, pick=pick), kept)

    # ---- pairs before the program

    def _match(self, prices: Floats) -> _Offers:
        """Pairs that are worth more than their jobs alone at these prices, no job in two."""
        net = self._alone.value - (prices[self._kind] * self._count)[None, :]
        own = np.maximum(net.max(axis=1), 0.0)
        home = np.where(self._hosts, self._held, net.argmax(axis=1))
        leaders, followers = np.flatnonzero(self._speeds.able), self._heaviest(self._new)
        kept = self._keep(own, prices)
        if not len(leaders) or not len(followers):
            return _take_best(kept)
        offers = self._offer(leaders, followers, home, own, prices)
        return _take_best(_find_nearest(offers).add(kept))

    def _heaviest(self, mask: Bools) -> Rows:
        rows = np.flatnonzero(mask)
        order = np.argsort(-self._alone.weight[rows], kind="stable")
        heaviest: Rows = np.sort(rows[order[:FOLLOWERS]])
        return heaviest

    # ---- pairs after it

    def _attach(self, answer: Answer, pairs: _Offers) -> _PairAnswer:
        """Waiting jobs join jobs with devices of their own, where both together do more.

        A job that runs alone and would be stopped does not join others: it would have to move.
        """
        free = np.ones(len(answer.pick), dtype=bool)
        free[pairs.leader] = free[pairs.follower] = False
        leaders = np.flatnonzero(self._speeds.able & free & (answer.pick >= 0))
        followers = self._heaviest(free & (answer.pick < 0) & self._new)
        own = np.zeros(len(answer.pick))
        own[leaders] = self._alone.value[leaders, answer.pick[leaders]]
        nothing = np.zeros(int(self._kind.max()) + 1)
        stay = free[self._now.leader] & free[self._now.follower]
        stay &= answer.pick[self._now.follower] < 0
        stay &= answer.pick[self._now.leader] == self._now.size
        offers = self._keep(own, nothing, stay)
        grid = self._offer(leaders, followers, answer.pick, own, nothing)
        chosen = self._now.pick(NOBODY)
        while len((best := _take_best(_find_nearest(grid).add(offers))).gain):
            chosen = chosen.add(best)  # jobs offered only what others took are asked again
            free[best.leader] = free[best.follower] = False
            grid, offers = _leave(grid, free), offers.pick(NOBODY)
        pick = answer.pick.copy()
        pick[chosen.follower] = chosen.size
        gained = answer.value + float(chosen.gain.sum())
        bound = max(answer.bound, gained)  # of sizes alone
        return _PairAnswer(replace(answer, pick=pick, value=gained, bound=bound), pairs.add(chosen))

    # ---- both

    def _offer(
        self, leaders: Rows, followers: Rows, home: Rows, own: Floats, prices: Floats
    ) -> _Offers:
        """Leaders x followers: both together at the leader's size; -inf where that is none."""
        size = home[leaders]
        leader, other, at_size = leaders[:, None], followers[None, :], size[:, None]
        speeds = self._check_size(self._find(at_size, leader, other), leader, other, at_size)
        value, slows = self._alone.value, self._slows
        lead = own[leaders] + prices[self._kind[size]] * self._count[size]
        worth = value[leader, at_size] - (1.0 - speeds[0]) * slows[leader, at_size]
        worth += value[other, at_size] - (1.0 - speeds[1]) * slows[other, at_size]
        gain = worth - lead[:, None] - own[followers][None, :]
        gain[(speeds[0] <= 0.0) | (leader == other)] = -np.inf
        wide = [np.broadcast_to(rows, gain.shape) for rows in (leader, other, at_size)]
        return _Offers(gain, worth, wide[0], wide[1], wide[2], speeds)

    def _see(self, worth: Worth) -> _Offers:
        """The jobs that share now, where they are: they need not be started."""
        host, guest = self._pairs_now.T
        size = self._held[host]
        speeds = self._check_size(self._find(size, host, guest), host, guest, size)
        slows = _slows(worth)
        both = worth.value[host, size] - (1.0 - speeds[0]) * slows[host, size]
        both += worth.value[guest, size] - (1.0 - speeds[1]) * slows[guest, size]
        offers = _Offers(both, both, host, guest, size, speeds)
        return offers.pick((both > 0.0) & (speeds[0] > 0.0))

    def _keep(self, own: Floats, prices: Floats, which: Bools | None = None) -> _Offers:
        """Guests stay with their hosts, where that gains; they go to no other host."""
        now = self._now
        alone = own[now.leader] + own[now.follower]
        gain = now.worth - prices[self._kind[now.size]] * self._count[now.size] - alone
        gains = gain > 0.0
        return now._replace(gain=gain).pick(gains if which is None else gains & which)

    def _find(self, size: Rows, leader: Rows, other: Rows) -> Floats:
        """Speeds of both together, on devices of a size; the three are broadcast."""
        kind = self._kind[size]
        return np.stack(
            [self._speeds.find(kind, leader, other), self._speeds.find(kind, other, leader)]
        )

    def _check_size(self, speeds: Floats, leader: Rows, other: Rows, size: Rows) -> Floats:
        """The speeds, 0 where they were not measured on that many GPUs."""
        if not self._speeds.asked_only:
            return speeds
        count = self._count[size]
        asked: Floats = speeds * (self._asked[leader] == count) * (self._asked[other] == count)
        return asked


def _slows(worth: Worth) -> Floats:
    """Rows x sizes: what would be lost with all speed; what a change costs stays the same."""
    lost: Floats = np.clip(worth.value, 0.0, worth.weight[:, None] * worth.speed)
    return lost


def _find_nearest(grid: _Offers) -> _Offers:
    """Return the leaders in a grid that each follower gains most with, as columns."""
    if not grid.gain.size:
        return grid.change(lambda column: column[..., :0].reshape(*column.shape[:-2], 0))
    near = np.argsort(-grid.gain, axis=0, kind="stable")[:NEAREST]
    at = near, np.broadcast_to(np.arange(near.shape[1])[None, :], near.shape)
    offers = grid.change(lambda column: column[(..., *at)].reshape(*column.shape[:-2], -1))
    return offers.pick(offers.gain > 0.0)


def _leave(grid: _Offers, free: Bools) -> _Offers:
    """The grid without leaders and followers that are no longer free."""
    if not grid.gain.size:
        return grid
    rows, columns = free[grid.leader[:, 0]], free[grid.follower[0]]
    return grid.change(lambda column: column[..., rows, :][..., columns])


def _take_best(offers: _Offers) -> _Offers:
    """The offers with the largest gains, no row in two of them."""
    taken: set[int] = set()
    best = []
    pairs = list(zip(offers.leader.tolist(), offers.follower.tolist(), strict=True))
    for at in np.lexsort((offers.size, offers.follower, offers.leader, -offers.gain)).tolist():
        if taken.isdisjoint(pairs[at]):
            taken.update(pairs[at])
            best.append(at)
    return offers.pick(np.array(best, dtype=np.intp))


def explain_pairs(view: View, pairs: Iterable[Pair], rows: Container[int]) -> dict[JobId, str]:
    """The partner of each of these rows, and the speed that it was promised."""
    reasons = {}
    for pair in pairs:
        both = ((pair.leader, pair.follower), (pair.follower, pair.leader))
        for (row, other), speed in zip(both, pair.speeds, strict=True):
            if row in rows:
                reasons[view.job(row).id] = (
                    f"shares its devices with {view.job(other).id}: "
                    f"{speed:.0%} of its speed alone is predicted"
                )
    return reasons
