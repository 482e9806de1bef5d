"""Names of another distribution: what to install is said where it is missing."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from weft.core.errors import UnknownName
from weft.core.spec import registry

ENTRIES = registry._entries


def without_papers(kind: str) -> dict[str, EntryPoint]:
    """What is registered where only weft is installed."""
    return {n: entry for n, entry in ENTRIES(kind).items() if entry.value.startswith("weft.")}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("policy", "themis"), ("policy", "hived|srtf"), ("predictor", "qssf"), ("perf", "muri")],
)
def test_a_name_of_weft_papers_says_what_to_install(
    kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_entries", without_papers)

    with pytest.raises(UnknownName, match="is in weft-papers, which is not installed") as caught:
        registry.read_spec(kind, text)

    assert caught.value.hint == "pip install weft-papers"


def test_a_name_that_none_has_is_answered_with_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", without_papers)

    with pytest.raises(UnknownName, match="no policy named 'srtff'; did you mean 'srtf'"):
        registry.find("policy", "srtff")


def test_a_misspelt_name_of_weft_papers_is_answered_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_entries", without_papers)

    with pytest.raises(UnknownName, match="named 'thmis'; did you mean 'themis'") as caught:
        registry.find("policy", "thmis")

    assert caught.value.hint == "`weft list policy` shows all 8"
