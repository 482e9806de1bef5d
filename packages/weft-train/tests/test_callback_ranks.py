"""Ranks that come and go under the Hugging Face Trainer and Lightning, which know nothing of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks

from weft_train.base.messages import Adopted, Built, CanResize, Dropped, GroupPlan, Notice
from weft_train.base.messages import Stop as StopMessage

SAMPLES, BATCH, EPOCHS = 48, 12, 10_000
LIMIT_S = 1200.0  # of a whole test, on a busy machine


def make_net() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def make_data() -> Any:
    import torch

    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True), torch.arange(SAMPLES))


def note(folder: str, step: int, place: tuple[int, int], known: Any, micros: Any) -> None:
    """What a rank knows after a step: `known` is the same on all of them, and exact."""
    with Path(f"{folder}/{os.getpid()}.jsonl").open("a") as out:
        out.write(json.dumps([step, *place, known, [list(micro) for micro in micros]]) + "\n")


def measure(optimizer: Any) -> list[float]:
    """Numbers in which a lost or stale part of the optimizer shows."""
    return [
        float(sum(held[name].abs().sum() for held in optimizer.state.values()))
        for name in ("step", "exp_avg", "exp_avg_sq")
    ]


def with_huggingface(folder: str, last: int, most: int = 6, rest: int = 0) -> None:
    import torch
    import transformers.trainer as trainers
    from accelerate import Accelerator
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from weft_train.huggingface import Elastic

    micros: list[Any] = []

    class Model(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()

        def forward(self, x: Any, y: Any, ids: Any) -> dict[str, Any]:
            losses = (self.net(x) - y).square()
            micros.append((ids.tolist(), losses.mean().item()))
            return {"loss": losses.mean()}

    class Notes(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **now: Any) -> None:
            place = args.process_index, args.world_size
            done = micros[-args.gradient_accumulation_steps :]
            known = [now["lr_scheduler"].get_last_lr()[0], state.epoch]
            kept = measure(now["optimizer"].optimizer)
            note(folder, state.global_step, place, [known, kept], done)
            control.should_training_stop |= state.global_step == last

    def collate(rows: list[Any]) -> dict[str, Any]:
        x, y, ids = zip(*rows, strict=True)
        return {"x": torch.stack(x), "y": torch.stack(y), "ids": torch.stack(ids)}

    class Alone(Accelerator):  # type: ignore[misc, unused-ignore]
        """Leaves a model bare where there is one process, as it does on a GPU and not on CPUs."""

        def prepare_model(self, model: Any, *args: Any, **how: Any) -> Any:
            made = super().prepare_model(model, *args, **how)
            return made if self.num_processes > 1 else getattr(made, "module", made)

    trainers.Accelerator = Alone
    elastic = Elastic(report_every_s=0.0, checkpoint_every_s=600.0)
    options = TrainingArguments(
        f"{folder}/out", **elastic.split_batch(BATCH, max_per_device=most), num_train_epochs=EPOCHS,
        save_strategy="no", learning_rate=1e-2, report_to=[], use_cpu=True, logging_steps=7,
        disable_tqdm=True, remove_unused_columns=False, log_level="error",
    )  # fmt: skip
    data = torch.utils.data.Subset(make_data(), range(SAMPLES - rest))
    trainer = Trainer(
        Model(), options, train_dataset=data, data_collator=collate, callbacks=[elastic, Notes()]
    )
    trainer.train(resume_from_checkpoint=elastic.last(f"{folder}/out"))


def with_lightning(folder: str, last: int, most: int = 6, rest: int = 0) -> None:
    import logging
    import warnings

    import lightning.pytorch as pl
    import torch

    from weft_train.lightning import Elastic

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()
            self.micros: list[Any] = []

        def training_step(self, batch: Any, _at: int) -> Any:
            x, y, ids = batch
            losses = (self.net(x) - y).square()
            self.micros.append((ids.tolist(), losses.mean().item()))
            return losses.mean()

        def on_train_batch_end(self, *_: Any) -> None:
            own = self.trainer
            if (own.fit_loop.epoch_loop.batch_idx + 1) % 2:
                return
            place = own.global_rank, own.world_size
            lr = own.lr_scheduler_configs[0].scheduler.get_last_lr()[0]
            known = [lr, own.current_epoch, own.fit_loop.epoch_loop.batch_idx]
            note(
                folder,
                own.global_step,
                place,
                [known, measure(own.optimizers[0])],
                self.micros[-2:],
            )
            own.should_stop |= own.global_step == last

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            linear = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * 4)
            return [optimizer], [{"scheduler": linear, "interval": "step"}]

    elastic = Elastic(f"{folder}/out", report_every_s=0.0, checkpoint_every_s=600.0)
    loader: Any = elastic.loader(make_data(), BATCH, accumulate=2)
    if rest:
        loader = torch.utils.data.DataLoader(make_data(), batch_size=BATCH // 2)
    trainer = pl.Trainer(
        **elastic.trainer_arguments(), max_epochs=EPOCHS, accelerator="cpu", logger=False,
        accumulate_grad_batches=2, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[elastic],
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path=elastic.last())


LIBRARIES = pytest.mark.parametrize("script", [with_huggingface, with_lightning])


def join(script: Callable[..., None], own: dict[str, str], *args: Any) -> None:
    os.environ.update(own)
    script(*args)


class Job:
    """A job of one rank that may have more, and the agent that it talks to.

    Every wait for it ends when a rank has failed, and after `LIMIT_S` of the whole test.
    """

    def __init__(self, script: Callable[..., None], folder: Path, *options: Any) -> None:
        self.folder = folder / "live"
        self.folder.mkdir()
        self._script, self._options = script, options
        self._end = time.monotonic() + LIMIT_S
        self.agent = ranks.Agent(folder / "agent")
        self._env = {
            "WEFT_AGENT": str(self.agent.path), "WEFT_JOB": "job", "WEFT_ATTEMPT": "1",
            "WEFT_MOST_RANKS": "4", "WEFT_KIND": "cpu",
            "WEFT_CHECKPOINTS": str(folder / "checkpoints"),
        }  # fmt: skip
        self.processes = ranks.start(script, 1, self._env, str(self.folder), 0, *options)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def until(self, truth: Callable[[], object]) -> None:
        """Wait for something that is to come of the ranks."""
        while not truth():
            codes = [process.exitcode for process in self.processes]
            assert not any(codes), f"ranks ended with {codes}"
            assert time.monotonic() < self._end, (codes, self.agent.heard[-5:])
            time.sleep(0.01)

    def first(self, kind: type) -> Any:
        """The first message of a type."""
        self.until(lambda: self.agent.of(kind))
        return self.agent.of(kind)[0]

    def form(self, epoch: int, members: tuple[int, ...], new: tuple[int, ...] = ()) -> None:
        """New ranks begin, and when they are ready all change to these."""
        for number in new:
            place = {"RANK": str(members.index(number)), "WORLD_SIZE": str(len(members))}
            own = {**place, "WEFT_JOIN": str(epoch), "WEFT_MEMBER": str(number)}
            own |= {"LOCAL_RANK": place["RANK"], "LOCAL_WORLD_SIZE": place["WORLD_SIZE"]}
            args = (self._script, own, str(self.folder), 0, *self._options)
            self.processes += ranks.start(join, 1, self._env, *args)
        self.until(lambda: self.agent.of(Built).count(Built(epoch)) == len(new))
        store = str(self.folder / f"store-{epoch}")
        self.agent.send_to_rank(GroupPlan(epoch, members, new, (0,) if new else (), store))

    def wait_for(self, epoch: int, count: int) -> None:
        """Until so many ranks have changed to an epoch, and trained on."""
        heard = self.agent.of
        self.until(lambda: sum(reply.epoch == epoch for reply in heard(Adopted)) == count)
        step = max(reply.step for reply in heard(Adopted) if reply.epoch == epoch)
        self.until(lambda: max(read(self.folder)) > step + 9)

    def stop(self) -> list[int | None]:
        """All ranks leave with a checkpoint; their exit codes."""
        self.agent.send_to_rank(StopMessage(grace_s=10.0))
        return ranks.finish(self.processes, max(self._end - time.monotonic(), 0.0))


def read(folder: Path) -> dict[int, list[Any]]:
    """What ranks noted, by step."""
    by_step: dict[int, list[Any]] = {0: []}
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            if line.endswith("]]]"):
                step, *row = json.loads(line)
                by_step.setdefault(step, []).append(row)
    return by_step


def flat(rows: list[Any]) -> tuple[list[int], float]:
    """The samples of a step in any order, and their mean loss."""
    micros = [micro for row in rows for micro in row[-1]]
    ids = sorted(at for own, _ in micros for at in own)
    return ids, sum(loss * len(own) for own, loss in micros) / len(ids)


@pytest.mark.slow
@LIBRARIES
def test_a_rank_joins_takes_over_and_trains_as_one_that_was_left_alone(
    script: Callable[..., None], tmp_path: Path
) -> None:
    calm = tmp_path / "calm"
    calm.mkdir()
    with Job(script, tmp_path) as job:
        job.first(CanResize)
        job.form(1, (0, 1), new=(1,))
        job.wait_for(1, 2)
        job.form(2, (1,))
        job.wait_for(2, 1)
        codes = job.stop()
        seen = read(job.folder)
    codes += ranks.finish(ranks.start(script, 1, {}, str(calm), max(seen)), LIMIT_S)
    undisturbed = read(calm)

    assert codes == [0, 0, 0]
    assert sorted(seen) == sorted(undisturbed) == list(range(max(seen) + 1))
    sizes = [row[1] for step in sorted(seen) for row in seen[step][:1]]
    assert set(sizes) == {1, 2}
    assert [row[0] for row in seen[max(seen)]] == [0]
    for step in range(1, max(seen) + 1):
        rows, (alone,) = seen[step], undisturbed[step]
        assert len(rows) == rows[0][1]
        for known, kept in (row[2] for row in rows):
            assert known == alone[2][0], f"learning rate and position of step {step}"
            assert kept == pytest.approx(alone[2][1], rel=1e-3), f"optimizer after step {step}"
        ids, loss = flat(rows)
        assert ids == flat([alone])[0], f"samples of step {step}"
        assert loss == pytest.approx(flat([alone])[1], rel=1e-4, abs=1e-6), f"loss of step {step}"


@pytest.mark.slow
@LIBRARIES
def test_a_training_that_cannot_change_says_why(
    script: Callable[..., None], tmp_path: Path
) -> None:
    with Job(script, tmp_path, 6, 1) as job:
        notice = job.first(Notice)
        assert job.stop() == [0]

    assert notice.level == "info"
    assert notice.text.startswith("the job is restarted for another number of GPUs: ")
    why = {with_huggingface: "no multiple of 12", with_lightning: "not dealt by `Elastic.loader`"}
    assert why[script] in notice.text
    assert not job.agent.of(CanResize)


@pytest.mark.slow
def test_ranks_that_the_batch_cannot_be_dealt_to_are_refused_in_words(tmp_path: Path) -> None:
    with Job(with_lightning, tmp_path) as job:
        job.first(CanResize)
        job.agent.send_to_rank(GroupPlan(1, (0, 1, 2, 3), (1, 2, 3), (0,), str(tmp_path / "store")))
        dropped = job.first(Dropped)
        assert job.stop() == [0]

    assert dropped.reason == "6 samples cannot be dealt evenly to 4 processes"
