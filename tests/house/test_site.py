"""The site of the documents: whole, and without a link that leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs import make_site
from tests.house.sources import ROOT


def test_every_page_is_in_the_site_and_found_by_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_site.main(tmp_path) == 0, capsys.readouterr().out

    page = (tmp_path / "docs/how-to/sweeps.html").read_text()
    assert 'href="job-files.html' in (tmp_path / "docs/how-to/run-jobs.html").read_text()
    assert 'id="search-a-space"' in page
    assert '"url": "docs/how-to/sweeps.html"' in (tmp_path / "search.js").read_text()


def test_links_that_lead_nowhere_are_named() -> None:
    page = ROOT / "docs" / "made-up.md"
    text = "# One\n\n## Two words\n[a](#two-words) [b](#three) [c](no.md) [d](https://a.org/x)"
    tokens = make_site.READER.parse(text)

    assert [*make_site.check_links(page, {page: tokens})] == [
        "docs/made-up.md: #three: that page has no such heading",
        "docs/made-up.md: no.md leads nowhere",
    ]
