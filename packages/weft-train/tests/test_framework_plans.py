"""Other people's trainers go from plan to plan on real ranks, and their losses do not notice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks

STEPS, BATCH = 4, 16
LIMIT_S = 900.0
ENVIRONMENT = {"WEFT_KIND": "cpu"}


def write(out: Path, losses: dict[str, list[float]]) -> None:
    if os.environ["RANK"] == "0":
        out.write_text(json.dumps(losses))


def with_huggingface(out: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from weft_train.plans.frameworks import for_huggingface

    config = GPT2Config(
        vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    rows = torch.randint(0, 32, (BATCH * STEPS, 16), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in rows]

    def train(plan: str, folder: str, steps: int, last: str | None = None) -> Any:
        os.environ["WEFT_PLAN"] = plan
        torch.manual_seed(0)
        options = TrainingArguments(
            str(out.parent / folder), max_steps=steps, use_cpu=True, report_to=[], logging_steps=1,
            disable_tqdm=True, save_steps=2, learning_rate=1e-2, lr_scheduler_type="constant",
            **for_huggingface(BATCH),
        )  # fmt: skip
        trainer = Trainer(GPT2LMHeadModel(config), options, train_dataset=data)
        trainer.train(resume_from_checkpoint=last)
        return trainer

    def losses(trainer: Any) -> list[float]:
        return [line["loss"] for line in trainer.state.log_history if "loss" in line]

    alone = losses(train("dp", "alone", STEPS))
    train("dp", "changing", 2)
    changed = train("ga2-gc", "changing", STEPS, str(out.parent / "changing" / "checkpoint-2"))
    assert changed.model.is_gradient_checkpointing
    assert changed.args.gradient_accumulation_steps == 2
    write(out, {"alone": alone, "changed": losses(changed)})


def with_lightning(out: Path) -> None:
    import lightning.pytorch as pl
    import torch
    from benchmarks.framework_plans import lightning_model

    from weft_train.plans.frameworks import for_lightning

    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))

    def train(plan: str, epochs: int, last: str | None = None) -> tuple[Any, list[float]]:
        os.environ |= {"WEFT_PLAN": plan, "WORLD_SIZE": "2"}  # the last trainer took it away
        chosen, rows = for_lightning(BATCH)
        trainer = pl.Trainer(
            accelerator="cpu", devices=2, max_epochs=epochs, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            **chosen,
        )  # fmt: skip
        torch.manual_seed(0)
        model = lightning_model(pl, torch.nn.Linear(8, 1), lr=1e-2)
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=rows), ckpt_path=last)
        return trainer, model.losses

    _, alone = train("dp", STEPS)
    half, losses = train("dp", 2)
    half.save_checkpoint(last := str(out.parent / "half.ckpt"))
    changed, more = train("ga2", STEPS, last)
    assert changed.accumulate_grad_batches == 2
    write(out, {"alone": alone, "changed": losses + more})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "train"), [("transformers", with_huggingface), ("lightning", with_lightning)]
)
def test_a_trainer_changes_its_plan_by_configuration(
    library: str, train: Any, tmp_path: Path
) -> None:
    out = tmp_path / "losses"

    started = ranks.start(train, 2, ENVIRONMENT, out)

    assert ranks.finish(started, LIMIT_S) == [0, 0]
    losses = json.loads(out.read_text())
    assert losses["changed"] == pytest.approx(losses["alone"], rel=1e-4)
    assert len(losses["changed"]) == STEPS
