"""Seconds that a start or a change would cost each job, on each size, as far as measured.

Times that jobs of a model keep GPUs of a kind before they are taken off again.

A rise pays for its restart only while it lasts: where others push jobs off soon, it is worth less.

Changes that others wait for: whether to stop a job rather than let it change as it trains.

A job that moves live keeps what it holds until its new processes are ready. Where jobs with more to
gain wait for just these devices, a restart through a checkpoint frees them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

import numpy as np

from weft.core.knowledge.costs import Costs
from weft.core.model.job import Allocation, Config, JobId
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.releasing import devices_of
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
        *(
            costs,
            held,
            table.column(TableColumns.REPORTED),
            table.column(TableColumns.ATTEMPT),
            table.held,
        ),
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
    """Fill `start`, `change`, `ready`, `moved` and `own`, the kind that rows hold."""
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


@frozen
class HoldTimes:
    """Seconds held and times lost by model and kind, both forgotten with a half-life."""

    at: float = 0.0
    held: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)

    def age(self, view: View, half_s: float) -> HoldTimes:
        """Count the time since the last decision."""
        seconds = max(view.now - self.at, 0.0)
        kept = 0.5 ** (seconds / half_s)
        held = {key: kept * value for key, value in self.held.items()}
        for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
            if on is not None:
                key = key_of(job.model, view.cluster.kind_of(on))
                held[key] = held.get(key, 0.0) + seconds
        return HoldTimes(view.now, held, {key: kept * value for key, value in self.lost.items()})

    def lose(self, keys: Collection[str]) -> HoldTimes:
        """Jobs of these models lost these kinds just now."""
        lost = dict(self.lost)
        for key in keys:
            lost[key] = lost.get(key, 0.0) + 1.0
        return HoldTimes(self.at, self.held, lost)

    def expect(self, view: View, prior_s: float) -> Floats:
        """Rows x kinds: seconds that a job may expect to keep a kind."""
        kinds = view.cluster.kinds
        by_model = {
            model: [self._last(key_of(model, kind), prior_s) for kind in kinds]
            for model in {job.model for job in view.table.jobs}
        }
        return np.array([by_model[job.model] for job in view.table.jobs])

    def _last(self, key: str, prior_s: float) -> float:
        return (self.held.get(key, 0.0) + prior_s) / (self.lost.get(key, 0.0) + 1.0)


def key_of(model: str, kind: str) -> str:
    """Return the key as one string, so that JSON can hold it."""
    return f"{kind}/{model}"


@frozen
class Worth:
    """The worth of sizes to rows, their speeds, the weight of rows, and seconds of changes."""

    value: Floats
    speed: Floats
    weight: Floats
    change_s: Floats
    start_s: Floats
    ready_s: Floats


def find_hurried(
    view: View, changes: Mapping[int, Allocation | None], held: Floats, pick: Rows, worth: Worth
) -> frozenset[JobId]:
    """Jobs that lose less by a restart than others would by waiting for their devices."""
    takers: dict[tuple[str, int], int] = {}
    for row, to in changes.items():
        for device in () if to is None else devices_of(to):
            takers[device] = row
    job_ids = []
    for row, to in changes.items():
        was, size = view.allocation(row), int(pick[row])
        if was is None or to is None or size < 0 or held[row] < 0:
            continue
        ready = float(worth.ready_s[row, size])
        if ready <= 0.0:
            continue
        waiting = {takers[d] for d in devices_of(was) if d in takers} - {row}
        theirs = ready * sum(
            float(worth.weight[other] * worth.speed[other, pick[other]]) for other in waiting
        )
        now = float(worth.weight[row] * worth.speed[row, int(held[row])])
        if now * float(worth.start_s[row, size]) < theirs:
            job_ids.append(view.job(row).id)
    return frozenset(job_ids)
