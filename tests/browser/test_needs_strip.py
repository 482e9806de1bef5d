"""The strip above the cluster that names what needs a person, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, STILL, get, serving, submit
from tests.waiting import wait_until
from weft.service import needs_reader

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
NAME = "<b>" + "long-name-" * 12 + "end"


def test_the_first_view_names_what_needs_a_person_and_leads_there(
    open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs_reader, "FRESH_S", 0.0)
    with serving(STILL) as client:
        page = open_page(f"{client.base_url}#/cluster")
        strip = page.get_by_role("region", name="What needs you")
        expect(strip).to_have_text("Nothing needs you")
        tenants = ["red", "blue", "green", "grey"]
        client.put(f"{API}/quotas", json={"limits": dict.fromkeys(tenants, 1.0)}).raise_for_status()
        for tenant in ["red", *tenants]:
            submit(client, command=["true"], gpus=2, tenant=tenant, name=NAME)
        client.post(f"{API}/nodes/t4-2/drain").raise_for_status()
        wait_until(lambda: sum(need["count"] for need in get(client, "/needs")["needs"]) == 6)
        page.reload()

        expect(strip.get_by_role("listitem")).to_have_count(3)
        strip.get_by_role("button", name="Show 2 more").click()
        expect(strip.get_by_role("listitem")).to_have_count(5)
        expect(strip.get_by_role("listitem").first).to_contain_text("t4-2 is drained")
        expect(strip.locator("code").first).to_have_text("weft undrain t4-2")
        page.evaluate(AXE)
        for width in (1400, 420):
            page.set_viewport_size({"width": width, "height": 900})
            assert strip.evaluate("one => one.scrollWidth <= one.clientWidth")
            report = page.evaluate("axe.run('.needs', {resultTypes: ['violations']})")
            rules = report["violations"]
            assert [each["id"] for each in rules if each["impact"] in ("serious", "critical")] == []
        strip.get_by_role("link", name=re.compile("2 jobs of red")).click()
        expect(page.get_by_role("row", name=re.compile("long-name"))).to_have_count(2)
        page.evaluate("location.hash = '#/cluster'")
        strip.get_by_role("link", name="t4-2 is drained").click()
        expect(page.get_by_role("heading", name=re.compile("t4-2"))).to_be_visible()
        page.close()
