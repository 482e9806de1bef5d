"""The callbacks for other libraries, where these are installed."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration import ranks
from weft.wire.messages import Leaving, Report, Saved

pytestmark = pytest.mark.slow


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )


def with_huggingface(folder: str, term_at: int) -> None:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    from weft.train.huggingface import Elastic

    class Model(PreTrainedModel):  # type: ignore[misc]
        config_class = PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.line = torch.nn.Linear(4, 1)
            self.post_init()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            if self.training and trainer.state.global_step + 1 == term_at:
                os.kill(os.getpid(), signal.SIGTERM)
            return {"loss": (self.line(x) - labels).square().mean()}

    x = torch.randn(64, 4)
    data = [{"x": row, "labels": row.sum(dim=0, keepdim=True)} for row in x]
    options = TrainingArguments(
        folder, max_steps=12, per_device_train_batch_size=8, report_to=[], use_cpu=True,
        save_strategy="no", logging_steps=2, disable_tqdm=True,
    )  # fmt: skip
    elastic = Elastic(report_every_s=0.0)
    model = Model(PretrainedConfig())
    trainer = Trainer(model, options, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last(folder))


def with_lightning(folder: str, term_at: int) -> None:
    import logging
    import warnings

    import pytorch_lightning as pl
    import torch

    from weft.train.lightning import Elastic

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, at: int) -> torch.Tensor:
            if self.global_step + 1 == term_at:
                os.kill(os.getpid(), signal.SIGTERM)
            (x,) = batch
            loss: torch.Tensor = (self.line(x) - x.sum(dim=1, keepdim=True)).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.randn(64, 4))
    loader = torch.utils.data.DataLoader(data, 8)
    elastic = Elastic(folder, report_every_s=0.0)
    trainer = pl.Trainer(
        max_steps=12, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[elastic],
    )  # fmt: skip
    trainer.fit(Model(), loader, ckpt_path=elastic.last())


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(with_huggingface, marks=[needs("transformers"), needs("accelerate")]),
        pytest.param(with_lightning, marks=needs("pytorch_lightning")),
    ],
)
def test_it_stops_with_a_checkpoint_and_goes_on(script: Any, tmp_path: Path) -> None:
    first, second = ranks.Agent(tmp_path / "one"), ranks.Agent(tmp_path / "two")
    out = str(tmp_path / "out")

    codes = ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(first.path)}, out, 5))
    codes += ranks.finish(ranks.start(script, 1, {"WEFT_AGENT": str(second.path)}, out, 0))

    assert codes == [0, 0]
    assert first.of(Leaving) == [Leaving("stopped")]
    assert first.of(Saved)[0].step == 5
    assert second.of(Leaving) == [Leaving("done")]
    steps = [report.values["steps"] for report in second.of(Report)]
    assert steps[0] == 6
    assert steps[-1] == 12
