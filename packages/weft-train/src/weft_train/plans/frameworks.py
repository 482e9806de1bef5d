"""An execution plan as arguments of other people's trainers."""

from __future__ import annotations

import sys
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from weft_train.base.environment import Environment
from weft_train.errors import TrainError
from weft_train.plans.layout import ParallelLayout, divide_batch, read_layout

FULL = 3
CHECKPOINTING = "activation_checkpointing"


def for_huggingface(batch: int, *, default: str = "dp") -> dict[str, Any]:
    """Arguments of `transformers.TrainingArguments` for the plan in `WEFT_PLAN`.

    `batch` is the samples of a step over all ranks, the same under every plan.
    """
    layout, rows = _read(batch, default, "Hugging Face's Trainer")
    chosen: dict[str, Any] = {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": layout.accumulate,
        _name_checkpointing(): layout.checkpointing and not layout.zero,
    }
    if layout.zero:
        config = {
            "reshard_after_forward": layout.zero == FULL,
            "cpu_offload": layout.offload,
            CHECKPOINTING: layout.checkpointing,
        }
        chosen |= {"fsdp": True, "fsdp_config": config}
    return chosen


def _name_checkpointing() -> str:
    """Return this release's name of the option: the older one warns, and goes with version 6."""
    from transformers import TrainingArguments

    names = {field.name for field in fields(TrainingArguments)}
    return CHECKPOINTING if CHECKPOINTING in names else "gradient_checkpointing"


def for_lightning(batch: int, *, default: str = "dp") -> tuple[dict[str, Any], int]:
    """Arguments of `lightning.Trainer` for the plan in `WEFT_PLAN`, and a loader's batch size."""
    layout, rows = _read(batch, default, "Lightning's Trainer")
    if layout.checkpointing:
        raise TrainError(
            f"plan {layout.text}: Lightning leaves gradient checkpointing to the model",
            hint="declare plans without gc, or use weft_train.plan",
        )
    chosen: dict[str, Any] = {"accumulate_grad_batches": layout.accumulate}
    if layout.zero:
        strategies = import_module(f"{find_lightning()}.strategies")
        sharding: Any = "FULL_SHARD" if layout.zero == FULL else "SHARD_GRAD_OP"
        chosen["strategy"] = strategies.FSDPStrategy(
            sharding_strategy=sharding, cpu_offload=layout.offload
        )
    elif layout.data > 1:
        chosen["strategy"] = "ddp"
    return chosen, rows


def find_lightning() -> str:
    """The package that the script imports: neither takes the other's strategies."""
    old = "pytorch_lightning"
    if old in sys.modules and "lightning.pytorch" not in sys.modules:
        return old
    return "lightning.pytorch" if find_spec("lightning") else old


def _read(batch: int, default: str, who: str) -> tuple[ParallelLayout, int]:
    """The plan, and the rows of one pass on one rank."""
    env = Environment.read()
    layout = read_layout(env.plan or default, env.world_size)
    if layout.tensor > 1 or layout.pipeline > 1:
        raise TrainError(
            f"plan {layout.text}: {who} divides neither tensors nor a pipeline",
            hint="declare plans of dp, zero, ga, offload and gc, or use weft_train.plan",
        )
    if layout.offload and not layout.zero:
        raise TrainError(
            f"plan {layout.text}: {who} offloads what ZeRO divides", hint="add zero2 or zero3"
        )
    if layout.zero and not torch.cuda.is_available():  # one would replicate without a word
        raise TrainError(
            f"plan {layout.text}: {who} divides optimizer states on GPUs only",
            hint="declare dp, ga and gc for CPU ranks, or use weft_train.plan",
        )
    rows = divide_batch(layout, batch, 0)
    return layout, (rows.stop - rows.start) // layout.accumulate
