"""Divides a model among ranks, with PyTorch's own parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from weft_train.errors import TrainError
from weft_train.plans.layout import ParallelLayout

STYLES = {"column": ColwiseParallel, "row": RowwiseParallel}
FULL = 3  # the stage of ZeRO that divides weights as well


class ModuleChain(nn.Module):
    """Some of a model's parts, called one after the other, under the names they have in it."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names
        self.model = model

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values after all parts."""
        for name in self.names:
            values = self.model.get_submodule(name)(values)
        return values


def list_parts(model: nn.Module, chain: Sequence[str]) -> list[str]:
    """The names that patterns such as `blocks.*` stand for, in the order they are called in."""
    names = [name for name, _ in model.named_modules() if name]
    parts: list[str] = []
    for pattern in chain:
        level = pattern.count(".")
        matching = [n for n in names if n.count(".") == level and fnmatchcase(n, pattern)]
        if not matching:
            raise TrainError(f"the model has no part {pattern!r}", hint=f"it has {names[:8]}")
        parts += matching
    return parts


def cut_stage(model: nn.Module, parts: Sequence[str], stage: int, stages: int) -> ModuleChain:
    """Keep the parts of one stage of a model; the others are let go."""
    if len(parts) < stages:
        raise TrainError(f"{len(parts)} parts cannot make {stages} stages of a pipeline")
    first, last = (len(parts) * at // stages for at in (stage, stage + 1))
    for name in (*parts[:first], *parts[last:]):
        parent, _, own = name.rpartition(".")
        del model.get_submodule(parent)._modules[own]
    return ModuleChain(model, parts[first:last])


def divide_tensors(model: nn.Module, mesh: DeviceMesh, styles: Mapping[str, str]) -> None:
    """Split layers by columns or rows, as patterns of their names say."""
    plan: dict[str, Any] = {}
    for name, module in model.named_modules():
        for pattern, style in styles.items():
            if isinstance(module, nn.Linear) and fnmatchcase(name, pattern):
                plan[name] = STYLES[style]()
    if not plan:
        raise TrainError(
            "the plan divides tensors, and no layer is declared divisible",
            hint='pass tensor={"*.up": "column", "*.down": "row"} with names of your layers',
        )
    parallelize_module(model, mesh, plan)


def save_activations(blocks: Sequence[nn.Module]) -> None:
    """Compute what these parts keep for the backward pass a second time instead."""
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def share_data(
    model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, layout: ParallelLayout
) -> nn.Module:
    """Replicas of a model, or one that ZeRO divides among them."""
    if layout.zero or layout.offload:
        on_gpu = mesh.device_type == "cuda"
        policy = CPUOffloadPolicy() if layout.offload and on_gpu else OffloadPolicy()
        for module in (*blocks, model):
            fully_shard(
                module, mesh=mesh, reshard_after_forward=layout.zero == FULL, offload_policy=policy
            )
    elif layout.data > 1 and layout.tensor == layout.pipeline == 1:
        # Every rank has built the same, and those of one that grows do not build at once.
        return DistributedDataParallel(model, process_group=mesh.get_group(), init_sync=False)
    return model
