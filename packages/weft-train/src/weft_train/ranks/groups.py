"""Process groups formed beside those in use: torch's own functions know only one set at a time.

All that live changes need and torch does not document is here alone. `self_test` tries it with the
PyTorch that is installed; where that fails, scripts are restarted to change their ranks.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as core
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

CPU = torch.device("cpu")
LOOPBACK = "127.0.0.1"
RETIRE_S = 0.3  # until an unused group is closed: that takes up to 0.1 s, beside training
FIRST_SUM_S = 20.0  # what the first sums of a group of GPUs may take: its connections are made
FIRST_SUMS = (1, 1 << 20)  # numbers in them: NCCL connects in other ways for few and for many


def outlive_peers() -> None:
    """Let an error of one group of GPUs end that group, and not the process. Before the first one.

    Ranks that leave, and new ones that die, take their end of a group with them. By default NCCL's
    watchdog ends every process that notices, a minute later: first all write down what they were
    at, as a store tells them that may be gone. Now the next sum of that group raises instead.
    """
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")


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


def form(
    store: Any, name: str, rank: int, size: int, timeout_s: float, device: torch.device = CPU
) -> Any:
    """A group of `size` ranks that meet in `store`, for tensors on CPUs and on `device`."""
    met = core.PrefixStore(name, store)
    kinds = dist.ProcessGroup.BackendType
    lines = connect(store, name, rank, size, timeout_s)
    group: Any = dist.ProcessGroup(met, rank, size)
    by = "gloo" if device.type == "cpu" or size == 1 else "nccl"  # alone, no GPU is averaged with
    group._set_default_backend(kinds.GLOO if by == "gloo" else kinds.NCCL)
    group._register_backend(CPU, kinds.GLOO, lines)
    if by == "nccl":
        backend = _connect_gpus(core.PrefixStore(f"{name}-gpus", store), lines, timeout_s, device)
        group._register_backend(torch.device("cuda"), kinds.NCCL, backend)
    elif device.type == "cuda":
        group._register_backend(torch.device("cuda"), kinds.GLOO, lines)
    group._set_group_name(name)
    _make_known(group, by, met, name, size)
    return group


def _connect_gpus(met: Any, lines: Any, timeout_s: float, device: torch.device) -> Any:
    """Connect GPUs of ranks with lines now and not in the first step, beside training.

    A sum spins on a GPU until all have come, and whatever else that GPU must do may wait for it. So
    they come together. Nothing here may hold the interpreter's lock while it waits.
    """
    nccl: Any = dist.ProcessGroupNCCL
    stream: Any = torch.cuda.Stream
    options = nccl.Options()
    options._timeout = dt.timedelta(seconds=timeout_s)
    options.config.blocking = 0  # a rank that never comes is an error, not a thread that hangs
    backend = nccl(met, lines.rank(), lines.size(), options)
    try:
        with torch.cuda.device(device), torch.cuda.stream(stream(device)):
            for count in FIRST_SUMS:
                some = torch.ones(count, device=device)
                lines.barrier().wait()
                backend.allreduce([some]).wait()  # this stream waits, not this thread
                _wait_for_stream()
    except RuntimeError:
        backend.abort()
        raise
    return backend


def load_nccl(device: torch.device, timeout_s: float = 60.0) -> None:
    """Load NCCL and its kernels for a rank without peers, now and not beside its training.

    That takes a tenth of a second and more, in which the GPU's driver lets nothing else begin.
    """
    nccl: Any = dist.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = dt.timedelta(seconds=timeout_s)
    backend = nccl(core.PrefixStore("weft-load", core.HashStore()), 0, 1, options)
    for count in FIRST_SUMS:
        backend.allreduce([torch.ones(count, device=device)]).wait()
    torch.cuda.synchronize(device)
    backend.abort()


def _wait_for_stream() -> None:
    """Like `synchronize`, but with a limit."""
    event: Any = torch.cuda.Event
    done, until = event(), time.monotonic() + FIRST_SUM_S
    done.record()
    while not done.query():
        if time.monotonic() > until:
            raise RuntimeError("the first sum of the GPUs did not end")
        time.sleep(0.002)


def _make_known(group: Any, by: str, met: Any, name: str, size: int) -> None:
    world: Any = c10d._world
    world.pg_map[group] = (by, met)
    world.pg_names[group] = name
    world.pg_backend_config[group] = "cpu:gloo" if by == "gloo" else "cpu:gloo,cuda:nccl"
    world.pg_group_ranks[group] = {number: number for number in range(size)}
    world.pg_to_tag[group] = f"ptd:{name}"
    world.tags_to_pg.setdefault(f"ptd:{name}", []).append(group)
    register: Any = core._register_process_group
    register(name, group)


def open_store_alone() -> Any:
    """Return a store for a rank without peers."""
    return core.HashStore()


def form_alone(name: str, device: torch.device, timeout_s: float = 60.0) -> Any:
    """A group of one rank."""
    return form(open_store_alone(), name, 0, 1, timeout_s, device)


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


def find_default() -> Any:
    """The group that such scripts mean now; None if there is none."""
    return dist.group.WORLD


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
    for group in groups:
        abort(group)
    groups.clear()  # the last reference: sockets are closed


def abort(group: Any) -> None:
    """Break off what a group has on its GPU, whether its peers are there or not."""
    for backend in _gpu_parts(group):
        backend.abort()


def end_group(group: Any) -> None:
    """Close what a group has on its GPU, as all of its ranks do now."""
    for backend in _gpu_parts(group):
        backend.shutdown()


def _gpu_parts(group: Any) -> list[Any]:
    if isinstance(group, dist.ProcessGroup) and group.name() == "nccl":
        return [group._get_backend(torch.device("cuda"))]
    return []


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


def is_compiled(model: torch.nn.Module) -> bool:
    """Return true after `model.compile()`: its hooks are compiled too, and stay."""
    return model._compiled_call_impl is not None


def fix_buckets(model: DistributedDataParallel) -> None:
    """Fix the order in which gradients are averaged, the same on every rank forever.

    After the first step DistributedDataParallel regroups parameters in the order in which their
    gradients came. Ranks that join later would group them otherwise, and then sums of different
    lengths meet: the process is gone. So one backward skip zeros, from the last parameter to
    the first, fixes the groups before training begins, on those that begin and on those that join.
    """
    inner = model.module
    held = [p for p in inner.parameters() if p.requires_grad]
    before = [p.grad for p in held]
    sync = model.require_backward_grad_sync
    model.require_backward_grad_sync = True
    model.require_forward_param_sync = False  # what stands in for the model has no buffers
    model.module = _Touch(held)
    try:
        model(torch.zeros((), device=held[0].device)).backward()
    finally:
        model.module = inner
        model.require_backward_grad_sync = sync
    model.reducer._rebuild_buckets()
    model._has_rebuilt_buckets = True
    for parameter, gradient in zip(held, before, strict=True):
        parameter.grad = gradient


def move_to(model: DistributedDataParallel, group: Any) -> None:
    """Average over another group from here on; the groups of parameters stay."""
    model.process_group = group
    model.reducer._update_process_group(group)


class _Touch(torch.nn.Module):
    """Gives every parameter a gradient of zero, the last one first."""

    def __init__(self, held: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self._held = (held,)  # not its own parameters

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        """A sum that depends on all of them, by nothing."""
        total = start
        for parameter in self._held[0]:  # what is made last is undone first
            total = total + parameter.reshape(-1)[0].to(start.dtype) * 0.0
        return total
