"""Weft: kind, number of GPUs and first batch of every job, by what a change is worth in seconds.

Paper       our own. Configurations and placement are those of Jayaram Subramanya et al., "Sia",
            SOSP 2023; weights follow Berg et al., "heSRPT", Performance Evaluation 144, 2020.
Objective   mean completion time, with the makespan and the slowest jobs no worse for it.
Needs       goodput from all jobs of a model together, running and ended, and how far each has
            come; a predictor or the service of past jobs where nobody declared its work.
Controls    how many GPUs of which kind, where, and the batch size to begin with; with `share=true`
            also which two jobs have the same devices, with `strangers=true` which jobs of one GPU
            have it together although nobody knows them.
Cost        O(jobs x sizes) for values and prices, then O(jobs log jobs) for placement; with
            `share=true` two programs more, and O(running x waiting) for pairs.
Deviations  values of a change count its restart against the time that it is likely to last; they
            are found by study, not by proof. `pooled=false` believes each job's own reports alone.
            `share=true` joins a running job where it is, never two running ones; pairs are matched
            greedily at the program's prices. `strangers=true` lets who would wait join where its
            memory fits; what jobs do to each other there is measured, not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from weft.core import taxonomy as tax
from weft.core.about import About, Controls, Needs
from weft.core.errors import InvalidConfig
from weft.core.model import Allocation, Config, Demand, JobId
from weft.core.plan import Plan
from weft.core.table import Bools, Floats, Rows
from weft.core.view import View
from weft.pieces.order.finish_time import hasten_late
from weft.pieces.order.rank_weights import flatten_large, rank_weights, share_ranks
from weft.pieces.order.seconds_left import seconds_left
from weft.pieces.place.pairs import find_parted, place_pairs
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.share.pair_choices import Pair, explain_pairs, share_devices
from weft.pieces.share.partners import NO_PARTNERS, Partners, find_partners
from weft.pieces.share.strangers import share_with_strangers
from weft.pieces.size.change_seconds import change_seconds, read_costs
from weft.pieces.size.choice_reasons import explain_choices
from weft.pieces.size.configs import (
    find_acceptable,
    find_held,
    find_smallest,
    rigid_configs,
    valid_configs,
)
from weft.pieces.size.hold_times import HoldTimes, key_of
from weft.pieces.size.hurried import Worth, find_hurried
from weft.pieces.size.restart_value import Changes, restart_values
from weft.solve.multiple_choice import NONE, Answer, Problem, choose

GAP = 1e-3  # from the best program that is good enough
WHERE = tax.Taxonomy(
    objective=tax.Objective.COMPLETION_TIME | tax.Objective.THROUGHPUT,
    knowledge=tax.Knowledge.SPEEDS | tax.Knowledge.MODELS | tax.Knowledge.PAST_JOBS,
    heterogeneity=tax.Heterogeneity.SPEEDS,
    elasticity=tax.Elasticity.GPUS | tax.Elasticity.BATCH,
    sharing=tax.Sharing.EXCLUSIVE,
    topology=tax.Topology.CONSOLIDATED,
    fairness=tax.Fairness.FINISH_TIME,
    preemption=tax.Preemption.STOPS | tax.Preemption.RESIZES | tax.Preemption.MOVES,
)


@dataclass(frozen=True, slots=True)
class Last:
    """Prices of the last decision by kind, how long jobs keep what they get, and who waits.

    With sharing, `alone` are the prices if nobody shared.
    """

    prices: Floats
    holds: HoldTimes = field(default_factory=HoldTimes)
    waiting: tuple[JobId, ...] = ()
    alone: Floats | None = None


@dataclass(frozen=True, slots=True)
class Gains:
    """Speeds of sizes as parts of the best, seconds left, weights, and which sizes are allowed.

    `rise_s` is how long a rise to each size counts at most, `costs` what starts and changes take.
    """

    speed: Floats
    left: Floats
    weight: Floats
    allowed: Bools
    rise_s: Floats
    costs: Floats


@dataclass(frozen=True, slots=True)
class Weft:
    """What every job holds, decided again whenever something happens and every `wake` seconds.

    `shape` is the power of GPUs that weights take speed to grow with, as is that of jobs nobody
    reported of, up to the size they ask for. A restart counts `restart`
    times, for jobs with more than `large` seconds left `large_restart` times; these weigh alike.
    A rise is counted over at most `rise` seconds, or as long as jobs of the model keep the kind,
    which is forgotten with a half-life of `half_life`; a loss over `loss` seconds. Who falls so far
    behind an equal part of the cluster that it would end more than `fair` times as late weighs
    more, 0 for nobody.
    `pooled` asks for beliefs from all jobs of a model. `max_gpus` is the most one job may get.
    `share` lets two jobs have the same devices where both together gain. `strangers` lets jobs that
    would wait join others on one GPU where their memory fits, on engines that see memory.
    """

    shape: float = 0.6
    restart: float = 2.2
    large_restart: float = 2.8
    large: float = 5400.0
    rise: float = 3600.0
    loss: float = 600.0
    half_life: float = 7200.0
    fair: float = 1.2
    wake: float = 60.0
    pooled: bool = True
    max_gpus: int = 64
    share: bool = False
    strangers: bool = False

    @property
    def about(self) -> About:
        """Decides when something happened."""
        together = self.share or self.strangers
        shares = Controls.SHARE if together else Controls.NOTHING
        side = tax.Sharing.SIDE_BY_SIDE if together else tax.Sharing.EXCLUSIVE
        return About(
            "weft",
            "our own",
            needs=Needs.MODEL,
            controls=Controls.COUNT | Controls.BATCH | shares,
            starves="the longest, while shorter ones keep coming",
            taxonomy=replace(WHERE, sharing=side),
            pools=self.pooled,
        )

    def __post_init__(self) -> None:
        if not 0.0 < self.shape < 1.0:
            raise InvalidConfig(f"weft: shape={self.shape:g}", hint="shape is between 0 and 1")
        if self.share and self.strangers:
            raise InvalidConfig(
                "weft: share and strangers are two ways to share a GPU",
                hint="share=true for jobs whose models are known, strangers=true for any",
            )
        times = {"rise": self.rise, "loss": self.loss, "half_life": self.half_life}
        for name, seconds in {**times, "wake": self.wake}.items():
            if not seconds > 0.0:
                raise InvalidConfig(f"weft: {name}={seconds:g}", hint="it is seconds, above 0")

    def decide(self, view: View) -> Plan:
        """What everybody holds alone, and who joins whom where strangers may share."""
        return share_with_strangers(view, self._decide) if self.strangers else self._decide(view)

    def _decide(self, view: View) -> Plan:
        """Speeds, values, program, placement, batches."""
        if not len(view.table) or not view.cluster.nodes:
            return Plan()
        valid = valid_configs(view.cluster, self.max_gpus)
        configs = (*valid, *rigid_configs(view, valid))
        held = find_held(view, configs)
        odd = (held == len(configs)) & ~view.preemptible()
        if odd.any():  # of a size that is none of ours, and it may not be changed
            return self._decide(view.without(odd))
        held[held == len(configs)] = NONE
        memory = view.memory if isinstance(view.memory, Last) else None
        holds = (HoldTimes(view.now) if memory is None else memory.holds).age(view, self.half_life)
        prices = np.zeros(len(view.cluster.kinds))
        if memory is not None and len(memory.prices) == len(prices):
            prices = memory.prices
        gains = self._gains(view, configs, holds)
        together = worth = self._values(view, configs, gains, held, prices)
        partners = find_partners(view, worth.weight) if self.share else NO_PARTNERS
        apart = partners.leave(held)
        if partners.guests:
            worth = self._values(view, configs, gains, apart, prices)
        start = None if memory is None else memory.prices
        first = start if memory is None or memory.alone is None else memory.alone
        room = _find_room(view, partners)
        answer = self._choose(view, configs, worth.value, apart, first, room)
        pairs: tuple[Pair, ...] = ()
        alone = answer.prices if self.share else None
        if self.share:
            search = share_devices(view, configs, together, worth, held, partners)
            answer, pairs = search(
                answer, lambda value: self._choose(view, configs, value, apart, start, room)
            )
        wanted = {r: configs[c] for r, c in enumerate(answer.pick.tolist()) if c >= 0}
        changes = (
            place_pairs(view, wanted, pairs, partners)
            if self.share
            else place_configs(view, wanted)
        )
        lost = _find_lost(view, configs, worth.speed, held, answer.pick, changes)
        wake = (np.floor(view.now / self.wake) + 1.0) * self.wake
        waiting = [row for row in range(len(view.table)) if row not in wanted]
        names = tuple(view.job(row).id for row in waiting)
        known = () if memory is None else memory.waiting
        told = {*changes, *(r for r, name in zip(waiting, names, strict=True) if name not in known)}
        told |= {r for r, job in enumerate(view.table.jobs) if job.id in view.asked}
        return Plan(
            self._with_batches(view, wanted, changes),
            wake_at=float(wake),
            reasons={
                **explain_choices(view, configs, worth.value, answer, sorted(told)),
                **explain_pairs(view, pairs, told),
            },
            memory=Last(answer.prices, holds.lose(lost), names, alone),
            numbers=_say_prices(view, answer) | ({"pairs": float(len(pairs))} if pairs else {}),
            restarts=find_hurried(view, changes, held, answer.pick, worth)
            | find_parted(view, changes),
        )

    # ---- what sizes are worth

    def _gains(self, view: View, configs: tuple[Config, ...], holds: HoldTimes) -> Gains:
        """What sizes do for rows, whatever they hold."""
        goodput = self._goodputs(view, configs)
        best = np.maximum(goodput.max(axis=1), 1e-12)
        left, guessed = seconds_left(view, best)
        tied = guessed | self.share  # partners are not parted for a rank that means nothing
        weight = share_ranks(rank_weights(left, self.shape), left, tied)
        weight = flatten_large(weight, left, self.large)
        if self.fair:
            weight = weight * hasten_late(view, configs, goodput, left, self.fair)
        kinds = view.cluster.kinds
        rise = np.minimum(self.rise, holds.expect(view, self.rise))
        rise = rise[:, [kinds.index(config.kind) for config in configs]]
        speed = goodput / best[:, None]
        return Gains(speed, left, weight, goodput > 0.0, rise, read_costs(view))

    def _values(
        self,
        view: View,
        configs: tuple[Config, ...],
        gains: Gains,
        held: Floats,
        prices: Floats,
    ) -> Worth:
        """What sizes are worth to rows that hold these; -inf where not allowed."""
        speed, left, weight = gains.speed, gains.left, gains.weight
        seconds = change_seconds(view, configs, held, gains.costs)
        times = np.where(left > self.large, self.large_restart, self.restart)[:, None]
        changes = Changes(
            times * seconds.start,
            times * seconds.change,
            times * seconds.ready,
            seconds.moved * np.append(prices, 0.0)[seconds.kind][:, None],
            gains.rise_s,
            self.loss,
        )
        value = restart_values(speed, held, weight, left, changes)
        value = np.where(gains.allowed, value, -np.inf)
        return Worth(value, speed, weight, seconds.change, seconds.start, seconds.ready)

    def _goodputs(self, view: View, configs: tuple[Config, ...]) -> Floats:
        """Beliefs where there are any, else what the size that was asked for lets expect."""
        believed = view.believed(pooled=self.pooled)
        kinds = view.cluster.kinds
        kind = [kinds.index(config.kind) for config in configs]
        goodput = believed.goodputs(view.table, configs)
        units = believed.units(view.table, kinds)[:, kind]
        gpus = np.array([float(config.gpus) for config in configs])
        unknown = np.isnan(goodput[:, 0])
        if unknown.any():
            goodput[unknown] = self._prior(view, units, gpus, kind)[unknown]
        masks: dict[Demand, Bools] = {}
        for job in view.table.jobs:
            if job.demand not in masks:
                masks[job.demand] = find_acceptable(job.demand, configs, gpus)
        fits = np.array([masks[job.demand] for job in view.table.jobs])
        goodput[~fits] = 0.0
        for row in np.flatnonzero(~goodput.any(axis=1)).tolist():
            goodput[row] = find_smallest(configs, fits[row], units[row]) * units[row]
        return goodput

    def _prior(self, view: View, units: Floats, gpus: Floats, kind: Sequence[int]) -> Floats:
        """As fast as one replica on each kind, times a power of their number."""
        if view.pooled is None or not self.pooled:
            return np.zeros((len(view.table), len(gpus)))
        alone = view.pooled.alone(view.table, view.cluster.kinds)[:, kind]
        each = np.maximum(units, 1.0)
        whole = (units > 0.0) & (gpus[None, :] % each == 0.0)
        asked = np.maximum(view.table.gpus, 1.0)[:, None]
        return np.where(whole & (gpus[None, :] <= asked), alone * (gpus / each) ** self.shape, 0.0)

    # ---- who gets what

    def _choose(
        self,
        view: View,
        configs: tuple[Config, ...],
        value: Floats,
        held: Floats,
        start: Floats | None,
        room: Floats,
    ) -> Answer:
        """The program for all rows that may change; the others keep what they have."""
        kinds = view.cluster.kinds
        kind = np.array([kinds.index(config.kind) for config in configs])
        count = np.array([float(config.gpus) for config in configs])
        pick = np.where(view.preemptible(), float(NONE), held).astype(np.intp)
        room = room.copy()
        np.subtract.at(room, kind[pick[pick >= 0]], count[pick[pick >= 0]])
        rows = np.flatnonzero(pick < 0)
        answer = choose(
            Problem(value[rows], kind, count, np.maximum(room, 0.0)),
            gap=GAP,
            start=start,
        )
        pick[rows] = answer.pick
        return replace(answer, pick=pick)

    def _with_batches(
        self, view: View, wanted: dict[int, Config], changes: dict[int, Allocation | None]
    ) -> dict[JobId, Allocation | None]:
        """The changes, with the batch that a job is best to begin with.

        Once it has reported, it tunes itself.
        """
        found: dict[JobId, Allocation | None] = {}
        for row in np.flatnonzero(view.running() & ~view.restoring()).tolist():
            on = view.allocation(row)
            if on is not None and on.batch is not None and row not in changes:
                found[view.job(row).id] = replace(on, batch=None)
        for row, on in changes.items():
            job = view.job(row)
            stays = self.share and on is not None and _is_there(view, row, on)
            if on is not None and view.pooled is not None and self.pooled and not stays:
                on = replace(on, batch=view.pooled.first_batch(job, wanted[row]))
            found[job.id] = on
        return found


def _is_there(view: View, row: int, on: Allocation) -> bool:
    """Whether a row holds just these devices."""
    was = view.allocation(row)
    return was is not None and was.devices == on.devices


def _find_room(view: View, partners: Partners) -> Floats:
    """GPUs of each kind that are free, or held by rows of the view; shared ones count once."""
    kinds = view.cluster.kinds
    room = np.array([float(view.free.idle(kind)) for kind in kinds])
    for row, on in enumerate(view.table.allocations):
        if on is not None and row not in partners.guests:
            room[kinds.index(view.cluster.kind_of(on))] += on.gpus
    whole = np.array([float(view.cluster.gpus_by_kind[kind]) for kind in kinds])
    return np.asarray(np.minimum(room, whole))


def _find_lost(
    view: View,
    configs: tuple[Config, ...],
    speed: Floats,
    held: Floats,
    pick: Rows,
    changes: dict[int, Allocation | None],
) -> list[str]:
    """Models and kinds of rows that were planned to something slower, or to nothing."""
    lost = []
    for row in changes:
        was, to = int(held[row]), int(pick[row])
        if was >= 0 and (to < 0 or speed[row, to] < speed[row, was]):
            lost.append(key_of(view.job(row).model, configs[was].kind))
    return lost


def _say_prices(view: View, answer: Answer) -> dict[str, float]:
    """The gap to the best and what a GPU of each kind is worth now, for people."""
    prices = zip(view.cluster.kinds, answer.prices.tolist(), strict=False)
    return {"gap": float(answer.gap), **{f"price {kind}": price for kind, price in prices}}
