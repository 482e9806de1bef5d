"""A real browser for all tests of a worker, and pages that must not complain."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.waiting import LIMIT_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 1e3 * LIMIT_S
# What a browser says of a service that is away, and of refusals that the page shows to its person.
EXPECTED = ("net::ERR_", "status of 401", "status of 422")

Open = Callable[..., Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Not for the session: while it is open a loop runs, and no test can have its own."""
    if not CHROMIUM:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=CHROMIUM, args=list(FLAGS), timeout=PATIENCE_MS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages of a browser of one's own; fails if any of them complained."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(word in message.text for word in EXPECTED):
            complaints.append(message.text)

    def open_one(address: str) -> Page:
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_one
    for page in context.pages:  # said of tests that fail
        print(page.url, page.inner_text("body"), sep="\n")  # noqa: T201
    context.close()
    assert not complaints
