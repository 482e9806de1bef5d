"""The cluster over time, in a real browser: totals, groups, a closer look, and what happened."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.integration.serving import API, get, serving, submit
from tests.waiting import wait_until

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
ENGINE = "simulated:cluster=2x4:a100+1x4:h200,speed=2000"


def top_of(page: Page, region: str) -> float:
    box = page.get_by_role("region", name=region, exact=True).bounding_box()
    assert box is not None
    return float(box["y"])


def dragged(page: Page, over: Locator) -> bool:
    """Drag across a chart; False if it moved meanwhile, as when one above it is drawn."""
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    if box is None:
        return False
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_timeout(200)
    return "from=" in page.url


def test_the_page_shows_what_was_and_looks_closer_where_one_drags(open_page: Open) -> None:
    with serving(ENGINE, policy="fifo") as client:
        jobs = [
            submit(client, gpus=4, tenant=tenant, hints={"duration_s": 3600.0})
            for tenant in ("red", "blue", "red", "blue", "red")
        ]
        why = {"why": "a fan is loud"}
        client.post(f"{API}/nodes/h200-2/drain", params=why).raise_for_status()
        wait_until(lambda: all(get(client, f"/jobs/{job}")["ended"] for job in jobs))
        page = open_page(f"{client.base_url}#/cluster?past=12")
        panel = page.get_by_role("region", name="Over time")

        expect(panel.get_by_role("img", name="GPUs by state over time")).to_be_visible()
        expect(panel.get_by_role("img", name="Jobs that wait over time")).to_be_visible()
        expect(panel.get_by_role("list", name="What happened")).to_contain_text(
            "h200-2 was drained by an admin: a fan is loud"
        )
        expect(panel.get_by_text("drained or gone")).to_be_visible()
        expect(panel).to_contain_text("mean wait of the 5 jobs that started")
        panel.get_by_role("button", name="Tenant").click()
        legend = panel.locator("figure").first.locator(".u-legend")
        expect(legend).to_contain_text("red")
        expect(legend).to_contain_text("blue")

        windows = panel.locator(".windows")
        whole = windows.text_content()
        wait_until(lambda: dragged(page, panel.locator("figure").first.locator(".u-over")))
        expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
        expect(windows).not_to_have_text(whole or "")
        panel.get_by_role("button", name="Whole range").click()
        expect(page).not_to_have_url(re.compile("from="))

        page.evaluate(AXE)
        for width in (1400, 420):
            page.set_viewport_size({"width": width, "height": 900})
            assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
            report = page.evaluate("axe.run('[aria-label=\"Over time\"]')")
            grave = [each["id"] for each in report["violations"] if each["impact"] != "minor"]
            assert grave == []
        assert top_of(page, "In use") < top_of(page, "GPUs")  # totals first where it is narrow
        read = "[...document.querySelectorAll('main section')].map((one) => one.ariaLabel)"
        order = page.evaluate(read)  # as a screen reader goes, at any width
        assert order.index("In use") < order.index("GPUs") < order.index("Over time")
        page.close()
