"""Ray Train and Ray Tune in a Ray of the job's own: sized by what Weft gave it, as the docs say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# What both trainings begin with: `begin` is the epoch at which this attempt goes on.
START = """
import json, os, tempfile, time
from pathlib import Path
import ray.train
from ray.train import Checkpoint, RunConfig
from ray.train.torch import TorchTrainer
from weft_train.ray import Elastic, ask_workers

def begin():
    kept = ray.train.get_checkpoint()
    if not kept:
        return 0
    with kept.as_directory() as folder:
        return json.loads(Path(folder, "state").read_text()) + 1

def save(epoch, **more):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_text(json.dumps(epoch))
        made = None
        if ray.train.get_context().get_world_rank() == 0:
            made = Checkpoint.from_directory(folder)
        ray.train.report({"epoch": epoch, **more}, checkpoint=made)

run = RunConfig(
    name="net",
    storage_path=os.environ["WEFT_CHECKPOINTS"],
    callbacks=[Elastic(report_every_s=0.0)],
)
"""
TRAIN = f"""{START}
def train(config):
    first, size = begin(), ray.train.get_context().get_world_size()
    for epoch in range(first, 4):
        save(epoch, first=first, size=size)
        if epoch == 1 and config["attempt"] == "1":
            raise SystemExit(3)

config = {{"attempt": os.environ["WEFT_ATTEMPT"]}}
workers = ask_workers()
done = TorchTrainer(train, train_loop_config=config, scaling_config=workers, run_config=run).fit()
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


# A training that runs for as long as it is left alone, and for three epochs once it went on.
LONG = f"""{START}
def train(config):
    first = begin()
    for epoch in range(first, first + 3 if first else 100_000):
        save(epoch, first=first)
        time.sleep(0.2)

done = TorchTrainer(train, scaling_config=ask_workers(), run_config=run).fit()
print("WENT ON", done.metrics["first"] > 0, flush=True)
"""


def drive(client: Client, script: str, folder: Path, **fields: Any) -> str:
    """Submit a script that begins a Ray of its own on two workers; the job's name."""
    (folder / "drive.py").write_text(script)
    return submit(
        client,
        command=[sys.executable, "-m", "weft.node.ray_job", sys.executable, "drive.py"],
        gpus=2,
        workdir=str(folder),
        env={"RAY_TRAIN_V2_ENABLED": "1", "PYTHONPATH": ":".join(sys.path)},
        **fields,
    )


def wait_for_success(client: Client, job: str, state: Path) -> str:
    """The last that its first ranks printed, once the job has succeeded."""
    ended = ("succeeded", "failed", "cancelled")
    wait_until(lambda: get(client, f"/jobs/{job}")["state"] in ended, "it ends", 900.0)
    printed = sorted(state.rglob("rank-0.log"))
    output = "\n".join(path.read_text()[-3000:] for path in printed)
    assert get(client, f"/jobs/{job}")["state"] == "succeeded", output
    return output


def test_it_leaves_a_drained_node_and_goes_on_elsewhere(tmp_path: Path) -> None:
    with serving("processes:nodes=2,slots=2", tmp_path / "state", "fifo") as client:
        job = drive(client, LONG, tmp_path)
        wait_until(lambda: (get(client, f"/jobs/{job}")["saved_step"] or 0) > 1, "it saves", 900.0)
        (part,) = get(client, f"/jobs/{job}")["allocation"]

        client.post(f"/api/v1/nodes/{part['node']}/drain")

        assert "WENT ON True" in wait_for_success(client, job, tmp_path / "state")


@pytest.mark.parametrize(
    ("script", "expected"), [(TRAIN, "TRAINED 3 2 2"), (TUNE, "TUNED 9 2")], ids=["train", "tune"]
)
def test_it_has_as_many_workers_as_weft_gave_and_goes_on_where_it_was(
    script: str, expected: str, tmp_path: Path
) -> None:
    with serving("local:slots=2,cpu=true,warm=false", tmp_path / "state", "fifo") as client:
        job = drive(client, script, tmp_path, retries=1)

        assert expected in wait_for_success(client, job, tmp_path / "state")
        if script is TRAIN:  # its callback has told of the checkpoints
            assert get(client, f"/jobs/{job}")["saved_step"] >= 1
