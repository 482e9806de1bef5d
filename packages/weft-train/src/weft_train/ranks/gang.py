"""The ranks of a job: how they meet, where they compute, and how they agree.

A few times per second the ranks sum a short vector of requests and measurements. The sum of one
exchange is read at the next, so no rank waits for it, and all act on it at the same step.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from weft_train.base.environment import Environment
from weft_train.errors import TrainError
from weft_train.ranks import groups
from weft_train.ranks.pickled import pack, unpack

CHUNK = 32 << 20


class RankGang:
    """One rank among its peers. A job of one rank needs no process group at all.

    `epoch` counts changes of the ranks; one that is `joining` has no peers until it has adopted
    that epoch, though `rank` and `size` are what they will be. `data` is the group that gradients
    are averaged over, None for torch's own.
    """

    def __init__(self, env: Environment, device: str | None = None, timeout_s: float = 600.0):
        self.rank, self.size, self.nodes = env.rank, env.world_size, env.nodes
        self.device = _choose_device(env, device)
        if self.device.type == "cuda" and env.most_ranks:
            groups.outlive_peers()
        self._control: Any = None
        self._pending: tuple[Any, torch.Tensor] | None = None
        self._made = False
        self.epoch, self.joining = 0, env.join
        self.data: Any = None
        if self.size > 1 and not self.joining:
            self._join(env, timeout_s)

    @property
    def alone(self) -> bool:
        """True if there are no other ranks to agree with."""
        return self.size == 1 or bool(self.joining)

    def adopt(self, rank: int, size: int, data: Any, control: Any, epoch: int) -> list[Any]:
        """Go on among other peers; the groups that are no longer used."""
        gone = [self.data, self._control]
        if dist.is_initialized() and self._made:
            gone.append(dist.group.WORLD)
        self.rank, self.size, self.epoch, self.joining = rank, size, epoch, 0
        self.data, self._control, self._pending, self._made = data, control, None, False
        groups.make_default(data)
        return [group for group in gone if group is not None]

    def vote(self, good: bool) -> bool:
        """Return true if all ranks vote true."""
        if self.alone:
            return good
        votes = torch.tensor([float(good)])
        dist.all_reduce(votes, group=self._control)
        return bool(votes.item() == self.size)

    def _join(self, env: Environment, timeout_s: float) -> None:
        limit = dt.timedelta(seconds=timeout_s)
        if not dist.is_initialized():
            if not env.master_addr or not env.master_port:
                raise TrainError(
                    f"WORLD_SIZE is {env.world_size} but MASTER_ADDR or MASTER_PORT is not set",
                    hint="start the script with torchrun, or through weft",
                )
            self._make(rank=self.rank, world_size=self.size, timeout=limit)
        # A group of its own: control never queues behind gradients, and stays on the CPU.
        self._control = dist.new_group(backend="gloo", timeout=limit)

    def form_alone(self) -> None:
        """A process group of this rank alone, for parts of torch that need one."""
        if not dist.is_initialized():
            self._make(store=groups.open_store_alone(), rank=0, world_size=1)

    def _make(self, **where: Any) -> None:
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, **where)
        self._made = True

    def begin_sum(self, wishes: Sequence[float]) -> None:
        """Start summing this rank's vector with the others'."""
        sums = torch.tensor(wishes, dtype=torch.float64)
        work = None
        if not self.alone:
            work = dist.all_reduce(sums, group=self._control, async_op=True)
        self._pending = (work, sums)

    def read_sum(self) -> list[float] | None:
        """The sum of the vectors begun last; None if there is none."""
        if self._pending is None:
            return None
        work, sums = self._pending
        self._pending = None
        if work is not None:
            work.wait()
        return sums.tolist()

    def average(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Average gradients over the ranks; a rank without one adds nothing to that of the others.

        A parameter that has none anywhere keeps none.
        """
        every = list(parameters)
        if self.alone or not every:
            return
        there = torch.tensor([float(p.grad is not None) for p in every], device=self.device)
        dist.all_reduce(there, group=self.data)
        used = [p for p, ranks in zip(every, there.tolist(), strict=True) if ranks]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for some in _split_chunks([p.grad for p in used if p.grad is not None]):
            flat = torch.cat([gradient.flatten() for gradient in some]).div_(self.size)
            dist.all_reduce(flat, group=self.data)
            parts = torch.split(flat, [gradient.numel() for gradient in some])
            for gradient, part in zip(some, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, at rank 0; an empty list at the others."""
        if self.alone:
            return [value]
        packed = pack(value)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([packed.numel()]), group=self._control)
        padded = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8)
        padded[: packed.numel()] = packed
        held = [torch.empty_like(padded) for _ in sizes] if self.rank == 0 else []
        dist.gather(padded, held or None, dst=0, group=self._control)
        return [unpack(each) for each in held]

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, at every rank."""
        if self.alone:
            return value
        packed = pack(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([packed.numel()])
        dist.broadcast(size, src=0, group=self._control)
        if self.rank != 0:
            packed = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(packed, src=0, group=self._control)
        return value if self.rank == 0 else unpack(packed)

    def wait_for_first(self) -> None:
        """Wait until rank 0 has come here."""
        if not self.alone:
            dist.broadcast(torch.zeros(1), src=0, group=self._control)

    def wait(self) -> None:
        """Wait until every rank has come here."""
        if not self.alone:
            dist.barrier(group=self._control)

    def wait_for_sums(self) -> None:
        """Wait for all that ranks summed on GPUs; RuntimeError if a sum was broken off."""
        if self.device.type != "cuda":
            return
        if not self.alone:
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.data)
        torch.cuda.synchronize(self.device)

    def break_off(self) -> None:
        """Leave the others, who train on."""
        if self.data is not None or self._made:
            groups.abort(self.data or dist.group.WORLD)

    def release_groups(self) -> None:
        """Give the process group back, if it was made here."""
        if self.data is not None:
            groups.end_group(self.data)
        elif self._made and dist.is_initialized():
            dist.destroy_process_group()
            self._made = False


def _split_chunks(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type together, up to some megabytes: few sums, little memory beside them."""
    held: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if held and (size + tensor.nbytes > CHUNK or tensor.dtype != held[0].dtype):
            yield held
            held, size = [], 0
        held.append(tensor)
        size += tensor.nbytes
    if held:
        yield held


def _check_no_gpu_is_meant(env: Environment) -> None:
    """Raise TrainError where training on the CPU would hold a GPU for nothing."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if env.kind not in ("", "cpu") and given and torch.version.cuda is not None:
        raise TrainError(
            f"this job was given GPU {given} of kind {env.kind}, and CUDA finds none",
            hint="look at `nvidia-smi` on that node; `weft doctor` checks the driver and MPS",
        )


def _choose_device(env: Environment, asked: str | None) -> torch.device:
    if asked not in (None, "cuda"):
        return torch.device(asked)
    if asked is None and (env.kind == "cpu" or not torch.cuda.is_available()):
        _check_no_gpu_is_meant(env)
        return torch.device("cpu")
    # A launcher that shows each rank one GPU leaves only number 0 to choose.
    number = env.local_rank % max(torch.cuda.device_count(), 1)
    torch.cuda.set_device(number)
    if env.gpu_mem_gb:
        whole = torch.cuda.get_device_properties(number).total_memory / 2**30
        part = min(env.gpu_mem_gb / whole, 1.0)
        torch.cuda.set_per_process_memory_fraction(part, number)
    return torch.device("cuda", number)
