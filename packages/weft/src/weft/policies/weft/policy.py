"""Weft: kind, number of GPUs and first batch of every job, by the seconds that a change saves.

Paper       our own. Configurations and placement are those of Jayaram Subramanya et al., "Sia",
            SOSP 2023; weights follow Berg et al., "heSRPT", Performance Evaluation 144, 2020.
Objective   mean completion time, without a longer makespan or slower slowest jobs.
Needs       goodput from all jobs of a model together, running and ended, and how far each has
            come; a predictor or the service of past jobs for jobs that do not declare their work.
Controls    how many GPUs of which kind, where, and the batch size to begin with; with `share=true`
            also which two jobs share devices, with `strangers=true` which unknown jobs of one GPU
            share it.
Cost        O(jobs x sizes) for values and prices, then O(jobs log jobs) for placement; with
            `share=true` two programs more, and O(running x waiting) for pairs.
Deviations  values of a change count its restart against the time that it is likely to last; they
            were found by experiment, not by proof. `pooled=false` uses only each job's own reports.
            Where all jobs have one size and all GPUs are of one kind no program is solved: the jobs
            run that need the fewest GPU-seconds for one more completion. `share=true` joins a
            running job where it is, never two running ones; pairs are matched greedily at the
            program's prices. `strangers=true` lets a job that would wait join where its memory
            fits; how jobs slow each other there is measured, not predicted.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cache

import numpy as np

from weft.core.errors import InvalidConfig, bad_values
from weft.core.model.job import Allocation, Config, JobId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.order.finish_time import hasten_late
from weft.pieces.order.plain_left import (
    STEP,
    LengthEstimates,
    charged_service,
    find_plain,
    plain_weights,
)
from weft.pieces.order.seconds_left import MINUTE, seconds_left
from weft.pieces.place.gangs import fewest_nodes, start_parts
from weft.pieces.place.pairs import find_parted, place_pairs
from weft.pieces.share.pair_choices import explain_pairs, share_devices
from weft.pieces.share.partners import find_partners
from weft.pieces.share.strangers import share_with_strangers
from weft.pieces.size.change_seconds import HoldTimes, find_hurried, key_of, read_costs
from weft.pieces.size.choice_reasons import clear_reasons, explain_changes, gave_way, show_figures
from weft.pieces.size.configs import find_held, kinds_of, rigid_configs, valid_configs
from weft.pieces.size.plans import attach_plans, explain_plans, find_better_plans
from weft.policies.weft.plain import decide_plain, is_all_plain
from weft.policies.weft.values import (
    Gains,
    ProgramChoice,
    StartPrices,
    Values,
    choose_alone,
    find_goodputs,
    find_room,
    find_wanted,
    solve,
)
from weft.solve.few_jobs import NONE

WHERE = tax.classify(
    tax.Objective.COMPLETION_TIME | tax.Objective.THROUGHPUT,
    tax.NeededKnowledge.SPEEDS | tax.NeededKnowledge.MODELS | tax.NeededKnowledge.PAST_JOBS,
    tax.Preemption.STOPS | tax.Preemption.RESIZES | tax.Preemption.MOVES,
    tax.Heterogeneity.SPEEDS,
    tax.Elasticity.GPUS | tax.Elasticity.BATCH | tax.Elasticity.PLANS,
    tax.TopologyKnowledge.CONSOLIDATED,
    tax.Fairness.FINISH_TIME,
)


@frozen
class LastDecision:
    """Prices of the last decision by kind, how long jobs keep what they get, and which jobs wait.

    A waiting job is known by its number in the order of submission. With sharing, `alone` are the
    prices if no jobs shared. There are no prices before the first program. `estimates` are of the
    time left of plain jobs.
    """

    prices: Floats = field(default_factory=lambda: np.zeros(0))
    holds: HoldTimes = field(default_factory=HoldTimes)
    waiting: Floats = field(default_factory=lambda: np.zeros(0))
    alone: Floats | None = None
    estimates: LengthEstimates = field(default_factory=LengthEstimates)


@frozen
class Weft:
    """Decide what every job holds, at every event and every `wake_s` seconds.

    Weights assume that speed grows with the number of GPUs to the power `shape`; the speed of jobs
    without reports is predicted in the same way, up to the size they ask for. The cost of a restart
    is multiplied by `restart`, and by `large_restart` for jobs with more than `large_s` seconds
    left, which all get the same weight. A gain in speed counts for at most `rise_s` seconds, or for
    as long as jobs of the model usually keep the kind of GPU (an average with a half-life of
    `half_life_s` seconds); a loss in speed counts for `loss_s` seconds. A job that would end more
    than `fair` times as late as with an equal part of the cluster gets more weight; `fair=0`
    switches that off. `pooled` asks for beliefs from all jobs of a model. `max_gpus` is the most
    one job may get. `share` lets two jobs use the same devices if both together gain. `strangers`
    lets jobs that would wait join others on one GPU if their memory fits, on engines that measure
    memory.
    """

    shape: float = 0.6
    restart: float = 2.2
    large_restart: float = 2.8
    large_s: float = field(default=5400.0, metadata={"was": "large"})
    rise_s: float = field(default=3600.0, metadata={"was": "rise"})
    loss_s: float = field(default=600.0, metadata={"was": "loss"})
    half_life_s: float = field(default=7200.0, metadata={"was": "half_life"})
    fair: float = 1.2
    wake_s: float = field(default=60.0, metadata={"was": "wake"})
    pooled: bool = True
    max_gpus: int = 64
    share: bool = False
    strangers: bool = False

    @property
    def about(self) -> About:
        return _about(pools=self.pooled, together=self.share or self.strangers)

    def __post_init__(self) -> None:
        if not 0.0 < self.shape < 1.0:
            raise bad_values("weft", self, "shape", "shape is between 0 and 1")
        if self.share and self.strangers:
            raise InvalidConfig(
                "weft: share and strangers are two ways to share a GPU",
                hint="share=true for jobs whose models are known, strangers=true for any",
            )
        times = {"rise_s": self.rise_s, "loss_s": self.loss_s, "half_life_s": self.half_life_s}
        for name, seconds in {**times, "wake_s": self.wake_s}.items():
            if not seconds > 0.0:
                raise InvalidConfig(f"weft: {name}={seconds:g}", hint="it is seconds, above 0")

    def decide(self, view: View) -> Plan:
        """The plan for each job alone, and which jobs join which where strangers may share."""
        return share_with_strangers(view, self._decide) if self.strangers else self._decide(view)

    def _decide(self, view: View) -> Plan:
        """Speeds, values, program, placement, batches."""
        if view.empty:
            return Plan()
        last = view.memory if isinstance(view.memory, LastDecision) else None
        if not self.share and is_all_plain(view):
            return self._decide_plain(view, last or LastDecision(holds=HoldTimes(view.now)))
        valid = valid_configs(view.cluster, self.max_gpus)
        configs = (*valid, *rigid_configs(view, valid))
        held = find_held(view, configs)
        odd = (held == len(configs)) & ~view.preemptible()
        if odd.any():  # of a size that is none of ours, and it may not be changed
            return self._decide(view.without(odd))
        held[held == len(configs)] = NONE
        holds = (HoldTimes(view.now) if last is None else last.holds).age(view, self.half_life_s)
        values = self._values(view, configs, holds, last)
        choose = choose_shared if self.share else choose_alone
        choice = choose(values, held, _start_from(last))
        return self._plan(values, held, choice, holds, last)

    def _decide_plain(self, view: View, last: LastDecision) -> Plan:
        """Nothing is elastic: prices and holds stay as they were."""
        plan, estimates, waiting = decide_plain(
            view, last.waiting, last.estimates, pooled=self.pooled
        )
        return replace(plan, memory=replace(last, waiting=waiting, estimates=estimates))

    def _values(
        self, view: View, configs: tuple[Config, ...], holds: HoldTimes, last: LastDecision | None
    ) -> Values:
        """The worth of sizes to rows, at the prices of the last decision."""
        goodput = find_goodputs(view, configs, pooled=self.pooled, shape=self.shape)
        best = np.maximum(goodput.max(axis=1), 1e-12)
        plain = find_plain(view) & (not self.share)  # ranks would part jobs that share
        left, guessed, _ = seconds_left(view, best, np.where(plain, STEP, MINUTE))
        tied = guessed | self.share  # partners are not parted for a rank that means nothing
        weight = share_ranks(rank_weights(left, self.shape), left, tied)
        weight = flatten_large(weight, left, self.large_s)
        if self.fair:
            weight = weight * hasten_late(view, configs, goodput, left, self.fair)
        kinds, costs = view.cluster.kinds, read_costs(view)
        if plain.any():
            weight = plain_weights(view, weight, charged_service(view, left, costs), plain)
        rise = np.minimum(self.rise_s, holds.expect(view, self.rise_s))
        rise = rise.take(kinds_of(configs, kinds), 1)
        times = np.where(left > self.large_s, self.large_restart, self.restart)
        speed, allowed = goodput / best[:, None], goodput > 0.0
        gains = Gains(speed, left, weight, allowed, rise, costs, times, plain)
        prices = np.zeros(len(kinds))
        if last is not None and len(last.prices) == len(kinds):
            prices = last.prices
        return Values(view, configs, gains, prices, self.loss_s)

    def _plan(
        self,
        values: Values,
        held: Floats,
        choice: ProgramChoice,
        holds: HoldTimes,
        last: LastDecision | None,
    ) -> Plan:
        """The choice with its reasons, and what to remember of it."""
        view, configs, answer = values.view, values.configs, choice.answer
        changes, pairs = choice.changes, choice.pairs
        parts = start_parts(view, changes, fewest_nodes)
        better = find_better_plans(view, changes)
        waiting: Bools = answer.pick < 0
        waiting[[*parts]] = False
        explained = np.zeros(0) if last is None else last.waiting
        return Plan(
            self._with_batches(values, choice, better)
            | {view.job(row).id: on for row, on in parts.items()},
            wake_at=float((np.floor(view.now / self.wake_s) + 1.0) * self.wake_s),
            reasons={
                **clear_reasons(view, waiting, explained),
                **explain_changes(view, configs, choice.worth.speed, answer, changes),
                **explain_pairs(view, pairs, changes),
                **explain_plans(view, better),
                **show_figures(view, configs, choice.worth.value, answer),
            },
            blockers=gave_way(view, changes),
            memory=LastDecision(
                answer.prices,
                holds.lose(_find_lost(values, held, choice)),
                view.table.seq[waiting],
                choice.alone,
            ),
            numbers=_say_prices(view, choice) | ({"pairs": float(len(pairs))} if pairs else {}),
            restarts=find_hurried(view, changes, held, answer.pick, choice.worth)
            | find_parted(view, changes),
        )

    def _with_batches(
        self, values: Values, choice: ProgramChoice, better: dict[int, Allocation]
    ) -> dict[JobId, Allocation | None]:
        """The changes, with the batch that a job is best to begin with, and `better` plans.

        Once it has reported, it tunes itself.
        """
        view = values.view
        changes = attach_plans(view, choice.changes)
        planned: dict[JobId, Allocation | None] = {}
        for row in np.flatnonzero(view.reported()).tolist():
            on = view.allocation(row)
            if on is not None and on.batch is not None and row not in changes:
                planned[view.job(row).id] = replace(on, batch=None)
        planned |= {view.job(row).id: on for row, on in better.items()}
        for row, on in changes.items():
            job = view.job(row)
            stays = self.share and on is not None and _is_there(view, row, on)
            if on is not None and view.pooled is not None and self.pooled and not stays:
                config = values.configs[choice.answer.pick[row]]
                on = replace(on, batch=view.pooled.first_batch(job, config))
            planned[job.id] = on
        return planned


@cache
def _about(*, pools: bool, together: bool) -> About:
    shares = Controls.SHARE if together else Controls.NOTHING
    side = tax.DeviceSharing.SIDE_BY_SIDE if together else tax.DeviceSharing.EXCLUSIVE
    return About(
        "weft",
        "our own",
        needs=Needs.MODEL,
        controls=Controls.COUNT | Controls.BATCH | Controls.PLAN | shares,
        starves="the longest, while shorter ones keep coming",
        idles="GPUs go only to jobs that are predicted to benefit from them",
        taxonomy=replace(WHERE, sharing=side),
        pools=pools,
    )


def _start_from(last: LastDecision | None) -> StartPrices:
    if last is None or not len(last.prices):
        return StartPrices()
    return StartPrices(last.prices, last.prices if last.alone is None else last.alone)


def _is_there(view: View, row: int, on: Allocation) -> bool:
    """True if a row holds just these devices."""
    was = view.allocation(row)
    return was is not None and was.devices == on.devices


def _find_lost(values: Values, held: Floats, choice: ProgramChoice) -> list[str]:
    """Models and kinds of rows that were planned to something slower, or to nothing."""
    view, speed = values.view, choice.worth.speed
    lost = []
    for row in choice.changes:
        was, to = int(held[row]), int(choice.answer.pick[row])
        if was >= 0 and (to < 0 or speed[row, to] < speed[row, was]):
            lost.append(key_of(view.job(row).model, values.configs[was].kind))
    return lost


def _say_prices(view: View, choice: ProgramChoice) -> dict[str, float]:
    """The gap to the best and what a GPU of each kind is worth now, for people."""
    prices = zip(view.cluster.kinds, choice.answer.prices.tolist(), strict=False)
    return {"gap": float(choice.answer.gap), **{f"price {kind}": price for kind, price in prices}}


# ---- The same with two jobs on the same devices, where both together gain


def choose_shared(values: Values, held: Floats, start: StartPrices) -> ProgramChoice:
    """The program for every job alone, then the best answer with pairs."""
    view, configs = values.view, values.configs
    together = values.of(held)
    partners = find_partners(view, together.weight)
    apart = partners.leave(held)
    worth = values.of(apart) if partners.guests else together
    room = find_room(view, partners)
    alone = solve(values, worth.value, apart, start.alone, room)
    improve = share_devices(view, configs, together, worth, held, partners)
    answer, pairs = improve(alone, lambda value: solve(values, value, apart, start.shared, room))
    changes = place_pairs(view, find_wanted(configs, answer), pairs, partners)
    return ProgramChoice(worth, answer, changes, pairs, alone.prices)


# ---- How much a second of each job weighs for the mean completion time: by rank of what is
# left
#
# Where the speed of a job grows with the power `shape` of its share, the best shares follow
# from the ranks alone (Berg, Vesilo and Harchol-Balter, "heSRPT: Parallel scheduling to
# minimize mean slowdown", Performance Evaluation 144, 2020): weights are their marginal costs.


def rank_weights(left: Floats, shape: float = 0.6) -> Floats:
    """The weight of each job, the one with most seconds left having the least, 1."""
    rank = np.empty(len(left))
    rank[np.argsort(-left, kind="stable")] = np.arange(1.0, len(left) + 1.0)
    power = 1.0 / (1.0 - shape)
    weights: Floats = (rank**power - (rank - 1.0) ** power) ** (1.0 / power)
    return weights


def share_ranks(weights: Floats, left: Floats, among: Bools) -> Floats:
    """Weights with one for all of `among` that have as much left: their mean.

    Whose rank is the higher then says nothing, and what a change costs decides between them.
    """
    shared = weights.copy()
    if not among.any():
        return shared
    _, where, count = np.unique(left[among], return_inverse=True, return_counts=True)
    shared[among] = (np.bincount(where, weights[among]) / count)[where]
    return shared


def flatten_large(weights: Floats, left: Floats, large_s: float) -> Floats:
    """Weights with one for all that have more than `large_s` left: their mean.

    Among them ranks would only start the largest last, and the whole work would end later.
    """
    large = left > large_s
    if not large.any():
        return weights
    return np.where(large, weights[large].mean(), weights)
