"""The web page in a real browser, on the simulated engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.browser.conftest import Open
from tests.integration.serving import API, STILL, Running, bearer, serving, submit, token
from weft.service.main import Settings

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

MARKUP = "<img src=x onerror=alert(1)>\u202e\u001b[31m"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(STILL) as client:
        yield client


def test_jobs_appear_as_they_are_handed_in_and_a_job_can_be_cancelled(
    client: httpx.Client, open_page: Open
) -> None:
    page = open_page(f"{client.base_url}#/jobs")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()

    made = submit(client, name="watched", gpus=2, tenant="vision")

    row = page.get_by_role("row", name=re.compile("watched"))
    expect(row).to_contain_text("running")
    row.get_by_role("link", name="watched").click()
    expect(page).to_have_url(re.compile(f"#/job/{made}"))
    page.get_by_role("button", name="Cancel …").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("main .badge").first).to_contain_text("cancelled")
    assert client.get(f"{API}/jobs/{made}").json()["state"] == "cancelled"


def test_the_map_tells_who_is_on_a_gpu_by_keyboard(client: httpx.Client, open_page: Open) -> None:
    submit(client, name="mapped", gpus=4, kinds=["t4"], tenant="speech")
    page = open_page(f"{client.base_url}#/cluster")
    grid = page.get_by_role("application")

    grid.focus()
    grid.press("End")

    expect(page.locator(".tip")).to_contain_text("mapped")
    expect(page.locator(".tip")).to_contain_text("speech")
    grid.press("Enter")
    expect(page.get_by_role("heading", name="mapped")).to_be_visible()


def test_what_a_person_typed_is_shown_as_text(client: httpx.Client, open_page: Open) -> None:
    name = MARKUP.encode("ascii", "ignore").decode().replace("\u001b", "")
    submit(client, name=name, gpus=1, tenant="speech")

    page = open_page(f"{client.base_url}#/jobs?q=onerror")

    link = page.get_by_role("link", name=name, exact=True)
    expect(link).to_be_visible()
    link.click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    assert not page.locator("main img").count()


def test_the_filter_is_in_the_address(client: httpx.Client, open_page: Open) -> None:
    submit(client, name="kept", gpus=1, tenant="speech")
    submit(client, name="other", gpus=1, tenant="vision")
    page = open_page(f"{client.base_url}#/jobs")

    page.get_by_label("Filter by words").fill("kept")
    page.get_by_label("Tenant").select_option("speech")

    expect(page.get_by_role("link", name="kept").first).to_be_visible()
    expect(page.get_by_role("link", name="other")).to_have_count(0)
    again = open_page(page.url)
    expect(again.get_by_role("link", name="kept").first).to_be_visible()
    expect(again.get_by_role("link", name="other")).to_have_count(0)


def test_a_tenant_signs_in_and_sees_no_job_of_another(open_page: Open) -> None:
    with serving(STILL) as client:
        submit(client, name="theirs", gpus=4, tenant="speech")
        admin = token(client, "admin")
        mine = token(client, "user", "vision", by=admin)
        body = {"name": "ours", "gpus": 1}
        assert client.post(f"{API}/jobs", json=body, headers=bearer(mine)).status_code == 201
        page = open_page(str(client.base_url))

        page.get_by_label("Token").fill("weft_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not known here")
        page.get_by_label("Token").fill(mine)
        page.get_by_role("button", name="Sign in").click()

        page.get_by_role("link", name="Jobs").click()
        expect(page.get_by_role("link", name="ours")).to_be_visible()
        expect(page.get_by_text("theirs")).to_have_count(0)
        stored = "[document.cookie, JSON.stringify({...localStorage, ...sessionStorage})].join()"
        assert mine not in page.evaluate(stored) and mine not in page.url
        page.reload()
        expect(page.get_by_role("link", name="ours")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()


def test_the_page_comes_back_with_the_service(open_page: Open) -> None:
    first = Running(Settings(engine=STILL, port=0))
    address = first.begin()
    port = int(address.rpartition(":")[2])
    with httpx.Client(base_url=address, trust_env=False) as client:
        submit(client, name="before", gpus=1)
    page = open_page(f"{address}#/jobs")
    expect(page.get_by_role("link", name="before")).to_be_visible()

    first.end()
    expect(page.get_by_text("The service does not answer.")).to_be_visible()
    second = Running(Settings(engine=STILL, port=port))
    second.begin()
    with httpx.Client(base_url=address, trust_env=False) as client:
        submit(client, name="after", gpus=1)

    expect(page.get_by_role("link", name="after")).to_be_visible()
    expect(page.get_by_role("link", name="before")).to_have_count(0)
    page.close()
    second.end()
