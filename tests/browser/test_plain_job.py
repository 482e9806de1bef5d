"""The page of a job that knows nothing of Weft: its speed and use, its log, its story, on paper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import get, serving, submit
from tests.waiting import wait_until

# After each ten steps it goes on once these were read: speed is between what is read.
PRINTS = r"""
import os, time
for step in range(1, 31):
    print(f"\033[32mINFO\033[0m step={step} loss={1 / step}", flush=True)
    if step == 20:
        print("\033[33mWARNING\033[0m a slow shard", flush=True)
    while step % 10 == 0 and not os.path.exists(f"read-{step}"):
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, str]]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "prints.py").write_text(PRINTS)
    with serving("local:cpu=true,slots=2,warm=false", folder / "state", "fifo") as client:
        job = submit(
            client,
            name="plain",
            command=[sys.executable, "prints.py"],
            workdir=str(folder),
            metrics=["loss"],
            tenant="vision",
        )
        for step in (10, 20, 30):
            wait_until(partial(_has_reached, client, job, step))
            (folder / f"read-{step}").touch()
        wait_until(lambda: get(client, f"/jobs/{job}")["state"] == "succeeded")
        yield client, job


def _has_reached(client: httpx.Client, job: str, step: int) -> bool:
    metrics = get(client, f"/jobs/{job}")["metrics"]
    return bool(metrics) and metrics["loss"]["step"] == step


def test_its_speed_and_its_story_are_told(ended: tuple[httpx.Client, str], open_page: Open) -> None:
    client, job = ended
    page = open_page(f"{client.base_url}#/job/{job}")

    expect(page.get_by_role("img", name="Steps per second over time")).to_be_visible()
    story = page.get_by_role("region", name="History of the job").get_by_role("row")
    expect(story.first).to_contain_text("It ended well")
    expect(story.last).to_contain_text("It was submitted for tenant vision")
    expect(story.nth(1)).to_contain_text("Attempt 1 began to run")
    headings = page.locator(":is(h1, h2)").all_inner_texts()  # as they are read out
    order = ["plain", "Now", "Log", "Metrics", "Speed and use", "What it held", "History"]
    assert headings == order
    for panel in page.locator("main .panel").all():  # none is empty
        assert len(panel.inner_text().split()) > 3


def test_its_log_is_searched_in_its_colours(
    ended: tuple[httpx.Client, str], open_page: Open
) -> None:
    client, job = ended
    page = open_page(f"{client.base_url}#/job/{job}")
    log = page.locator("pre.log")
    expect(log.locator(".t-yellow")).to_have_text("WARNING")

    page.get_by_label("Find in the log").fill("slow SHARD")

    expect(log.locator("mark")).to_have_text("slow shard")
    expect(log.locator(".t-yellow")).to_have_text("WARNING")
    expect(log).not_to_contain_text("step=20")
    page.get_by_role("button", name="Lines around line 21").click()
    expect(log).to_contain_text("step=20")
    expect(log).to_contain_text("step=25")
    expect(log).not_to_contain_text("step=26")


def test_on_paper_there_is_nothing_to_press(
    ended: tuple[httpx.Client, str], open_page: Open
) -> None:
    client, job = ended
    page = open_page(f"{client.base_url}#/job/{job}")
    expect(page.locator("pre.log")).to_contain_text("step=30")

    page.emulate_media(media="print")

    expect(page.locator(":is(button, input, select, nav):visible")).to_have_count(0)
    whole = "log => log.scrollHeight <= log.clientHeight + 1"
    assert page.locator("pre.log").evaluate(whole)
    expect(page.get_by_role("heading", name="plain")).to_be_visible()


def test_its_history_is_not_crowded_out_by_what_it_measures(
    ended: tuple[httpx.Client, str],
) -> None:
    client, job = ended

    story = get(client, f"/jobs/{job}/events", limit=9, without=["Reported", "Measured"])["events"]
    latest = get(client, f"/jobs/{job}/events", limit=2)["events"]

    assert story[0]["event"] == "Submitted"
    assert {event["event"] for event in latest} <= {"Measured", "Reported", "Finished", "Decided"}


def test_names_of_every_script_are_read_in_their_order(tmp_path: Path, open_page: Open) -> None:
    arabic, japanese = (
        "تدريب نموذج اللغة ٣ للتجربة الثانية",
        "画像分類の訓練-resnet50-第二実験-再開",
    )
    with serving("simulated:cluster=1x4:a100,speed=0.001", policy="fifo") as client:
        for name in (arabic, japanese):
            submit(client, name=name, gpus=2)
        submit(client, name="waits", gpus=4)
        page = open_page(f"{client.base_url}#/jobs")
        page.set_viewport_size({"width": 420, "height": 860})

        link = page.get_by_role("link", name=arabic)
        expect(link.locator("bdi")).to_have_text(arabic)  # one piece: its letters are joined
        assert link.locator("bdi").evaluate("one => getComputedStyle(one).direction") == "rtl"
        expect(page.get_by_role("link", name=japanese)).to_be_visible()
        page.get_by_role("link", name="waits").click()
        reason = page.locator("main p bdi")
        expect(reason.first).to_have_text(arabic)
        page.close()
