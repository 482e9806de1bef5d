"""Who did what: for admins, at every width, with what was refused."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import API, STILL, bearer, serving, token


@pytest.mark.parametrize("width", [1400, 420])
def test_an_admin_reads_who_did_what(open_page: Open, width: int) -> None:
    with serving(STILL) as client:
        admin = token(client, "admin")
        mine = token(client, "user", "vision", by=admin)
        for number in range(3):
            again = {"name": f"early-{number}", "gpus": 1}
            client.post(f"{API}/jobs", json=again, headers=bearer(admin)).raise_for_status()
        body = {"name": "ours", "gpus": 1}
        job = client.post(f"{API}/jobs", json=body, headers=bearer(mine)).json()["id"]
        assert client.post(f"{API}/nodes/a100-0/drain", headers=bearer(mine)).status_code == 403
        page = open_page(f"{client.base_url}#/tenants")
        page.set_viewport_size({"width": width, "height": 900})
        page.get_by_label("Token").fill(admin)
        page.get_by_role("button", name="Sign in").click()

        page.get_by_role("link", name="Who did what").click()
        rows = page.get_by_role("region", name="Requests").get_by_role("row")
        made = rows.filter(has_text=job)
        expect(made).to_contain_text("user of vision")
        expect(made).to_contain_text(f"submitted {job}")
        alike = rows.filter(has_text="submitted 3 times")
        alike.locator("summary").click()
        expect(alike.get_by_role("link", name="early-1")).to_be_visible()
        expect(made).to_contain_text("done 201")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_label("refused only").check()
        expect(rows).to_have_count(2)  # with the headings
        expect(rows.last).to_contain_text("refused 403")
        expect(page).to_have_url(re.compile("failed=true"))
        page.get_by_label("refused only").uncheck()
        made.get_by_role("link").click()
        expect(page.get_by_role("heading", name="ours")).to_be_visible()
        page.close()
