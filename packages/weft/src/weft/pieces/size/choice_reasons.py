"""Reasons for what a program gave a job: in words, and in its own figures on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from weft.core.model.job import Allocation, Config, JobId, NodeId
from weft.core.plan.reasons import Blocker, asks_for, name_some
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.solve.multiple_choice import Answer

BEST = 0.995  # of its best speed: as good as the best


def explain_changes(
    view: View,
    configs: tuple[Config, ...],
    speed: Floats,
    answer: Answer,
    changes: Mapping[int, Allocation | None],
) -> dict[JobId, str]:
    """A sentence for each row that starts, stops or changes its size."""
    stops = say_gave_way(view, changes)
    return {
        (name := view.job(row).id): stops[name]
        if to is None
        else _takes(view, row, configs, speed[row], int(answer.pick[row]))
        for row, to in changes.items()
    }


def clear_reasons(view: View, waiting: Bools, explained: Floats) -> dict[JobId, str]:
    """Nothing to say to newly waiting jobs; `explained` are the numbers of those that waited."""
    fresh = np.flatnonzero(waiting)
    if len(explained):
        seq = view.table.seq[fresh]
        fresh = fresh[explained.take(np.searchsorted(explained, seq), mode="clip") != seq]
    return {view.job(row).id: "" for row in fresh.tolist()}


def gave_way(view: View, changes: Mapping[int, Allocation | None]) -> dict[JobId, Blocker]:
    """Reasons why jobs stop; why they wait from then on is a separate reason."""
    return {view.job(row).id: Blocker.GAVE_WAY for row, to in changes.items() if to is None}


def show_figures(
    view: View, configs: tuple[Config, ...], value: Floats, answer: Answer
) -> dict[JobId, str]:
    """The worth of sizes to the jobs that are asked about; values compare within a decision."""
    rows = [row for row, job in enumerate(view.table.jobs) if job.id in view.asked]
    kinds = view.cluster.kinds
    each = answer.prices[[kinds.index(config.kind) for config in configs]]
    each = each * np.array([float(config.gpus) for config in configs])
    bill = ", ".join(f"{k} {p:.2g}" for k, p in zip(kinds, answer.prices, strict=True))
    return {
        view.job(row).id: _figures(configs, value[row], each, int(answer.pick[row]), bill)
        for row in rows
    }


def _takes(view: View, row: int, configs: tuple[Config, ...], speed: Floats, pick: int) -> str:
    """`starts on 2 a100 GPUs, at 60 % of its best speed`; the best is among the sizes it takes."""
    was, size = view.allocation(row), _size(configs[pick])
    fast = float(speed[pick])
    best = _size(configs[int(speed.argmax())])
    how = "" if fast >= BEST else f", at {fast:.0%} of the speed it has with {best}"
    if was is None:
        return f"starts on {size}{how}"
    if was.gpus == configs[pick].gpus:
        return f"moves to {size}{how}"
    word = "grows" if configs[pick].gpus > was.gpus else "shrinks"
    return f"{word} from {was.gpus} to {size}{how}"


def say_gave_way(view: View, changes: Mapping[int, Allocation | None]) -> dict[JobId, str]:
    """The jobs that got the devices of each row that stops."""
    takers: dict[tuple[NodeId, int], list[int]] = {}
    for row, to in changes.items():
        for device in () if to is None else _devices(to):
            takers.setdefault(device, []).append(row)
    place = {row: at for at, row in enumerate(changes)}
    reasons = {}
    for row, to in changes.items():
        if to is None:
            was = view.allocation(row)
            assert was is not None
            rows = {taker for device in _devices(was) for taker in takers.get(device, ())}
            names = [view.job(taker).id for taker in sorted(rows, key=place.__getitem__)]
            reasons[view.job(row).id] = _gave_way(view, was, names)
    return reasons


def _gave_way(view: View, was: Allocation, takers: list[JobId]) -> str:
    size = asks_for(was.gpus, (view.cluster.kind_of(was),), was.sharing.share)
    whom = name_some(takers) if takers else "jobs that gain more by them"
    return f"gave way: its {size} went to {whom}; it goes on when there is room"


def _devices(on: Allocation) -> Iterator[tuple[NodeId, int]]:
    return ((part.node, gpu) for part in on.slices for gpu in part.gpus)


def _figures(
    configs: tuple[Config, ...], value: Floats, price: Floats, pick: int, bill: str
) -> str:
    """The size it got or could have got, and the best of the rest."""
    net = value - price
    others = net.copy()
    if pick >= 0:
        others[pick] = -np.inf
    best = int(others.argmax())
    any_other = bool(np.isfinite(others[best]))
    prices = f"prices a GPU: {bill}"
    if pick < 0 and not any_other:
        return f"no size that it takes is there; {prices}"
    if pick < 0:
        return f"best {_describe(configs, value, net, best)}; {prices}"
    rest = f"; next {_describe(configs, value, net, best)}" if any_other else ""
    return f"{_describe(configs, value, net, pick)}{rest}; {prices}"


def _describe(configs: tuple[Config, ...], value: Floats, net: Floats, at: int) -> str:
    return f"{_size(configs[at])}: worth {value[at]:.3g}, {net[at]:.3g} after the price"


def _size(config: Config) -> str:
    return asks_for(config.gpus, (config.kind,))
