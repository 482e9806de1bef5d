"""Ray Train and Ray Tune in a Ray of the job's own: sized by what Weft gave it, as the docs say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
INSTALL = "pip install 'ray[train,tune]'"

TRAIN = """
import json, os, sys, tempfile
from pathlib import Path
import ray.train
from ray.train import Checkpoint, RunConfig
from ray.train.torch import TorchTrainer
from weft.train.ray import Elastic, ask_workers

def train(config):
    kept, first = ray.train.get_checkpoint(), 0
    if kept:
        with kept.as_directory() as folder:
            first = json.loads(Path(folder, "state").read_text()) + 1
    size = ray.train.get_context().get_world_size()
    for epoch in range(first, 4):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state").write_text(json.dumps(epoch))
            made = None
            if ray.train.get_context().get_world_rank() == 0:
                made = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "first": first, "size": size}, checkpoint=made)
        if epoch == 1 and config["attempt"] == "1":
            raise SystemExit(3)

folder = os.environ["WEFT_CHECKPOINTS"]
run = RunConfig(name="net", storage_path=folder, callbacks=[Elastic(report_every_s=0.0)])
workers = ask_workers()
told = {"attempt": os.environ["WEFT_ATTEMPT"]}
done = TorchTrainer(train, train_loop_config=told, scaling_config=workers, run_config=run).fit()
print("TRAINED", done.metrics["epoch"], done.metrics["first"], done.metrics["size"], flush=True)
"""
TUNE = """
import os
from ray import tune

def trial(config):
    tune.report({"score": config["x"] ** 2})

path = os.path.join(os.environ["WEFT_CHECKPOINTS"], "sweep")
told = tune.RunConfig(name="sweep", storage_path=os.environ["WEFT_CHECKPOINTS"])
if tune.Tuner.can_restore(path):  # asked first: to make another one would put it in its place
    tuner = tune.Tuner.restore(path, trial)
else:
    tuner = tune.Tuner(trial, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=told)
found = tuner.fit().get_best_result(metric="score", mode="max")
print("TUNED", found.metrics["score"], os.environ["WEFT_WORKERS"], flush=True)
"""


# As above, for as long as it is left alone; `first` is where this attempt went on.
LONG = """
import json, os, tempfile, time
from pathlib import Path
import ray.train
from ray.train import Checkpoint, RunConfig
from ray.train.torch import TorchTrainer
from weft.train.ray import Elastic, ask_workers

def train(config):
    kept, first = ray.train.get_checkpoint(), 0
    if kept:
        with kept.as_directory() as folder:
            first = json.loads(Path(folder, "state").read_text()) + 1
    for epoch in range(first, first + 3 if first else 100_000):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state").write_text(json.dumps(epoch))
            made = None
            if ray.train.get_context().get_world_rank() == 0:
                made = Checkpoint.from_directory(folder)
            ray.train.report({"epoch": epoch, "first": first}, checkpoint=made)
        time.sleep(0.2)

run = RunConfig(
    name="net",
    storage_path=os.environ["WEFT_CHECKPOINTS"],
    callbacks=[Elastic(report_every_s=0.0)],
)
done = TorchTrainer(train, scaling_config=ask_workers(), run_config=run).fit()
print("WENT ON", done.metrics["first"] > 0, flush=True)
"""


def test_it_leaves_a_drained_node_and_goes_on_elsewhere(tmp_path: Path) -> None:
    for module in ("ray", "pyarrow"):
        pytest.importorskip(module, reason=f"{module} is not installed: {INSTALL}")
    (tmp_path / "drive.py").write_text(LONG)
    command = [sys.executable, "-m", "weft.node.ray_job", sys.executable, "drive.py"]
    with serving("processes:nodes=2,slots=2", tmp_path / "state", "fifo") as client:
        job = submit(
            client,
            command=command,
            gpus=2,
            workdir=str(tmp_path),
            env={"RAY_TRAIN_V2_ENABLED": "1", "PYTHONPATH": ":".join(sys.path)},
        )
        wait_until(lambda: (get(client, f"/jobs/{job}")["saved_step"] or 0) > 1, "it saves", 900.0)
        (part,) = get(client, f"/jobs/{job}")["allocation"]

        client.post(f"/api/v1/nodes/{part['node']}/drain")

        ended = ("succeeded", "failed", "cancelled")
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] in ended, "it ends", 900.0)
        printed = [*(tmp_path / "state").rglob("rank-0.log")]
        output = "\n".join(path.read_text()[-3000:] for path in sorted(printed))
        assert get(client, f"/jobs/{job}")["state"] == "succeeded", output
        assert "WENT ON True" in output


@pytest.mark.parametrize(
    ("script", "expected"), [(TRAIN, "TRAINED 3 2 2"), (TUNE, "TUNED 9 2")], ids=["train", "tune"]
)
def test_it_has_as_many_workers_as_weft_gave_and_goes_on_where_it_was(
    script: str, expected: str, tmp_path: Path
) -> None:
    for module in ("ray", "pyarrow", "tensorboardX"):
        pytest.importorskip(module, reason=f"{module} is not installed: {INSTALL}")
    (tmp_path / "drive.py").write_text(script)
    command = [sys.executable, "-m", "weft.node.ray_job", sys.executable, "drive.py"]
    with serving("local:slots=2,cpu=true,warm=false", tmp_path / "state", "fifo") as client:
        job = submit(
            client,
            command=command,
            gpus=2,
            retries=1,
            workdir=str(tmp_path),
            env={"RAY_TRAIN_V2_ENABLED": "1", "PYTHONPATH": ":".join(sys.path)},
        )
        ended = ("succeeded", "failed", "cancelled")
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] in ended, "it ends", 900.0)

        printed = [*(tmp_path / "state").rglob("rank-0.log")]
        output = "\n".join(path.read_text()[-3000:] for path in sorted(printed))
        assert get(client, f"/jobs/{job}")["state"] == "succeeded", output
        assert expected in output
        if script is TRAIN:  # its callback has told of the checkpoints
            assert get(client, f"/jobs/{job}")["saved_step"] >= 1
