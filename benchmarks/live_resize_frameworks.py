"""The job of the live-resize benchmarks under another library's loop.

    python live_resize_frameworks.py hf|lightning|fsdp2 FOLDER LAYERS EPOCHS [SAVE_S [DEVICE]]

The network, the data and what is noted are those of `live_resize_job`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SAMPLES, BATCH, WIDTH = 2048, 16, 512


def build_net(layers: int) -> Any:
    """The network of the job."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
            self.out = nn.Linear(WIDTH, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + 0.05 * torch.relu(block(x))
            result: torch.Tensor = self.out(x)
            return result

    return Net()


def build(layers: int) -> Any:
    """The network and the data, the same on all ranks."""
    import torch

    torch.manual_seed(0)
    net = build_net(layers)
    x = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(7))
    y, ids = x.sum(1, keepdim=True), torch.arange(SAMPLES)
    return net, torch.utils.data.TensorDataset(x, y, ids)


class Notes:
    """One file of lines a process."""

    def __init__(self, folder: Path) -> None:
        from weft.base.environment import Environment

        self._out = (folder / f"{os.getpid()}.jsonl").open("a", buffering=1)
        self._device = Environment.read().device
        self.began, self.loss, self.ids = 0.0, 0.0, list[int]()

    def begin(self, ids: Any) -> None:
        """A step begins, on these samples."""
        self.began, self.ids = time.monotonic(), ids.tolist()

    def end(self, step: int, epoch: int, rank: int, size: int) -> None:
        """It is over."""
        row = (step, epoch, rank, size, self._device, self.began, time.monotonic())
        self._out.write(json.dumps([*row, self.loss, self.ids]) + "\n")


def train_hf(
    folder: Path, notes: Notes, layers: int, epochs: int, save_s: float, *, cpu: bool
) -> None:
    """As a script of a user with the Trainer does."""
    import torch
    from torch import nn
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from weft_train.huggingface import Elastic

    net, data = build(layers)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, y: Any, ids: Any) -> dict[str, Any]:
            if ids.any():  # not a rehearsal
                notes.begin(ids)
            loss = nn.functional.mse_loss(self.net(x), y)
            notes.loss = loss.item()
            return {"loss": loss}

    class Writes(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            place = args.process_index, args.world_size
            notes.end(state.global_step, int(state.epoch - 1e-9), *place)

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {
            k: torch.stack(part)
            for k, part in zip(("x", "y", "ids"), zip(*rows, strict=True), strict=True)
        }

    elastic = Elastic(report_every_s=0.1, checkpoint_every_s=save_s)
    options = TrainingArguments(
        str(folder / "out"), **elastic.split_batch(BATCH), num_train_epochs=epochs,
        save_strategy="no", learning_rate=1e-4, lr_scheduler_type="cosine", report_to=[],
        use_cpu=cpu, logging_steps=50, disable_tqdm=True, remove_unused_columns=False,
        max_grad_norm=0.0, weight_decay=0.0,
    )  # fmt: skip
    callbacks = [Writes(), elastic]
    trainer = Trainer(
        Model(), options, train_dataset=data, data_collator=collate, callbacks=callbacks
    )
    trainer.train(resume_from_checkpoint=elastic.last(folder / "out"))


def train_lightning(
    folder: Path, notes: Notes, layers: int, epochs: int, save_s: float, *, cpu: bool
) -> None:
    """As a script of a user with Lightning does."""
    import lightning.pytorch as pl
    import torch
    from torch import nn

    from weft_train.lightning import Elastic

    net, data = build(layers)

    class Model(pl.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, _at: int) -> Any:
            x, y, ids = batch
            if ids.any():
                notes.begin(ids)
            loss = nn.functional.mse_loss(self.net(x), y)
            notes.loss = loss.item()
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            trainer = self.trainer
            notes.end(
                trainer.global_step, trainer.current_epoch, trainer.global_rank, trainer.world_size
            )

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=1e-4)
            steps = epochs * (SAMPLES // BATCH)
            cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
            return [optimizer], [{"scheduler": cosine, "interval": "step"}]

    elastic = Elastic(folder / "out", report_every_s=0.1, checkpoint_every_s=save_s)
    loader = elastic.loader(data, BATCH)
    trainer = pl.Trainer(
        **elastic.trainer_arguments(), max_epochs=epochs, accelerator="cpu" if cpu else "gpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[elastic],
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path=elastic.last())


def train_plan(
    folder: Path,  # noqa: ARG001 - they all have it
    notes: Notes,
    layers: int,
    epochs: int,
    save_s: float,
    *,
    cpu: bool,
) -> None:
    """As a script of a user does whose model FSDP2 divides over its ranks."""
    import torch
    from torch import nn

    import weft_train as wt

    _, data = build(1)
    training = wt.plan(
        lambda: build_net(layers),
        lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
        nn.functional.mse_loss,
        batch=BATCH,
        layers=("blocks.*", "out"),
        default="zero3",
        report_every_s=0.1,
        checkpoint_every_s=save_s,
        device="cpu" if cpu else "cuda",
    )
    each = SAMPLES // BATCH
    for step in training.steps(epochs * each):
        rows = torch.arange(SAMPLES)[step % each * BATCH :][training.rows]
        x, y, ids = data[rows]
        notes.begin(ids)
        notes.loss = training.step(x, y)
        notes.end(step + 1, step // each, training.rank, training.layout.data)


def main() -> None:
    """Train as the command line says."""
    library, folder, layers, epochs, *rest = sys.argv[1:]
    save_s, device = float(rest[0]) if rest else 3600.0, rest[1] if len(rest) > 1 else "cpu"
    notes = Notes(Path(folder))
    if device == "cuda":  # ranks of one GPU meet only if NCCL takes them for as many machines
        os.environ |= {"NCCL_HOSTID": f"rank-{os.getpid()}", "NCCL_SOCKET_IFNAME": "lo"}
        os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # and so must the libraries
    train = {"hf": train_hf, "lightning": train_lightning, "fsdp2": train_plan}[library]
    train(Path(folder), notes, int(layers), int(epochs), save_s, cpu=device == "cpu")


if __name__ == "__main__":
    main()
