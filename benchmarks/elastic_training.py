"""Whether a training that is resized and killed ends where the undisturbed one does.

    python -m benchmarks.elastic_training [cnn|huggingface|lightning ...] [--resizes 15] [--kills 5]

Each training runs undisturbed, with as many seeds as needed to know its noise, and once stopped
and started on another number of processes again and again, with kills in between. Learning rates
must be the same at every step; the final loss must lie within the noise.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 600.0
SEEDS = 3
BATCH = 48
SAMPLES = 480
EPOCHS = 30


@dataclass(frozen=True, slots=True)
class Attempt:
    """So many processes that go on until a step, and what happens then (nothing: the end)."""

    ranks: int
    until: int = 0
    signal: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """What a training did: the rate of every step, and the loss at the end."""

    rates: dict[int, list[float]]
    final: float


class Notes:
    """What rank 0 writes down, and the signal that comes at a step."""

    def __init__(self, folder: str, attempt: Attempt) -> None:
        self._attempt = attempt
        self._first = os.environ["RANK"] == "0"
        self._out = Path(folder, f"notes.{time.time_ns()}").open("w", buffering=1)  # noqa: SIM115

    def step(self, number: int, rate: float) -> None:
        """Before optimizer step `number` (from 0)."""
        if self._first:
            self._out.write(json.dumps({"step": number, "rate": rate}) + "\n")
        if self._attempt.signal and number >= self._attempt.until and self._first:
            signal_now, self._attempt = self._attempt.signal, Attempt(1)
            os.kill(os.getpid(), signal_now)

    def end(self, loss: float) -> None:
        """After the last step."""
        if self._first:
            self._out.write(json.dumps({"final": loss}) + "\n")


def train_cnn(folder: str, attempt: Attempt, seed: int) -> None:
    """`weft_train`: one-cycle rates, clipping, a loss scaler, 16-bit forward passes, validation."""
    import torch
    from torch import nn
    from torch.optim.lr_scheduler import OneCycleLR

    import weft_train as wt

    notes = Notes(folder, attempt)
    job = wt.init(f"{folder}/checkpoints", checkpoint_every_s=2.0, seed=seed)
    torch.manual_seed(seed)
    data = make_pictures(SAMPLES)
    model: Any = make_cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model, optimizer = job.wrap(model, optimizer, scaling="none", clip=1.0, scaler=scaler)
    loader = job.loader(data, BATCH)
    job.schedule(OneCycleLR(optimizer, max_lr=0.05, total_steps=EPOCHS * len(loader)))
    for _ in job.epochs(EPOCHS):
        model.train()
        for picture, label in loader:
            notes.step(job.steps, optimizer.param_groups[0]["lr"])
            with job.step(), torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(picture), label)
                job.backward(loss)
        validation = validate(model)
        job.report(validation=validation)
    notes.end(validation)


def train_huggingface(folder: str, attempt: Attempt, seed: int) -> None:
    """The Hugging Face Trainer with a cosine schedule and warm-up."""
    import torch
    import transformers as tf

    from weft_train.huggingface import Elastic

    notes = Notes(folder, attempt)

    class Model(tf.PreTrainedModel):  # type: ignore[misc, unused-ignore]
        config_class = tf.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.inner = make_cnn()
            self.post_init()

        def forward(self, picture: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.inner(picture)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Watch(tf.TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_begin(self, _args: Any, state: Any, _control: Any, **held: Any) -> None:
            notes.step(state.global_step, held["optimizer"].param_groups[0]["lr"])

    tf.logging.set_verbosity_error()
    torch.manual_seed(seed)
    rows = [{"picture": x, "labels": y} for x, y in make_pictures(SAMPLES)]
    elastic = Elastic(checkpoint_every_s=2.0)
    options = tf.TrainingArguments(
        f"{folder}/out", num_train_epochs=EPOCHS, learning_rate=0.02, lr_scheduler_type="cosine",
        warmup_steps=20, max_grad_norm=1.0, optim="sgd", optim_args="momentum=0.9", report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True, seed=seed, logging_strategy="no",
        dataloader_pin_memory=False, **elastic.split_batch(BATCH),
    )  # fmt: skip
    model = Model(tf.PretrainedConfig())
    trainer = tf.Trainer(model, options, train_dataset=rows, callbacks=[elastic, Watch()])
    trainer.train(resume_from_checkpoint=elastic.last(f"{folder}/out"))
    notes.end(validate(model.inner))


def train_lightning(folder: str, attempt: Attempt, seed: int) -> None:
    """PyTorch Lightning with a one-cycle schedule."""
    import logging
    import warnings

    import lightning.pytorch as pl
    import torch

    from weft_train.lightning import Elastic

    notes = Notes(folder, attempt)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Model(pl.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_cnn()

        def training_step(self, batch: Any, _at: int) -> torch.Tensor:
            notes.step(self.global_step, self.optimizers().param_groups[0]["lr"])
            picture, label = batch
            return torch.nn.functional.cross_entropy(self.inner(picture), label)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, 0.05, total_steps=EPOCHS * (SAMPLES // BATCH)
            )
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    torch.manual_seed(seed)
    model = Model()
    elastic = Elastic(f"{folder}/checkpoints", checkpoint_every_s=2.0)
    Path(f"{folder}/checkpoints").mkdir(exist_ok=True)
    loader = elastic.loader(make_pictures(SAMPLES), BATCH, seed=seed)
    trainer = pl.Trainer(
        **elastic.trainer_arguments(), max_epochs=EPOCHS, accelerator="cpu", logger=False,
        gradient_clip_val=1.0, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[elastic],
    )  # fmt: skip
    trainer.fit(model, loader, ckpt_path=elastic.last())
    notes.end(validate(model.inner))


TRAININGS: dict[str, Callable[[str, Attempt, int], None]] = {
    "cnn": train_cnn,
    "huggingface": train_huggingface,
    "lightning": train_lightning,
}
PRELOAD = {
    "cnn": ["weft_train", "torch._dynamo"],
    "huggingface": ["weft_train.huggingface", "transformers.trainer", "torch._dynamo"],
    "lightning": ["weft_train.lightning", "torch._dynamo"],
}


def make_pictures(count: int, seed: int = 1) -> Any:
    """Pictures with one bright quarter, and which it is."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=generator)
    picture = torch.randn(count, 1, 8, 8, generator=generator)
    for quarter in range(4):
        top, left = 4 * (quarter // 2), 4 * (quarter % 2)
        picture[label == quarter, :, top : top + 4, left : left + 4] += 0.5
    return torch.utils.data.TensorDataset(picture, label)


def make_cnn() -> Any:
    """Small, and without norms that see how samples are dealt to processes."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)
    )


def validate(model: Any) -> float:
    """Loss on pictures that were not trained on."""
    import torch

    model.eval()
    with torch.no_grad():
        picture, label = make_pictures(512, seed=2).tensors
        return float(torch.nn.functional.cross_entropy(model(picture), label))


def plan_attempts(resizes: int, kills: int, steps: int) -> list[Attempt]:
    """Stops with another size each time, kills spread among them, and the end."""
    events = resizes + kills
    killed = {round((k + 0.5) * events / kills) for k in range(kills)} if kills else set()
    sizes = (1, 2)
    made = [
        Attempt(
            sizes[n % 2],
            (n + 1) * steps // (events + 2),
            signal.SIGKILL if n in killed else signal.SIGTERM,
        )
        for n in range(events)
    ]
    return [*made, Attempt(sizes[events % 2])]


def run(name: str, folder: Path, attempts: list[Attempt], seed: int) -> Ran:
    """All attempts, one after another."""
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in attempts:
        codes = run_attempt(name, folder, attempt, seed)
        wanted = attempt.signal == signal.SIGKILL
        if any(codes) != wanted:
            raise SystemExit(f"{name}: {attempt} ended with {codes}")
    notes = list(read_notes(folder))
    rates: dict[int, list[float]] = {}
    for note in notes:
        if "step" in note:
            rates.setdefault(int(note["step"]), []).append(note["rate"])
    return Ran(rates, next(note["final"] for note in notes if "final" in note))


def run_attempt(name: str, folder: Path, attempt: Attempt, seed: int) -> list[int | None]:
    """The exit codes of its processes; the others are ended when one has failed."""
    warm = mp.get_context("forkserver")
    warm.set_forkserver_preload(PRELOAD[name])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(attempt.ranks):
        env = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(port),
            "WORLD_SIZE": str(attempt.ranks), "LOCAL_WORLD_SIZE": str(attempt.ranks),
            "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        args = (name, env, str(folder), attempt, seed)
        processes.append(warm.Process(target=_train, args=args))
        processes[-1].start()
    end = time.monotonic() + LIMIT_S
    while any(process.is_alive() for process in processes) and time.monotonic() < end:
        time.sleep(0.05)
        if any(process.exitcode for process in processes):
            break
    for process in processes:
        process.join(1.0)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def _train(name: str, env: dict[str, str], folder: str, attempt: Attempt, seed: int) -> None:
    os.environ.update(env)
    import torch

    torch.set_num_threads(1)
    TRAININGS[name](folder, attempt, seed)


def read_notes(folder: Path) -> Iterator[dict[str, float]]:
    """What the attempts wrote, in their order."""
    for file in sorted(folder.glob("notes.*")):
        yield from (json.loads(line) for line in file.read_text().splitlines())


def compare(name: str, root: Path, resizes: int, kills: int) -> dict[str, Any]:
    """The undisturbed runs and the disturbed one."""
    calm = [run(name, root / f"calm-{seed}", [Attempt(1)], seed) for seed in range(SEEDS)]
    steps = len(calm[0].rates)
    moved = run(name, root / "moved", plan_attempts(resizes, kills, steps), 0)
    wrong = [step for step in moved.rates if set(moved.rates[step]) != set(calm[0].rates[step])]
    finals = [training.final for training in calm]
    return {
        "training": name,
        "steps": steps,
        "steps_again": sum(map(len, moved.rates.values())) - steps,
        "rates_differ": len(wrong) + len(calm[0].rates.keys() ^ moved.rates.keys()),
        "loss_undisturbed": finals[0],
        "loss_disturbed": moved.final,
        "loss_seeds": [min(finals), max(finals)],
    }


def main(words: list[str]) -> int:
    """Print a line of JSON for each training; 1 if a rate differs or a loss is out of the noise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic_training")
    parser.add_argument("trainings", nargs="*", default=[], metavar="TRAINING")
    parser.add_argument("--resizes", type=int, default=15)
    parser.add_argument("--kills", type=int, default=5)
    asked = parser.parse_args(words)
    bad = 0
    for name in asked.trainings or TRAININGS:
        with tempfile.TemporaryDirectory() as folder:
            comparison = compare(name, Path(folder), asked.resizes, asked.kills)
        low, high = comparison["loss_seeds"]
        off = abs(comparison["loss_disturbed"] - comparison["loss_undisturbed"])
        bad += comparison["rates_differ"] > 0 or off > high - low
        print(json.dumps(comparison))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
