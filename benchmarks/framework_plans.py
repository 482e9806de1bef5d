"""Plans of Hugging Face and Lightning on GPUs: `python -m benchmarks.framework_plans [--ranks 1]`.

Each library trains one small model under each plan in processes of its own, by what
`weft_train.plans.frameworks` makes of `WEFT_PLAN`: the losses must be those of plain replicas, and
a `zero` plan must have divided the weights (`held`: the part of them that one rank keeps). Prints
the last loss, how far it is from the first plan's, and the peak memory of the GPU. Two ranks can
share one GPU by gloo, for Hugging Face alone. Without a GPU, plans with `zero` are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

PLANS = ("dp", "ga2", "gc", "zero2", "zero3", "zero3-gc", "zero2-offload", "zero3-ga2")
STEPS, BATCH, WORDS, CONTEXT, WIDTH, LAYERS = 6, 16, 512, 64, 256, 4
NOISE = 1e-3  # of losses in 32 bits
LIMIT_S = 240.0


def main() -> int:
    """Print a row for each library and plan; fail where one trains something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--libraries", nargs="*", default=["huggingface", "lightning"])
    parser.add_argument("--plans", nargs="*", default=list(PLANS))
    parser.add_argument("--train", nargs=2, metavar=("LIBRARY", "OUT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        library, out = args.train
        write(Path(out), with_huggingface(out) if library == "huggingface" else with_lightning())
        return 0
    bad = 0
    print(f"{'library':14}{'plan':16}{'last loss':>11}{'of first':>11}{'held':>7}{'GPU MB':>8}")
    for library in args.libraries:
        first: list[float] = []
        for plan in args.plans:
            if skip(library, plan, args.ranks):
                continue
            row, error = train(library, plan, args.ranks)
            if row is None:
                bad += 1
                print(f"{library:14}{plan:16}failed: {error}", flush=True)
                continue
            first = first or row["losses"]
            far = max(abs(a / b - 1.0) for a, b in zip(row["losses"], first, strict=True))
            divided = row["wrapped"] and row["held"] <= 1.0 / args.ranks + 0.1
            wrong = far > NOISE or ("zero" in plan and not divided)
            bad += wrong
            print(
                f"{library:14}{plan:16}{row['losses'][-1]:11.5f}{far:11.1e}{row['held']:7.2f}"
                f"{row['peak_mb']:8.0f}{'  WRONG' if wrong else ''}",
                flush=True,
            )
    return 1 if bad else 0


def skip(library: str, plan: str, ranks: int) -> bool:
    """Whether a library cannot run a plan here."""
    if library == "lightning" and ("gc" in plan or ranks > max(torch.cuda.device_count(), 1)):
        return True
    return "zero" in plan and not torch.cuda.is_available()


def train(library: str, plan: str, ranks: int) -> tuple[dict[str, Any] | None, str]:
    """What rank 0 wrote, or the last line of who failed."""
    shared = ranks > torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        out, port = Path(folder) / "row.json", free_port()
        started = []
        for rank in range(ranks):
            own = {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                "LOCAL_RANK": "0" if shared else str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port, "WEFT_PLAN": plan, "SHARED_GPU": str(int(shared)),
                "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
            }  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.framework_plans", "--train", library]
            log = (Path(folder) / f"log{rank}").open("w")
            started.append(
                subprocess.Popen(
                    [*command, str(out)], env={**os.environ, **own}, stdout=log, stderr=log
                )
            )
        for process in started:
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if out.is_file() and not any(process.returncode for process in started):
            return json.loads(out.read_text()), ""
        lines = (Path(folder) / "log0").read_text().strip().splitlines()
        return None, lines[-1] if lines else f"nothing within {LIMIT_S:.0f} s"


def free_port() -> str:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def write(out: Path, row: dict[str, Any]) -> None:
    """What was measured, by rank 0."""
    row["peak_mb"] = torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else 0.0
    if os.environ["RANK"] == "0":
        out.write_text(json.dumps(row))


def read_words() -> torch.Tensor:
    """Rows of words, the same everywhere."""
    seed = torch.Generator().manual_seed(1)
    return torch.randint(0, WORDS, (BATCH * STEPS, CONTEXT), generator=seed)


def with_huggingface(out: str) -> dict[str, Any]:
    """A GPT-2 by its Trainer."""
    from torch.distributed.tensor import DTensor
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from weft_train.plans.frameworks import for_huggingface

    config = GPT2Config(
        vocab_size=WORDS, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    shared = {"ddp_backend": "gloo"} if os.environ["SHARED_GPU"] == "1" else {}
    options = TrainingArguments(
        str(Path(out).parent / "hf"), max_steps=STEPS, report_to=[], logging_steps=1,
        disable_tqdm=True, save_strategy="no", learning_rate=1e-3, lr_scheduler_type="constant",
        use_cpu=not torch.cuda.is_available(), **shared, **for_huggingface(BATCH),
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in read_words()]
    trainer = Trainer(GPT2LMHeadModel(config), options, train_dataset=data)
    trainer.train()
    weights = list(trainer.model_wrapped.parameters())
    own = [w.to_local() if isinstance(w, DTensor) else w for w in weights]
    return {
        "losses": [line["loss"] for line in trainer.state.log_history if "loss" in line],
        "held": sum(w.numel() for w in own) / sum(w.numel() for w in weights),
        "wrapped": any(isinstance(w, DTensor) for w in weights),
    }


def lightning_model(pl: Any, line: torch.nn.Module, lr: float) -> Any:
    """What Lightning trains `line` by, with the mean loss of every epoch in `losses`."""

    class Model(pl.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.line, self.losses = line, list[float]()

        def training_step(self, batch: Any, _at: int) -> torch.Tensor:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.line(x), y)
            self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
            return loss

        def on_train_epoch_end(self) -> None:
            self.losses.append(float(self.trainer.callback_metrics["loss"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=lr)

    return Model()


def with_lightning() -> dict[str, Any]:
    """Layers in a row by Lightning's Trainer."""
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl
    from weft_train.plans.frameworks import for_lightning

    x = torch.randn(4 * BATCH, CONTEXT, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
    chosen, rows = for_lightning(BATCH)
    ranks = int(os.environ["WORLD_SIZE"])
    trainer = pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=ranks, logger=False,
        # Its own sampler would shuffle under some strategies and not under others.
        max_epochs=STEPS, enable_checkpointing=False, use_distributed_sampler=ranks > 1,
        enable_progress_bar=False, enable_model_summary=False, **chosen,
    )  # fmt: skip
    torch.manual_seed(0)
    layers = [torch.nn.Linear(CONTEXT, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
    model, held = lightning_model(pl, torch.nn.Sequential(*layers), lr=1e-3), 1.0
    total = sum(w.numel() for w in model.parameters())
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=rows))
    if "strategy" in chosen and chosen["strategy"] != "ddp":
        held = sum(w.numel() for w in trainer.strategy.model.parameters()) / total
    name = type(trainer.strategy).__name__
    return {"losses": model.losses, "held": held, "wrapped": name == "FSDPStrategy"}


if __name__ == "__main__":
    sys.exit(main())
