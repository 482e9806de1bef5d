"""Losses of a sweep's jobs over each other in one chart, on either scale."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, serving
from tests.waiting import wait_until

TRAINING = """
import sys, time
import torch
import weft_train as wt

job = wt.init(report_every_s=0.1)
model = torch.nn.Linear(8, 1)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=float(sys.argv[1])))
x = torch.randn(256, 8)
loader = job.loader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 64)
for epoch in job.epochs(12):
    for a, b in loader:
        with job.step():
            loss = torch.nn.functional.mse_loss(model(a), b)
            job.backward(loss)
        job.report(loss=loss.item())
        time.sleep(0.05)
"""


def test_losses_of_a_sweep_are_drawn_on_a_linear_or_a_logarithmic_scale(
    tmp_path: Path, open_page: Open
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    with serving("local:cpu=true,slots=2,warm=false", tmp_path / "state") as client:
        body = {
            "name": "lrs",
            "command": [sys.executable, "train.py", "${lr}"],
            "workdir": str(tmp_path),
            "sweep": {"grid": {"lr": [0.1, 0.001]}},
        }
        made = client.post(f"{API}/jobs", json=body).json()
        states = {"succeeded"}
        wait_until(
            lambda: (
                {client.get(f"{API}/jobs/{job}").json()["state"] for job in made["jobs"]} == states
            )
        )
        page = open_page(f"{client.base_url}#/sweep/{made['id']}")
        chart = page.get_by_role("img", name="Losses of the jobs over their steps")
        expect(chart).to_be_visible()
        expect(chart).to_contain_text("★")  # the best of them
        linear = chart.screenshot()

        page.get_by_role("button", name="log", exact=True).click()

        expect(page).to_have_url(re.compile("scale=log"))
        expect(page.get_by_role("button", name="log", exact=True)).to_have_attribute(
            "aria-pressed", "true"
        )
        expect(chart).to_contain_text("★")
        wait_until(lambda: chart.screenshot() != linear)
        page.get_by_role("button", name="linear").click()
        expect(page).not_to_have_url(re.compile("scale=log"))
        page.close()
