"""The page on a wall: nothing to press, and all that one looks at from afar."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import STILL, serving, submit


@pytest.mark.parametrize("address", ["/?kiosk#/cluster", "/#/cluster?kiosk"])
def test_a_wall_display_has_no_controls(address: str, open_page: Open) -> None:
    with serving(STILL) as client:
        submit(client, name="shown", gpus=2)
        page = open_page(f"{client.base_url}{address}")
        expect(page.locator(".gpu-map canvas")).to_be_visible()
        expect(page.get_by_role("heading", name="In use")).to_be_visible()
        use = page.get_by_role("region", name="In use")
        expect(use.locator(".figures .big").first).to_have_text("1")
        expect(page.locator(":is(button, input, select, nav, summary):visible")).to_have_count(0)

        page.goto(f"{client.base_url}/#/cluster")
        page.reload()
        expect(page.get_by_role("navigation")).to_be_visible()
        page.close()
