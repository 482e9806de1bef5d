"""Places for pairs: the second of each two goes where the first one is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from weft.core.model.job import EXCLUSIVE, Allocation, Config, JobId, Sharing
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.share.pair_choices import Pair
from weft.pieces.share.partners import Partners

HALF = 0.5


def place_pairs(
    view: View, wanted: Mapping[int, Config], pairs: Collection[Pair], now: Partners
) -> dict[int, Allocation | None]:
    """The changes if the rows of `wanted`, and no others, hold these sizes, pairs together.

    Guests keep the devices that they are on now only with the partner of their pair. Each of two
    claims half; a job alone has all of its devices again. Neither stops a job where it is.
    """
    second = {pair.follower for pair in pairs}
    hosts = {row: config for row, config in wanted.items() if row not in second}
    changes = place_configs(view, hosts, now.guests)
    after = {row: changes.get(row, view.allocation(row)) for row in hosts}
    for pair in pairs:
        on = after.pop(pair.leader)
        for row in (pair.leader, pair.follower):
            if not _shares_there(view, row, on):
                changes[row] = None if on is None else _share(view, row, on)
            else:
                changes.pop(row, None)
    for row, on in after.items():
        if on is not None and row not in now.crowded and _is_half(view, row, on):
            changes[row] = _replace_share(view.free, on, EXCLUSIVE)
    allocations = {row: on for row, on in changes.items() if _differs(view, row, on)}
    return {row: _keep_batch(view, row, on) for row, on in allocations.items()}


def find_parted(view: View, changes: Mapping[int, Allocation | None]) -> frozenset[JobId]:
    """Jobs that leave or come to shared devices: they are stopped, and do not move as they train.

    Two sets of devices, one of them shared, would have to be held at a time.
    """
    job_ids = []
    for row, to in changes.items():
        was = view.allocation(row)
        if was is None or to is None or was.devices == to.devices:
            continue
        if HALF in (was.sharing.share, to.sharing.share):
            job_ids.append(view.job(row).id)
    return frozenset(job_ids)


def _is_half(view: View, row: int, on: Allocation) -> bool:
    """True if a job that could have all of its devices claims a part of them."""
    whole = view.job(row).demand.share == 1.0 and bool(view.preemptible()[row])
    return whole and on.sharing != EXCLUSIVE


def _shares_there(view: View, row: int, on: Allocation | None) -> bool:
    """True if a row has half of just these devices already, with the memory that it needs."""
    was = view.allocation(row)
    if was is None or on is None or was.devices != on.devices or was.sharing.share != HALF:
        return False
    return was.sharing.gpu_mem_gb == (view.sharing().profile(view.job(row)).mem_gb or None)


def _share(view: View, row: int, on: Allocation) -> Allocation:
    need = view.sharing().profile(view.job(row)).mem_gb
    return _replace_share(view.free, on, Sharing(HALF, gpu_mem_gb=need or None))


def _replace_share(free: Capacity, on: Allocation, sharing: Sharing) -> Allocation:
    """An allocation with the host's part for such a share."""
    slices = []
    for part in on.slices:
        mask = sum(1 << gpu for gpu in part.gpus)
        slices.append(free.slice_of(free.cluster.index[part.node], mask, sharing.share))
    return Allocation(tuple(slices), sharing)


def _keep_batch(view: View, row: int, on: Allocation | None) -> Allocation | None:
    """A job that stays where it is keeps the batch that it was given."""
    was = view.allocation(row)
    stays = on is not None and was is not None and was.devices == on.devices
    return replace(on, batch=was.batch) if stays and on and was else on


def _differs(view: View, row: int, on: Allocation | None) -> bool:
    was = view.allocation(row)
    if on is None or was is None:
        return on is not was
    return (was.slices, was.sharing) != (on.slices, on.sharing)
