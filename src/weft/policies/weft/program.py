"""What each job gets: one size per job within the GPUs of each kind, of the highest total worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Config
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.share.pair_choices import Pair
from weft.pieces.share.partners import NO_PARTNERS, Partners
from weft.pieces.size.checkpoint_moves import Worth
from weft.pieces.size.configs import gpus_of, kinds_of
from weft.policies.weft.values import Values
from weft.solve.multiple_choice import NONE, Answer, Problem, choose

TRIES = 4
GAP = 1e-3  # from the best program that is good enough


@frozen
class Start:
    """Prices to start the program from: with pairs, and if no jobs shared; None for none."""

    shared: Floats | None = None
    alone: Floats | None = None


@frozen
class Choice:
    """The program's answer and what it means for devices, row by row.

    `pairs` share devices; `alone` are the prices if none did, where pairs were looked for.
    """

    worth: Worth
    answer: Answer
    changes: Mapping[int, Allocation | None]
    pairs: tuple[Pair, ...] = ()
    alone: Floats | None = None


def choose_alone(values: Values, held: Floats, start: Start) -> Choice:
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
    return Choice(worth, answer, changes)


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
    problem = Problem(value[rows], kind, count, np.maximum(room, 0.0))
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
