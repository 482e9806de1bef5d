"""Metrics that programs report to the libraries that they use, heard without a changed line.

Where a library is not among those that tests have, a stand-in has its modules, names and
signatures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.watcher.listening import Ran, run_python

WANDB = """
class Run:
    def __init__(self):
        from wandb.sdk.wandb_summary import SummaryDict
        self.summary = SummaryDict()
    def log(self, data, step=None, commit=None):
        self.last = data
"""
WANDB_SUMMARY = """
class SummaryDict:
    def __setitem__(self, key, val):
        self.update({key: val})
    def update(self, d):
        self.__dict__.update(d)
"""
MLFLOW = """
from mlflow.tracking.client import MlflowClient
def log_metric(key, value, step=None):
    MlflowClient().log_metric("run", key, value, None, step or 0)
def log_metrics(metrics, step=None):
    class Metric:
        def __init__(self, key, value): self.key, self.value, self.step = key, value, step or 0
    MlflowClient().log_batch(run_id="run", metrics=[Metric(*each) for each in metrics.items()])
"""
MLFLOW_CLIENT = """
class MlflowClient:
    def log_metric(self, run_id, key, value, timestamp=None, step=None): pass
    def log_batch(self, run_id, metrics=(), params=(), tags=()): pass
"""
OPTUNA = """
class Trial:
    def report(self, value, step): pass
"""
STAND_INS = {
    "wandb/__init__.py": "",
    "wandb/sdk/__init__.py": "",
    "wandb/sdk/wandb_run.py": WANDB,
    "wandb/sdk/wandb_summary.py": WANDB_SUMMARY,
    "mlflow/__init__.py": MLFLOW,
    "mlflow/tracking/__init__.py": "",
    "mlflow/tracking/client.py": MLFLOW_CLIENT,
    "optuna/__init__.py": "from optuna.trial._trial import Trial",
    "optuna/trial/__init__.py": "",
    "optuna/trial/_trial.py": OPTUNA,
}


@pytest.fixture
def libraries(tmp_path: Path) -> dict[str, str]:
    """Variables of a program that finds the stand-ins."""
    for name, text in STAND_INS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"PYTHONPATH": str(tmp_path)}


def heard(ran: Ran) -> list[tuple[str, float, float | None]]:
    assert ran.code == 0, ran.err
    assert "weft:" not in ran.err
    return ran.measured


def test_weights_and_biases(libraries: dict[str, str]) -> None:
    ran = run_python(
        """
from wandb.sdk.wandb_run import Run
run = Run()
run.log({"loss": 0.5, "note": "text", "ok": True, "table": object()})
run.log(data={"loss": float("nan"), "epoch": 2}, step=7)
run.summary["best"] = 0.25
run.summary.update({"worst": 4})
print(run.last["epoch"], run.summary.best)
""",
        env=libraries,
    )

    assert ran.out == "2 0.25\n"
    assert heard(ran) == [
        ("loss", -1, 0.5), ("loss", 7, None), ("epoch", 7, 2), ("best", -1, 0.25), ("worst", -1, 4),
    ]  # fmt: skip


def test_mlflow_and_optuna(libraries: dict[str, str]) -> None:
    ran = run_python(
        """
import mlflow, optuna
mlflow.log_metric("val", 0.5)
mlflow.log_metric("val", 0.4, step=3)
mlflow.log_metrics({"a": 1, "b": 2.5}, step=4)
optuna.Trial().report(0.125, 9)
""",
        env=libraries,
    )

    assert heard(ran) == [
        ("val", -1, 0.5), ("val", 3, 0.4), ("a", 4, 1), ("b", 4, 2.5), ("objective", 9, 0.125),
    ]  # fmt: skip


def test_numbers_of_numpy_and_what_only_looks_like_one(libraries: dict[str, str]) -> None:
    ran = run_python(
        """
import numpy as np
from wandb.sdk.wandb_run import Run
class Odd(float):
    def __float__(self): raise RuntimeError("not for you")
run = Run()
run.log({"a": np.float32(0.5), "b": np.int64(3), "c": np.zeros(4), "d": 10**400, 5: 1})
run.log({"odd": Odd(2.0)})
run.log([1, 2])
run.log({})
""",
        env=libraries,
    )

    assert heard(ran) == [("a", -1, 0.5), ("b", -1, 3), ("odd", -1, 2.0)]


def test_an_error_of_the_library_is_the_programs_and_nothing_is_noted(
    libraries: dict[str, str],
) -> None:
    ran = run_python(
        """
