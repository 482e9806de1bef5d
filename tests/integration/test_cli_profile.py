"""`weft profile` with real scripts in real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from weft.cli.main import cli

SCRIPT = """
import torch
from torch.utils.data import TensorDataset
import weft_train as wt

x = torch.randn(4096, 8)
y = x.sum(dim=1, keepdim=True) + torch.randn(4096, 1)
job = wt.init(report_every_s=0.05)
model = torch.nn.Linear(8, 1)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01))
loader = job.loader(TensorDataset(x, y), batch_size=16, max_batch_size=64, max_per_gpu=32)
for epoch in job.epochs(100_000):
    for a, b in loader:
        with job.step():
            job.backward(torch.nn.functional.mse_loss(model(a), b))
"""


# Takes twice as long while another of its kind has lately made a step.
POLITE = SCRIPT.replace(
    "        with job.step():",
    """        mine.touch()
        now = time.time()
        others = [p for p in Path().glob("step-*") if p != mine]
        near = any(now - p.stat().st_mtime < 0.25 for p in others)
        time.sleep(0.04 if near else 0.02)
        with job.step():""",
).replace("import torch\n", "import os, time, torch\nfrom pathlib import Path\n", 1)
POLITE = POLITE.replace("x = torch", "mine = Path(f'step-{os.getpid()}')\nx = torch", 1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the present one, and where temporary ones are made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def measured(ran: Result, here: Path) -> Any:
    """What was written; what was printed fits, and nothing else is left."""
    assert ran.exit_code == 0, ran.output
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert not list(here.glob("weft-profile-*"))
    return json.loads(Path("p.json").read_text())


def test_a_script_is_measured_at_every_size_it_allows(here: Path) -> None:
    Path("train.py").write_text(SCRIPT)
    command = ["--cpu", "--each", "0.5", "--out", "p.json", "--", sys.executable, "train.py"]

    ran = CliRunner().invoke(cli, ["profile", *command])

    body = measured(ran, here)
    points = body["points"]
    assert [(p["batch"], p["per_gpu"], p["accumulate"]) for p in points] == [
        (16, 16, 1),
        (32, 32, 1),
        (64, 32, 2),
    ]
    for point in points:
        assert 0 < point["compute_s"] < point["step_s"] < 1
        assert point["throughput"] == pytest.approx(point["batch"] / point["step_s"])
        assert 0 < point["goodput"] <= point["throughput"] * 1.001
        assert point["mem_gb"] > 0.05
    assert body["noise"]["noise"] > 0
    assert body["kind"] == "cpu"
    assert "gradient noise scale" in ran.stdout


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("print('no library')", "without reporting how fast it trains"),
        ("raise SystemExit('no data here')", "exit code 1: no data here"),
    ],
)
def test_a_script_that_cannot_be_measured_is_answered_with_a_hint(script: str, what: str) -> None:
    ran = CliRunner().invoke(cli, ["profile", "--cpu", "--", sys.executable, "-c", script])

    assert ran.exit_code == 2
    assert what in ran.stderr
    assert "hint:" in ran.stderr


def test_more_gpus_than_there_are_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = CliRunner().invoke(cli, ["profile", "--gpus", "500", "--", "true"])

    assert ran.exit_code == 2
    assert "500 GPUs are asked for" in ran.stderr


def test_scripts_are_measured_alone_and_beside_each_other(here: Path) -> None:
    Path("train.py").write_text(POLITE)
    other = f"{sys.executable} train.py"
    command = ["--cpu", "--each", "1", "--beside", other, "--beside", other, "--every-pair"]
    command += ["--name", "a", "--name", "b", "--name", "c", "--out", "p.json"]

    ran = CliRunner().invoke(cli, ["profile", *command, "--", sys.executable, "train.py"])

    body = measured(ran, here)
    assert [(script["model"], script["batch"]) for script in body["alone"]] == [
        ("a", 16),
        ("b", 16),
        ("c", 16),
    ]
    assert [(pair["one"], pair["other"]) for pair in body["together"]] == [(0, 1), (0, 2), (1, 2)]
    speeds = [pair[side] for pair in body["together"] for side in ("speed_one", "speed_other")]
    assert 0.05 < min(speeds) < 0.9, speeds  # half; what else the machine does hides some of it
    assert body["sharing"] == "timeslicing"
    assert "a:16" in ran.stdout


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--beside", "python 'x.py"], "--beside: No closing quotation"),
        (["--beside", ""], "--beside: there is no command"),
        (["--beside", "true", "--name", "a"], "1 names for 2 scripts"),
        (["--beside", "true", "--mps"], "there is no MPS here"),
        (["--beside", f"{sys.executable} -c 1"], "ended before everything was measured"),
        (["--beside", f"{sys.executable} -c 1/0"], "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_measured_beside_is_answered_with_a_hint(
    options: list[str], what: str, here: Path
) -> None:
    (here / "train.py").write_text(SCRIPT)

    ran = CliRunner().invoke(cli, ["profile", "--cpu", *options, "--", sys.executable, "train.py"])

    assert ran.exit_code == 2, ran.output
    assert what in ran.stderr
    assert "hint:" in ran.stderr
