"""The report of a comparison in a real browser: labels beside dots never cover each other."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

import weft
from tests.browser.conftest import Open
from tests.waiting import wait_until
from weft.report.html import write_report

BOXES = """chart => [...chart.querySelectorAll('.point, .textpoint text')].map((one) => {
  const box = one.getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom];
})"""
Box = tuple[float, float, float, float]


def covered(boxes: list[Box]) -> list[tuple[Box, Box]]:
    """Pairs that lie on each other by more than a pixel."""
    return [
        (a, b)
        for i, a in enumerate(boxes)
        for b in boxes[:i]
        if min(a[2], b[2]) - max(a[0], b[0]) > 1.0 and min(a[3], b[3]) - max(a[1], b[1]) > 1.0
    ]


def test_labels_of_completion_times_by_size_never_cover_each_other(
    tmp_path: Path, open_page: Open
) -> None:
    policies = ["fifo", "srtf", "las", "tiresias"]
    write_report(weft.compare("tiny-20", policies, cluster="2x8:v100"), tmp_path / "report.html")
    page = open_page(f"file://{tmp_path}/report.html")
    chart = page.locator("#jct-by-size")
    dots, labels = chart.locator(".point"), chart.locator(".textpoint text")
    expect(dots.first).to_be_attached()

    def settle(labelled: int) -> None:
        """A chart is drawn again in steps after its page was given another width."""
        expect(labels).to_have_count(labelled)
        wait_until(lambda: not covered(chart.evaluate(BOXES)), "no label covers another")

    wide = dots.count()
    assert wide >= len(policies)
    settle(wide)
    page.set_viewport_size({"width": 420, "height": 860})
    settle(0)  # the hover tells
    page.set_viewport_size({"width": 1400, "height": 860})
    settle(wide)
    page.close()