from wandb.sdk.wandb_run import Run
try:
    Run().log({"loss": 1.0}, nothing=1)
except TypeError as error:
    print("as ever")
""",
        env=libraries,
    )

    assert (ran.out, heard(ran)) == ("as ever\n", [])


def test_a_million_values_cost_a_few_messages_and_the_last_is_among_them(
    libraries: dict[str, str],
) -> None:
    ran = run_python(
        """
from wandb.sdk.wandb_run import Run
run = Run()
for step in range(20_000):
    run.log({"loss": 1.0 / (step + 1), "step": step}, step=step)
""",
        env=libraries,
    )

    rows = heard(ran)
    assert len(rows) < 20_000
    assert rows[-1] == ("step", 19_999, 19_999)
    assert [step for _, step, _ in rows] == sorted(step for _, step, _ in rows)


def test_a_child_does_not_send_what_its_parent_has_to(libraries: dict[str, str]) -> None:
    ran = run_python(
        """
import os
from wandb.sdk.wandb_run import Run
run = Run()
for step in range(50):
    run.log({"loss": 1.0}, step=step)
if os.fork() == 0:
    run.log({"child": 2.0}, step=1)
    raise SystemExit
os.wait()
""",
        env=libraries,
    )

    rows = heard(ran)
    assert rows.count(("child", 1, 2.0)) == 1
    assert sorted(step for name, step, _ in rows if name == "loss") == [*range(50)]


def test_tensorboardx(tmp_path: Path) -> None:
    ran = run_python(f"""
from tensorboardX import SummaryWriter
with SummaryWriter({str(tmp_path)!r}) as writer:
    writer.add_scalar("val/loss", 0.5, 3)
    writer.add_scalar("val/loss", 0.25, global_step=4)
""")

    assert heard(ran) == [("val/loss", 3, 0.5), ("val/loss", 4, 0.25)]


@pytest.mark.slow
def test_hugging_face_logs(tmp_path: Path) -> None:
    ran = run_python(f"""
import torch, transformers as t
net = t.GPT2LMHeadModel(t.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=8))
class Tokens(torch.utils.data.Dataset):
    def __len__(self): return 16
    def __getitem__(self, i): return {{"input_ids": torch.arange(8), "labels": torch.arange(8)}}
arguments = t.TrainingArguments({str(tmp_path)!r}, num_train_epochs=2, report_to=[], use_cpu=True,
    per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True, logging_steps=2,
    eval_strategy="epoch")
t.Trainer(net, arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()
""")

    assert ran.code == 0, ran.err
    names = {name for name, _, _ in ran.measured}
    assert {"loss", "eval_loss", "learning_rate"} <= names
    assert [step for name, step, _ in ran.measured if name == "eval_loss"] == [4, 8]


@pytest.mark.slow
def test_lightning_logs_without_a_logger_too() -> None:
    ran = run_python("""
import torch, lightning as L
class Line(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, i):
        loss = self.net(batch[0]).pow(2).mean(); self.log("loss", loss); return loss
    def validation_step(self, batch, i):
        self.log("val_loss", self.net(batch[0]).pow(2).mean())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), 4)
L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    accelerator="cpu", log_every_n_steps=1).fit(Line(), data, data)
""")

    assert ran.code == 0, ran.err
    assert [step for name, step, _ in ran.measured if name == "val_loss"] == [3, 7]
    assert len([name for name, _, _ in ran.measured if name == "loss"]) == 8


@pytest.mark.slow
def test_keras_fits() -> None:
    ran = run_python(
        """
import numpy as np, keras
net = keras.Sequential([keras.layers.Dense(1)])
net.compile(optimizer="sgd", loss="mse")
x = np.zeros((16, 4), "float32"); y = np.ones((16, 1), "float32")
net.fit(x, y, epochs=3, batch_size=4, validation_split=0.25, verbose=0)
""",
        env={"KERAS_BACKEND": "torch"},
    )

    assert ran.code == 0, ran.err
    assert [step for name, step, _ in ran.measured if name == "val_loss"] == [0, 1, 2]
