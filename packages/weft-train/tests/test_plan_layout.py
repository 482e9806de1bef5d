"""Plans as text on so many ranks, and how they divide a batch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from weft_train import plan
from weft_train.errors import TrainError
from weft_train.plans.frameworks import for_huggingface, for_lightning
from weft_train.plans.layout import ParallelLayout, divide_batch, read_layout


def test_plans_over_several_ranks_say_what_torch_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(TrainError, match=r"weft-train\[plans\]"):
        plan(nn.Identity, torch.optim.SGD, nn.functional.mse_loss, batch=4)


def test_replicas_follow_from_the_ranks() -> None:
    assert read_layout("tp2-pp2-ga4-gc", 8) == ParallelLayout(2, 2, 2, 0, 4, checkpointing=True)
    assert read_layout("dp", 3) == ParallelLayout(3)
    assert read_layout("zero3-offload", 4) == ParallelLayout(4, zero=3, offload=True)


@pytest.mark.parametrize(
    ("text", "why"),
    {
        "tp3": "does not fit 4 ranks",
        "dp2": "does not fit 4 ranks",
        "tp": "cannot read 'tp'",
        "tp2-tp2": "cannot read 'tp2'",
        "gc2": "cannot read 'gc2'",
        "tp²": "cannot read",
        "tp0": "out of range",
        "zero4": "out of range",
        "fast": "cannot read 'fast'",
    }.items(),
)
def test_plans_that_cannot_run_say_why(text: str, why: str) -> None:
    with pytest.raises(TrainError, match=why):
        read_layout(text, 4)


def test_replicas_share_a_batch_evenly_or_not_at_all() -> None:
    layout = read_layout("ga2", 4)

    rows = [divide_batch(layout, 16, replica) for replica in range(4)]

    assert [(part.start, part.stop) for part in rows] == [(0, 4), (4, 8), (8, 12), (12, 16)]
    with pytest.raises(TrainError, match="multiple of 8"):
        divide_batch(layout, 12, 0)


def test_a_plan_becomes_arguments_of_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("WEFT_PLAN", "zero2-ga4-gc")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)

    chosen = for_huggingface(64)

    assert chosen["per_device_train_batch_size"] * chosen["gradient_accumulation_steps"] * 2 == 64
    assert chosen["fsdp_config"] == {
        "reshard_after_forward": False,
        "cpu_offload": False,
        "activation_checkpointing": True,
    }
    monkeypatch.setenv("WEFT_PLAN", "tp2")
    with pytest.raises(TrainError, match="divides neither tensors"):
        for_huggingface(64)


@pytest.mark.parametrize("arguments", [for_huggingface, for_lightning])
def test_trainers_that_would_replicate_on_cpu_ranks_are_not_asked_to_divide(
    arguments: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("WEFT_PLAN", "zero3")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    with pytest.raises(TrainError, match="divides optimizer states on GPUs only"):
        arguments(64)


def test_hugging_face_takes_these_arguments(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import transformers

    monkeypatch.setenv("WEFT_PLAN", "ga4-gc")

    taken = transformers.TrainingArguments(str(tmp_path), use_cpu=True, **for_huggingface(64))

    assert (taken.train_batch_size, taken.gradient_accumulation_steps) == (16, 4)
    assert taken.gradient_checkpointing or taken.activation_checkpointing


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lightning_takes_these_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    import lightning

    monkeypatch.setenv("WEFT_PLAN", "ga4")

    chosen, rows = for_lightning(64)

    trainer = lightning.Trainer(accelerator="cpu", logger=False, **chosen)
    assert (trainer.accumulate_grad_batches, rows) == (4, 16)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_strategy_is_of_the_package_that_the_script_imports(package: str) -> None:
    script = f"import {package}\nfrom weft_train.plans.frameworks import find_lightning\n"

    run = subprocess.run(
        [sys.executable, "-c", f"{script}print(find_lightning())"], capture_output=True, text=True
    )

    assert run.stdout.strip() == package, run.stderr[-1000:]
