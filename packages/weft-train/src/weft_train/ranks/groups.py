"""Process groups formed beside those in use: torch's own functions know only one set at a time.

Everything here that torch does not document is here alone, and only for versions it was tried
with; scripts on any other are restarted to change their ranks.
"""

from __future__ import annotations

import datetime as dt
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as core
from torch.distributed import distributed_c10d as c10d

TRIED = ("2.13",)
TRIED_ALONE = ("2.11", *TRIED)  # for a rank without peers: it needs lines, and no groups
LOOPBACK = "127.0.0.1"
RETIRE_S = 0.3  # until an unused group is closed: that takes up to 0.1 s, beside training


def is_tried(device: torch.device) -> bool:
    """Return true if ranks on this device can change in a training; on a GPU, a lone one."""
    version = ".".join(torch.__version__.split(".")[:2])
    tried = TRIED if device.type == "cpu" else TRIED_ALONE
    return version in tried and dist.is_available() and dist.is_gloo_available()


def connect(store: Any, name: str, rank: int, size: int, timeout_s: float) -> Any:
    """Lines between `size` ranks that meet in `store`, which torch knows nothing of."""
    gloo: Any = dist.ProcessGroupGloo
    if isinstance(store, core.TCPStore):  # other machines: by the interface of the first group
        met = core.PrefixStore(name, store)
        return gloo(met, rank, size, timeout=dt.timedelta(seconds=timeout_s))
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1", lazy_init=False)]
    options._threads = 2
    options._timeout = dt.timedelta(seconds=timeout_s)
    return gloo(core.PrefixStore(name, store), rank, size, options)


def form(store: Any, name: str, rank: int, size: int, timeout_s: float) -> Any:
    """A group of `size` ranks that meet in `store`, for tensors on CPUs."""
    met = core.PrefixStore(name, store)
    backend = connect(store, name, rank, size, timeout_s)
    group: Any = dist.ProcessGroup(met, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    group._set_group_name(name)
    ranks = {number: number for number in range(size)}
    register: Any = c10d._register_pg_in_world
    register(group, "gloo", met, name, "cpu:gloo", ranks)
    return group


def open_store_alone() -> Any:
    """Return a store for a rank without peers."""
    return core.HashStore()


def form_alone(name: str, timeout_s: float = 60.0) -> Any:
    """A group of one rank."""
    return form(open_store_alone(), name, 0, 1, timeout_s)


def open_store(place: str, timeout_s: float, *, host: bool = False) -> Any:
    """Open the store where ranks meet: on one machine a file, so that it outlives any rank.

    A `tcp://` place is for ranks on several; the one that is its `host` listens there.
    """
    limit = dt.timedelta(seconds=timeout_s)
    if is_far(place):
        return _open_far(place, limit, host=host)
    store = core.FileStore(place, -1)
    store.set_timeout(limit)
    return store


def is_far(place: str) -> bool:
    """Return true if ranks that meet there may be on several machines."""
    return place.startswith("tcp://")


def _open_far(place: str, limit: dt.timedelta, *, host: bool) -> Any:
    where = urlsplit(place)
    name, port = str(where.hostname), int(where.port or 0)
    if not host:
        return core.TCPStore(name, port, None, False, limit, False)
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((name if name == LOOPBACK else "", port))
        door.listen(128)
        return core.TCPStore(name, port, None, True, limit, False, master_listen_fd=door.detach())


def make_default(group: Any) -> None:
    """Let scripts that say `dist.all_reduce` and the like mean this group."""
    c10d._update_default_pg(group)


def retire(groups: list[Any]) -> None:
    """Close groups that are no longer used, in a while and beside training."""
    for group in groups:
        _forget(group)
    threading.Thread(target=_close, args=(groups,), name="weft-retire", daemon=True).start()


def _close(groups: list[Any]) -> None:
    time.sleep(RETIRE_S)
    groups.clear()  # the last reference: sockets are closed


def _forget(group: Any) -> None:
    world = c10d._world
    for known in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config):
        known.pop(group, None)
    tag = world.pg_to_tag.pop(group, None)
    for held in world.tags_to_pg.values():
        if group in held:
            held.remove(group)
    if tag is not None:
        core._unregister_process_group(group.group_name)
