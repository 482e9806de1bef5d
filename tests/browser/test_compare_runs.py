"""Several jobs side by side: chosen in the list, by an address, and as files."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until

PRINTS = """
import sys
rate = float(sys.argv[2])
for step in range(40):
    print(f"step={step} loss={rate + 1 / (step + 1)}")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, list[str]]]:
    """Two runs of a script that knows nothing of Weft, and a job that prints nothing."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "prints.py").write_text(PRINTS)
    with serving("local:cpu=true,slots=2,warm=false", folder / "state", "fifo") as client:
        command = [sys.executable, "prints.py", "--rate"]
        jobs = [
            submit(
                client, name="same", command=[*command, rate], workdir=str(folder), metrics=["loss"]
            )
            for rate in ("0.4", "0.1")
        ]
        jobs.append(submit(client, name="silent", command=["true"]))
        wait_until(lambda: {get(client, f"/jobs/{job}")["state"] for job in jobs} == {"succeeded"})
        yield client, jobs


def _saved(page: Page, press: Callable[[], Any]) -> bytes:
    with page.expect_download() as waiting:
        press()
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.parametrize("width", [1400, 420])
def test_chosen_jobs_are_compared(
    runs: tuple[httpx.Client, list[str]], open_page: Open, width: int
) -> None:
    client, jobs = runs
    page = open_page(f"{client.base_url}#/jobs")
    page.set_viewport_size({"width": width, "height": 900})
    same = page.get_by_label("Choose same")
    expect(same).to_have_count(2)
    for box in same.all():
        box.check()
    page.get_by_label("Choose silent").check()
    page.get_by_role("button", name="Compare", exact=True).click()

    expect(page).to_have_url(re.compile("#/compare"))
    chart = page.get_by_role("img", name="loss of the jobs over their steps")
    expect(chart).to_contain_text("rate=0.4")
    expect(page.get_by_role("img", name="loss over rate")).to_have_count(0)  # of two points
    rows = page.get_by_role("region", name="Jobs side by side").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("best")
    expect(rows.nth(1)).to_contain_text("0.125")  # the least loss, beside its parameter
    expect(rows.nth(3)).to_contain_text("silent")
    page.get_by_role("button", name="time", exact=True).click()
    expect(page.get_by_role("img", name="loss of the jobs over their time")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    shared = open_page(page.url)  # as someone else opens it
    expect(shared.get_by_role("img", name="loss of the jobs over their time")).to_be_visible()
    shared.get_by_role("button", name="Leave out silent").click()
    expect(rows).to_have_count(4)
    shared_rows = shared.get_by_role("region", name="Jobs side by side").get_by_role("row")
    expect(shared_rows).to_have_count(3)
    assert jobs[2] not in shared.url


def test_curves_and_the_table_are_saved(
    runs: tuple[httpx.Client, list[str]], open_page: Open
) -> None:
    client, jobs = runs
    page = open_page(f"{client.base_url}#/compare?jobs={','.join(jobs)}&smooth=0.6")
    expect(page.locator(".chart canvas")).to_be_visible()

    def press(name: str) -> bytes:
        return _saved(page, page.get_by_role("button", name=name).click)

    curves = [*csv.DictReader(press("Save the curves as CSV").decode().splitlines())]
    assert len(curves) == 80
    assert {row["metric"] for row in curves} == {"loss"}
    picture = press("Save the curves as SVG").decode()
    assert picture.count("<polyline") == 2
    assert "rate=0.4" in picture
    assert press("Save the curves as PNG").startswith(b"\x89PNG")
    table = [*csv.DictReader(press("Table as CSV").decode().splitlines())]
    assert [row["job"] for row in table] == [jobs[1], jobs[0], jobs[2]]
    assert [row["rate"] for row in table] == ["0.1", "0.4", ""]
    assert float(table[0]["loss"]) == pytest.approx(0.125)


def test_an_address_of_no_job_says_so(
    runs: tuple[httpx.Client, list[str]], open_page: Open
) -> None:
    client, _ = runs
    page = open_page(f"{client.base_url}#/compare")

    expect(page.get_by_role("heading", name="No jobs to compare")).to_be_visible()
    assert client.get(f"{API}/jobs/nothing").status_code == 404
