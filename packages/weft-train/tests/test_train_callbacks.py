"""The callbacks for other libraries."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import real_ranks as ranks

from weft_train.base.messages import Leaving, Report, Saved


def with_huggingface(folder: str, at: int, how: int = signal.SIGTERM) -> None:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from weft_train.huggingface import Elastic

    class Model(PreTrainedModel):  # type: ignore[misc]
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.line = torch.nn.Linear(4, 1)
            self.post_init()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            if self.training and trainer.state.global_step + 1 == at:
                os.kill(os.getpid(), how)
            return {"loss": (self.line(x) - labels).square().mean()}

    x = torch.randn(64, 4)
    data = [{"x": row, "labels": row.sum(dim=0, keepdim=True)} for row in x]
    options = TrainingArguments(
        folder, max_steps=16, per_device_train_batch_size=8, report_to=[], use_cpu=True,
        save_strategy="no", logging_steps=2, disable_tqdm=True,
    )  # fmt: skip
    elastic = Elastic(report_every_s=0.0, checkpoint_every_s=every_s(how))
    model = Model(PretrainedConfig())
    trainer = Trainer(model, options, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last(folder))


def with_lightning(folder: str, at: int, how: int = signal.SIGTERM) -> None:
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
            self.line = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _at: int) -> torch.Tensor:
            if self.global_step + 1 == at:
                os.kill(os.getpid(), how)
            x, ids = batch
            with Path(f"{folder}.ids").open("a") as out:
                out.writelines(f"{number}\n" for number in ids.tolist())
            loss: torch.Tensor = (self.line(x) - x.sum(dim=1, keepdim=True)).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.arange(64))
    elastic = Elastic(folder, report_every_s=0.0, checkpoint_every_s=every_s(how))
    loader = elastic.loader(data, 8)
    trainer = pl.Trainer(
        **elastic.trainer_arguments(), max_epochs=2, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[elastic],
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path=elastic.last())


def every_s(how: int) -> float:
    """A job that is to be killed saves after every step."""
    return 0.0 if how == signal.SIGKILL else 600.0


LIBRARIES = pytest.mark.parametrize("script", [with_huggingface, with_lightning])


@LIBRARIES
@pytest.mark.parametrize("at", [5, 8], ids=["in an epoch", "at its end"])
def test_it_stops_with_a_checkpoint_and_goes_on(script: Any, at: int, tmp_path: Path) -> None:
    first, second = ranks.Agent(tmp_path / "one"), ranks.Agent(tmp_path / "two")
    out = str(tmp_path / "out")

    codes = ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(first.path)}, out, at))
    codes += ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(second.path)}, out, 0))

    assert codes == [0, 0]
    assert first.of(Leaving) == [Leaving("stopped")]
    assert first.of(Saved)[0].step == at
    assert second.of(Leaving) == [Leaving("done")]
    steps = [report.values["steps"] for report in second.of(Report)]
    assert steps[0] == at + 1
    assert steps[-1] == 16
    assert second.of(Report)[-1].values["progress"] == 1.0
    if script is with_lightning:
        ids = Counter((tmp_path / "out.ids").read_text().split())
        assert ids == {str(number): 2 for number in range(64)}


@LIBRARIES
def test_one_that_is_killed_goes_on_from_a_checkpoint_nobody_asked_for(
    script: Any, tmp_path: Path
) -> None:
    first, second = ranks.Agent(tmp_path / "one"), ranks.Agent(tmp_path / "two")
    out = str(tmp_path / "out")
    kill = signal.SIGKILL

    codes = ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(first.path)}, out, 5, kill))
    codes += ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(second.path)}, out, 0))

    assert codes == [-9, 0]
    steps = [saved.step for saved in first.of(Saved)]  # the last may be lost on the way
    assert steps
    assert steps == [1, 2, 3, 4][: len(steps)]
    assert len(list(Path(out).glob("checkpoint-*"))) <= 3
    assert second.of(Report)[0].values["steps"] == 5


def test_another_jobs_checkpoints_in_the_same_folder_are_left_alone(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    agents = {name: ranks.Agent(tmp_path / name) for name in ("old", "new", "again")}

    def run(agent: str, job: str, at: int) -> list[int | None]:
        env = {"WEFT_AGENT": str(agents[agent].path), "WEFT_JOB": job}
        env["WEFT_CHECKPOINTS"] = str(tmp_path / f"{job}-checkpoints")
        return ranks.finish(ranks.start(with_huggingface, 1, env, out, at))

    codes = run("old", "first", 5) + run("new", "second", 3) + run("again", "second", 0)

    assert codes == [0, 0, 0]
    assert agents["new"].of(Report)[0].values["steps"] == 1
    assert agents["again"].of(Report)[0].values["steps"] == 4


def test_the_log_says_what_a_training_resumes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from weft_train.huggingface import Elastic

    own, shared = tmp_path / "own", tmp_path / "out"
    monkeypatch.setenv("WEFT_CHECKPOINTS", str(own))
    for folder in (shared / "checkpoint-9", own / "checkpoint-3", own / "checkpoint-12"):
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")

    assert Elastic().last(shared) == str(own / "checkpoint-12")
    assert capsys.readouterr().err == f"weft: training resumes from {own}/checkpoint-12\n"
    monkeypatch.setenv("WEFT_CHECKPOINTS", str(tmp_path / "nothing"))
    assert Elastic().last(shared) is None
    assert f"the checkpoints in {shared} are not this job's" in capsys.readouterr().err


def test_checkpoints_that_nobody_labelled_are_not_taken_for_the_jobs_own(tmp_path: Path) -> None:
    out, agent = str(tmp_path / "out"), ranks.Agent(tmp_path / "agent")

    codes = ranks.finish(ranks.start(with_huggingface, 1, {}, out, 5))
    env = {"WEFT_AGENT": str(agent.path), "WEFT_JOB": "new"}
    env["WEFT_CHECKPOINTS"] = str(tmp_path / "checkpoints")
    codes += ranks.finish(ranks.start(with_huggingface, 1, env, out, 0))

    assert codes == [0, 0]
    assert agent.of(Report)[0].values["steps"] == 1
