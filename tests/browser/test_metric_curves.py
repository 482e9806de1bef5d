"""Curves of what unchanged programs print: a job's, and those of a sweep over each other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.integration.serving import API, serving
from tests.waiting import wait_until

PRINTS = """
import sys
rate = float(sys.argv[1])
for step in range(40):
    print(f"step={step} val_loss={rate + 1 / (step + 1)} acc={1 - rate}")
"""


def _change(page: Page, chart: Locator, button: str, address: str) -> None:
    """Press a button that draws the chart in another way."""
    before = chart.screenshot()
    page.get_by_role("button", name=button, exact=True).click()
    expect(page).to_have_url(re.compile(address))
    wait_until(lambda: chart.screenshot() != before)


@pytest.mark.parametrize("width", [1400, 420])
def test_metrics_of_a_job_and_of_a_sweep_are_drawn(
    tmp_path: Path, open_page: Open, width: int
) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    with serving("local:cpu=true,slots=2,warm=false", tmp_path / "state", "fifo") as client:
        body = {
            "name": "lrs",
            "command": [sys.executable, "prints.py", "${lr}"],
            "workdir": str(tmp_path),
            "metrics": ["val_*", "acc"],
            "sweep": {
                "search": "grid",
                "space": {"lr": [0.4, 0.1, 0.2]},
                "metric": "acc",
                "goal": "max",
                "trials": 3,
            },
        }
        made = client.post(f"{API}/jobs", json=body).json()
        jobs = [f"{API}/jobs/{job}" for job in made["jobs"]]
        wait_until(lambda: {client.get(job).json()["state"] for job in jobs} == {"succeeded"})
        page = open_page(f"{client.base_url}#/sweep/{made['id']}")
        page.set_viewport_size({"width": width, "height": 900})
        table = page.get_by_role("region", name="Jobs side by side")

        expect(page.get_by_role("img", name="acc of the jobs over their steps")).to_be_visible()
        expect(table.get_by_role("row").nth(1)).to_contain_text("best")
        expect(table.get_by_role("row").nth(1)).to_contain_text("0.1")  # the most accurate
        page.get_by_role("button", name="least is best").click()
        expect(table.get_by_role("row").nth(1)).to_contain_text("0.4")
        page.locator(".pick select").select_option("val_loss")
        chart = page.get_by_role("img", name="val_loss of the jobs over their steps")
        expect(chart).to_contain_text("★")
        expect(page.get_by_role("img", name="val_loss over lr")).to_be_visible()
        ends = "the higher, the more val_loss, from 0.125 to 0.425"
        expect(page.get_by_text(ends)).to_be_visible()
        _change(page, chart, "log", "scale=log")
        _change(page, chart, "more", "smooth=0.9")

        page.goto(f"{client.base_url}#/job/{made['jobs'][0]}")
        chart = page.get_by_role("img", name="val_loss over its steps, 40 values")
        expect(chart).to_be_visible()
        rows = page.get_by_role("region", name="Values of metrics")
        expect(rows.get_by_role("row")).to_have_count(3)
        expect(rows).to_contain_text("1.4")  # the most
        _change(page, chart, "log", "scale=log")
        wide = "document.documentElement.scrollWidth <= window.innerWidth"
        assert page.evaluate(wide)
        expect(page.get_by_role("heading", name="History")).to_be_visible()
        expect(page.get_by_role("heading", name="Measurements")).to_have_count(0)
        page.close()
