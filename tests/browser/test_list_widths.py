"""Words of the list of jobs fit into their columns, on a desk and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.integration.serving import STILL, serving, submit

STATES = ("running", "starting", "checkpointing", "preempted", "pending", "suspended", "succeeded")
ROOM = """(badge, word) => {
  badge.lastChild.textContent = word;
  const cell = badge.closest('td');
  const padding = parseFloat(getComputedStyle(cell).paddingRight);
  return cell.getBoundingClientRect().right - padding - badge.getBoundingClientRect().right;
}"""


@pytest.mark.parametrize("width", [1400, 420, 360])
def test_every_state_of_a_job_fits_into_its_column(width: int, open_page: Open) -> None:
    with serving(STILL) as client:
        submit(client, name="narrow", gpus=1)
        page = open_page(f"{client.base_url}#/jobs")
        page.set_viewport_size({"width": width, "height": 860})
        badge = page.locator("td .badge").first
        expect(badge).to_be_visible()

        rooms = {word: badge.evaluate(ROOM, word) for word in (*STATES, "failed", "cancelled")}

        assert {word: room for word, room in rooms.items() if room < 0.0} == {}
        page.close()
