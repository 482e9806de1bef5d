"""The list of jobs: groups, columns, reasons and undo, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, STILL, serving, submit
from tests.waiting import wait_until

FORM = {"gpus": 4, "kinds": ["a100"], "hints": {"duration_s": 600}}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL, policy="fifo") as client:
        for rate in ("0.1", "0.2", "0.4"):
            submit(client, name="alike", tenant="vision", command=["true", "--lr", rate], **FORM)
        submit(client, name="other", tenant="speech", **FORM)
        yield client


def test_equal_names_and_starts_are_told_in_the_list(client: httpx.Client, open_page: Open) -> None:
    page = open_page(f"{client.base_url}#/jobs?name=alike")
    rows = page.get_by_role("row", name=re.compile("alike"))

    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="lr=0.2")).to_have_count(1)
    waits = rows.filter(has_text="pending")
    expect(waits.locator("td.c-start")).to_contain_text(re.compile(r"min|h|unknown"))
    page.get_by_role("button", name="Show every name again").click()
    expect(page.get_by_role("link", name="other")).to_be_visible()


def test_a_group_is_in_the_address_and_leads_to_its_jobs(
    client: httpx.Client, open_page: Open
) -> None:
    page = open_page(f"{client.base_url}#/jobs")
    page.get_by_label("Group by").select_option("tenant")
    expect(page).to_have_url(re.compile("group=tenant"))
    page.reload()

    group = page.get_by_role("row", name=re.compile("vision"))
    expect(group).to_contain_text("3 jobs")
    expect(group).to_contain_text("2 running, 1 pending")
    group.get_by_role("checkbox").check()
    expect(page.get_by_text("3 jobs chosen")).to_be_visible()
    page.get_by_role("link", name="vision").click()
    expect(page.get_by_role("row", name=re.compile("alike"))).to_have_count(3)
    expect(page).to_have_url(re.compile("tenant=vision"))


def test_columns_are_chosen_and_remembered(client: httpx.Client, open_page: Open) -> None:
    page = open_page(f"{client.base_url}#/jobs")
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Id", exact=True).check()
    page.get_by_role("checkbox", name="Tenant", exact=True).uncheck()

    again = open_page(f"{client.base_url}#/jobs")
    expect(again.get_by_role("columnheader", name="Id", exact=True)).to_be_visible()
    expect(again.get_by_role("columnheader", name="Tenant")).to_have_count(0)
    again.get_by_text("Columns").click()
    again.get_by_role("button", name="As they were").click()
    expect(again.get_by_role("columnheader", name="Tenant")).to_be_visible()
    expect(again.get_by_role("columnheader", name="Id", exact=True)).to_have_count(0)


@pytest.mark.parametrize("width", [1400, 420])
def test_a_long_reason_has_two_lines_and_is_read_whole_on_a_tap(
    client: httpx.Client, open_page: Open, width: int
) -> None:
    page = open_page(f"{client.base_url}#/jobs?state=waiting")
    page.set_viewport_size({"width": width, "height": 800})
    reason = page.locator(".reason:visible, .below:visible").first
    expect(reason).to_contain_text("waits for 4 a100 GPUs")
    assert reason.evaluate(
        "one => one.clientHeight <= 2.2 * parseFloat(getComputedStyle(one).lineHeight)"
    )

    reason.click()

    strip = page.locator(".told")
    expect(strip).to_contain_text("waits for 4 a100 GPUs; none is free")
    assert strip.evaluate("one => one.scrollWidth <= one.clientWidth")
    strip.get_by_role("button", name="Close").click()
    expect(strip).to_have_count(0)


def test_what_was_done_to_several_jobs_is_taken_back(open_page: Open) -> None:
    with serving(STILL, policy="fifo") as client:
        jobs = [submit(client, name=f"part-{number}", gpus=1) for number in range(3)]

        def read(field: str) -> list[str]:
            return [client.get(f"{API}/jobs/{job}").json()[field] for job in jobs]

        page = open_page(f"{client.base_url}#/jobs")
        page.get_by_label("Choose all").check()
        page.get_by_label("Priority").select_option("opportunistic")
        page.get_by_role("button", name="Change the priority of 3 jobs").click()
        wait_until(lambda: read("priority") == ["opportunistic"] * 3)
        page.get_by_role("button", name="Undo").click()
        wait_until(lambda: read("priority") == ["normal"] * 3)

        page.get_by_label("Choose all").check()
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel 3 jobs").click()
        page.locator(".toast", has_text="cancelled in").get_by_role("button", name="Undo").click()
        expect(page.locator(".toast", has_text="cancelled in")).to_have_count(0)
        page.get_by_label("Choose part-0").check()
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_role("button", name="Cancel the job").click()
        wait_until(lambda: read("state")[0] == "cancelled")
        assert read("state")[1:] == ["running"] * 2
        page.close()


def test_rows_that_scroll_out_of_sight_become_those_that_come(open_page: Open) -> None:
    with serving(STILL) as client:
        body = {"jobs": [{"name": f"job-{n:03}", "gpus": 1} for n in range(300)]}
        client.post(f"{API}/jobs/batch", json=body).raise_for_status()
        page = open_page(f"{client.base_url}#/jobs?sort=name")
        rows = page.locator(".jobs-view tbody tr:not(.filler)")
        expect(rows.first).to_contain_text("job-000")
        drawn = rows.count()
        assert drawn < 40  # of 300
        page.evaluate("window.drawn = [...document.querySelectorAll('tbody tr:not(.filler)')]")

        page.locator(".jobs-view").evaluate("box => { box.scrollTop = 47 * 150; }")

        expect(rows.nth(8)).to_contain_text(re.compile("job-15"))
        kept = page.evaluate("window.drawn.filter((row) => row.isConnected).length")
        assert kept >= drawn - 8
        page.close()
