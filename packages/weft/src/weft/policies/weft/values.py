"""The worth of sizes to jobs: speeds, seconds left, weights, and what a change costs.

The program gives each job one size within the GPUs of each kind, of the highest total worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Config, Demand
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.native import compiled
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.share.pair_choices import Pair
from weft.pieces.share.partners import NO_PARTNERS, Partners
from weft.pieces.size.change_seconds import Worth, change_seconds
from weft.pieces.size.configs import find_acceptable, find_smallest, gpus_of, kinds_of
from weft.pieces.size.plans import overlay_plans
from weft.solve.few_jobs import NONE, ChoiceProblem
from weft.solve.multiple_choice import Answer, choose


@frozen
class Gains:
    """Speeds of sizes as parts of the best, seconds left, weights, and which sizes are allowed.

    `rise_s` is how long a rise to each size counts at most, `costs` what starts and changes take;
    a restart counts `times` as long as it takes. Starts of `plain` rows are in their weights.
    """

    speed: Floats
    left: Floats
    weight: Floats
    allowed: Bools
    rise_s: Floats
    costs: Floats
    times: Floats
    plain: Bools


@frozen
class Values:
    """The worth of sizes at the last prices, whatever rows are said to hold."""

    view: View
    configs: tuple[Config, ...]
    gains: Gains
    prices: Floats
    loss_s: float

    def of(self, held: Floats) -> Worth:
        """Rows x sizes, for rows that hold these; -inf where a size is not allowed."""
        gains = self.gains
        seconds = change_seconds(self.view, self.configs, held, gains.costs)
        times = gains.times[:, None]
        changes = ChangePrices(
            np.where(gains.plain[:, None], 0.0, times * seconds.start),
            times * seconds.change,
            times * seconds.ready,
            seconds.moved * np.append(self.prices, 0.0)[seconds.kind][:, None],
            gains.rise_s,
            self.loss_s,
        )
        value = restart_values(gains.speed, held, gains.weight, gains.left, changes)
        value = np.where(gains.allowed, value, -np.inf)
        return Worth(value, gains.speed, gains.weight, seconds.change, seconds.start, seconds.ready)


def find_goodputs(view: View, configs: tuple[Config, ...], *, pooled: bool, shape: float) -> Floats:
    """Beliefs where there are any, else what the size that was asked for lets expect.

    Of jobs without reports, speed grows with the power `shape` of GPUs.
    """
    believed = view.believed(pooled=pooled)
    kinds = view.cluster.kinds
    kind, gpus = kinds_of(configs, kinds), gpus_of(configs)
    goodput = believed.goodputs(view.table, configs)
    units = believed.units(view.table, kinds).take(kind, 1)
    unknown = np.isnan(goodput[:, 0])
    if unknown.any() and view.pooled is not None and pooled:
        alone = view.pooled.alone(view.table, kinds)[:, kind]
        goodput[unknown] = expected_speeds(view, alone, units, gpus, shape)[unknown]
    elif unknown.any():
        goodput[unknown] = 0.0
    goodput, planned = overlay_plans(view, configs, goodput)
    fits = _find_fitting(view, configs, gpus)
    goodput[~fits] = 0.0
    for row in np.flatnonzero(~goodput.any(axis=1) & ~planned).tolist():
        goodput[row] = find_smallest(configs, fits[row], units[row]) * units[row]
    return goodput


def expected_speeds(view: View, alone: Floats, units: Floats, gpus: Floats, shape: float) -> Floats:
    """As fast as one replica on each kind, times a power of their number."""
    each = np.maximum(units, 1.0)
    whole = (units > 0.0) & (gpus[None, :] % each == 0.0)
    asked = np.maximum(view.table.gpus, 1.0)[:, None]
    return np.where(whole & (gpus[None, :] <= asked), alone * (gpus / each) ** shape, 0.0)


def _find_fitting(view: View, configs: Sequence[Config], gpus: Floats) -> Bools:
    """Rows x sizes: which ones jobs take."""
    masks: dict[Demand, Bools] = {}
    for job in view.table.jobs:
        if job.demand not in masks:
            masks[job.demand] = find_acceptable(job.demand, tuple(configs), gpus)
    return np.array([masks[job.demand] for job in view.table.jobs])


# ---- What sizes are worth to jobs that lose time whenever they change
#
# A job with that many seconds left that runs at part `speed` of its best makes `weight` x `speed`
# a second. A change to a faster size is worth that only for the part of its horizon that the
# restart leaves; losing what it holds costs a restart within a shorter horizon.


@frozen
class ChangePrices:
    """Seconds without progress: of a start, and of a change of what is held; rows x sizes.

    A change begins to pay after `ready_s`, in which a job goes on as it is, and what it holds costs
    `rent` a second to jobs that wait for it. `rise_s` and `loss_s` are the longest horizons that a
    rise and a loss are counted over.
    """

    start_s: Floats
    change_s: Floats
    ready_s: Floats
    rent: Floats
    rise_s: Floats
    loss_s: float
    least: float = 0.02  # of what a faster size is worth that is left at any rate


def restart_values(
    speed: Floats, held: Floats, weight: Floats, left: Floats, changes: ChangePrices
) -> Floats:
    """Rows x sizes: what each size is worth to each job; nothing at all is worth 0.

    `speed` is a part of the best, `held` the size that each job holds, below 0 where none; `left`
    are seconds at the best size.
    """
    value = np.empty_like(speed)
    seconds = changes.start_s, changes.change_s, changes.ready_s
    fill_values(
        *(speed, *seconds, changes.rent, changes.rise_s, value),
        *(held, weight, left, changes.loss_s, changes.least),
    )
    return value


@compiled
def fill_values(
    speed: Floats,
    start_s: Floats,
    change_s: Floats,
    ready_s: Floats,
    rent: Floats,
    rise_s: Floats,
    value: Floats,
    held: Floats,
    weight: Floats,
    left: Floats,
    loss_s: float,
    least: float,
) -> None:
    """Write the values of sizes into `value`."""
    rows = np.arange(len(speed))
    has: Bools = (held >= 0.0)[:, None]
    now = np.where(has[:, 0], speed[rows, np.maximum(held, 0.0).astype(np.intp)], 0.0)[:, None]
    same = held[:, None] == np.arange(speed.shape[1])[None, :]
    w, seconds = weight[:, None], left[:, None]
    stop = start_s.max(axis=1)[:, None]
    lost = np.minimum(loss_s, seconds / np.maximum(now, 1e-9) + stop)
    keep = w * now * stop / np.maximum(lost, 1.0)  # what being stopped would cost
    cost = np.where(has, change_s, start_s)
    ready = np.where(has, ready_s, 0.0)
    rise = np.maximum(np.minimum(rise_s, seconds / np.maximum(speed, 1e-9) + cost + ready), 1.0)
    faster = w * speed * np.maximum(1.0 - (cost + ready) / rise, least)
    faster += (w * now - rent) * np.minimum(ready / rise, 1.0)
    shrunk = np.minimum(loss_s, seconds / np.maximum(now, 1e-9) + cost)
    slower = w * speed - (w * now * cost + rent * ready) / np.maximum(shrunk, 1.0)
    gained = np.where(same, w * speed, np.where(has & (speed <= now), slower, faster))
    value[:] = np.where(has, gained + keep, gained)


TRIES = 4
GAP = 1e-3  # from the best program that is good enough


@frozen
class StartPrices:
    """Prices to start the program from: with pairs, and if no jobs shared; None for none."""

    shared: Floats | None = None
    alone: Floats | None = None


@frozen
class ProgramChoice:
    """The program's answer and what it means for devices, row by row.

    `pairs` share devices; `alone` are the prices if none did, where pairs were looked for.
    """

    worth: Worth
    answer: Answer
    changes: Mapping[int, Allocation | None]
    pairs: tuple[Pair, ...] = ()
    alone: Floats | None = None


def choose_alone(values: Values, held: Floats, start: StartPrices) -> ProgramChoice:
    """Every job on devices of its own.

    A waiting job without a place for its size, since what is free is in pieces, gives it up, and so
    do all jobs that wait without a place: they would be tried in turn and find none either, or
    elastic jobs would fill the pieces that a plain job waits for.
    """
    view, worth = values.view, values.of(held)
    room, value = find_room(view, NO_PARTNERS), worth.value
    firm = np.flatnonzero(~view.preemptible()).tolist()
    for _ in range(TRIES):
        answer = solve(values, value, held, start.alone, room)
        wanted = find_wanted(values.configs, answer)
        changes = place_configs(view, wanted, firm=firm)
        homeless = [r for r in wanted if view.allocation(r) is None and changes.get(r) is None]
        if not homeless:
            break
        without = view.waiting()
        without[[*changes]] = False
        value = value.copy()
        value[np.ix_(without, np.unique(answer.pick[homeless]))] = -np.inf
    return ProgramChoice(worth, answer, changes)


def solve(
    values: Values, value: Floats, held: Floats, start: Floats | None, room: Floats
) -> Answer:
    """The program for all rows that may change; the others keep what they have."""
    view, configs = values.view, values.configs
    kind, count = kinds_of(configs, view.cluster.kinds), gpus_of(configs)
    pick = np.where(view.preemptible(), float(NONE), held).astype(np.intp)
    room = room.copy()
    np.subtract.at(room, kind[pick[pick >= 0]], count[pick[pick >= 0]])
    rows = np.flatnonzero(pick < 0)
    problem = ChoiceProblem(value[rows], kind, count, np.maximum(room, 0.0))
    answer = choose(problem, gap=GAP, start=start)
    pick[rows] = answer.pick
    return replace(answer, pick=pick)


def find_wanted(configs: tuple[Config, ...], answer: Answer) -> dict[int, Config]:
    """Sizes by row, of jobs that get any."""
    return {row: configs[size] for row, size in enumerate(answer.pick.tolist()) if size >= 0}


def find_room(view: View, partners: Partners) -> Floats:
    """GPUs of each kind that are free, or held by rows of the view.

    Of partners one counts. Jobs that asked for parts of one GPU each keep it, as if it were whole.
    """
    kinds = view.cluster.kinds
    room = np.array([float(view.free.idle(kind)) for kind in kinds])
    for row, on in enumerate(view.table.allocations):
        if on is not None and row not in partners.guests:
            room[kinds.index(view.cluster.kind_of(on))] += on.gpus
    return room
