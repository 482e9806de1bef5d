"""Why a program gave a job what it gave: its worth, the next best, and what GPUs cost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.core.model.job import Config, JobId
from weft.core.plan.reasons import asks_for
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.solve.multiple_choice import Answer


def explain_choices(
    view: View, configs: tuple[Config, ...], value: Floats, answer: Answer, rows: Iterable[int]
) -> dict[JobId, str]:
    """A sentence for each of these rows; values compare within one decision."""
    kinds = view.cluster.kinds
    each = answer.prices[[kinds.index(config.kind) for config in configs]]
    each = each * np.array([float(config.gpus) for config in configs])
    bill = ", ".join(f"{k} {p:.2g}" for k, p in zip(kinds, answer.prices, strict=True))
    return {
        view.job(row).id: _explain(configs, value[row], each, int(answer.pick[row]), bill)
        for row in rows
    }


def _explain(
    configs: tuple[Config, ...], value: Floats, price: Floats, pick: int, bill: str
) -> str:
    """What it got or could have got, and the best of the rest."""
    net = value - price
    others = net.copy()
    if pick >= 0:
        others[pick] = -np.inf
    best = int(others.argmax())
    any_other = bool(np.isfinite(others[best]))
    prices = f"prices a GPU: {bill}"
    if pick < 0:
        if not any_other:
            return f"no size that it takes is there; {prices}"
        return f"waits for {_size(configs[best])}: {_worth(value, net, best)}; {prices}"
    rest = f"; next {_describe(configs, value, net, best)}" if any_other else ""
    return f"{_describe(configs, value, net, pick)}{rest}; {prices}"


def _describe(configs: tuple[Config, ...], value: Floats, net: Floats, at: int) -> str:
    verb = "is" if configs[at].gpus == 1 else "are"
    return f"{_size(configs[at])} {verb} {_worth(value, net, at)}"


def _size(config: Config) -> str:
    return asks_for(config.gpus, (config.kind,))


def _worth(value: Floats, net: Floats, at: int) -> str:
    return f"worth {value[at]:.3g}, {net[at]:.3g} after the price"
