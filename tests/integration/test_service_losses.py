"""SLAQ and real jobs: the losses they report decide who gets more."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.serving import serving

API = "/api/v1"
ENGINE = "local:slots=4,cpu=true,name=here,warm=false"
LIMIT_S = 900.0
SCRIPT = """
import sys
import torch
import weft_train as wt

rate = float(sys.argv[1])
job = wt.init(report_every_s=0.2)
torch.manual_seed(0)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
model, optimizer = job.wrap(model, optimizer)
x = torch.randn(4096, 64)
data = torch.utils.data.TensorDataset(x, x @ torch.randn(64, 1) + 3.0)
loader = job.loader(data, 256)
for epoch in job.epochs(100_000):
    for a, b in loader:
        with job.step():
            job.backward(torch.nn.functional.mse_loss(model(a), b))
"""


def sizes(client: httpx.Client) -> dict[str, int]:
    jobs: list[dict[str, Any]] = client.get(f"{API}/jobs").json()["jobs"]
    assert not any(job["state"] == "failed" for job in jobs), jobs
    return {job["name"]: sum(len(part["gpus"]) for part in job["allocation"] or ()) for job in jobs}


@pytest.mark.slow
def test_slaq_gives_its_gpus_to_the_job_whose_reported_loss_falls(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    with serving(ENGINE, tmp_path / "state", "slaq:epoch=3") as client:
        for name, rate in (("flat", "0.0"), ("falling", "0.00002")):
            body = {
                "name": name,
                "command": [sys.executable, str(script), rate],
                "workdir": str(tmp_path),
                "gpus": {"min": 1, "max": 3},
            }
            assert client.post(f"{API}/jobs", json=body).status_code == 201
        seen = []
        until = time.monotonic() + LIMIT_S
        while (now := sizes(client)) != {"flat": 1, "falling": 3}:
            seen.append(now)
            assert time.monotonic() < until, seen[-1]
            time.sleep(0.2)
        for job in client.get(f"{API}/jobs").json()["jobs"]:
            client.delete(f"{API}/jobs/{job['id']}")
        while any(sizes(client).values()):
            time.sleep(0.1)

    # Before it was heard of, neither had more than it asked for.
    assert {"flat": 1, "falling": 1} in seen
