"""What a start or a change would cost each job, on each size, as far as it was measured."""

from __future__ import annotations

import numpy as np

from weft.core.knowledge.costs import Costs
from weft.core.model.job import Config
from weft.core.plan.view import View
from weft.core.state.cells import Column, Floats
from weft.core.state.table import Rows
from weft.frozen import frozen
from weft.native import compiled
from weft.pieces.size.configs import gpus_of, kinds_of


@frozen
class ChangeSeconds:
    """Rows x sizes: seconds lost by a start, by a change while running, and until that is ready.

    `kind` is that which each row holds, -1 where none; `moved` are the GPUs of it that a change to
    another kind keeps from others until it is ready.
    """

    start: Floats
    change: Floats
    ready: Floats
    moved: Floats
    kind: Rows


def change_seconds(
    view: View, configs: tuple[Config, ...], held: Floats, costs: Floats
) -> ChangeSeconds:
    """Of all rows, of which each holds the size of that number, below 0 none; by `read_costs`.

    A job that cannot change its devices as it trains, or is still restoring, has to restart. One
    that can and gets fewer GPUs of the same kind gives the others up at once.
    """
    table, own = view.table, np.empty(len(held), dtype=np.intp)
    start, change, ready, moved = np.empty((4, len(held), len(configs)))
    fill_changes(
        *(costs, held, table.column(Column.REPORTED), table.column(Column.ATTEMPT), table.held),
        *(gpus_of(configs), start, change, ready, moved),
        *(kinds_of(configs, view.cluster.kinds), own),
    )
    return ChangeSeconds(start, change, ready, moved, own)


@compiled
def fill_changes(
    costs: Floats,
    held: Floats,
    reported: Floats,
    attempt: Floats,
    devices: Floats,
    gpus: Floats,
    start: Floats,
    change: Floats,
    ready: Floats,
    moved: Floats,
    kind: Rows,
    own: Rows,
) -> None:
    """The same, into `start`, `change`, `ready`, `moved` and `own`, the kind that rows hold."""
    at = held.astype(np.intp)
    own[:] = np.where(at >= 0, kind[at], -1)
    count = np.where(at >= 0, gpus[at], 0.0)[:, None]
    young = (reported == 0.0)[:, None]  # its first start is not over
    start[:] = np.where(young, costs[0], costs[1])[:, kind]
    same = own[:, None] == kind[None, :]
    trains = ((devices > 0.0) & (reported == attempt))[:, None]
    live = (costs[2][:, kind] > 0.0) & trains
    fewer = same & (gpus[None, :] < count)
    pause = costs[3][:, kind] + np.where(fewer, 0.0, costs[4][:, kind])
    change[:] = np.where(live, pause, start)
    ready[:] = np.where(live & ~fewer, costs[5][:, kind], 0.0)
    moved[:] = np.where(live & ~same, count, 0.0)


def read_costs(view: View) -> Floats:
    """First start, restart, whether live, pause, the pause of what is sent, preparation.

    Each of rows x kinds.
    """
    kinds, table = view.cluster.kinds, view.table
    costs = view.knowledge.costs
    if costs is None:
        seconds = np.zeros((6, len(table), len(kinds)))
        seconds[:2] = view.believed().restart_s(table)[:, None]
        return seconds
    number: dict[str, int] = {}
    cells: list[list[tuple[float, ...]]] = []
    which = []
    for job in table.jobs:
        key = job.model or job.id
        if key not in number:
            number[key] = len(cells)
            cells.append([_columns(costs.costs(job, kind)) for kind in kinds])
        which.append(number[key])
    return np.array(cells)[which].transpose(2, 0, 1)


def _columns(costs: Costs) -> tuple[float, ...]:
    sent = costs.pause_gb_s * costs.state_gb
    live = float(costs.live)
    return costs.first_start_s, costs.restart_s, live, costs.pause_s, sent, costs.prepare_s
