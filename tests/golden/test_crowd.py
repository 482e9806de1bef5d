"""Every policy and wrapper in a crowd where its rules decide: what it did, as a fingerprint.

`WEFT_UPDATE_GOLDEN=1 pytest tests/golden` rewrites the file, on purpose only.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.crowd import GOLDEN, GROUNDS, describe, every_spec, read_golden

UPDATE = bool(os.environ.get("WEFT_UPDATE_GOLDEN"))
TRIED = sorted(f"{spec} in {ground}" for spec in every_spec() for ground in GROUNDS)


@pytest.mark.parametrize("name", TRIED if UPDATE else read_golden())
def test_a_policy_still_does_what_it_did_in_a_crowd(name: str, tmp_path: Path) -> None:
    known, (spec, ground) = read_golden(), name.split(" in ")

    line = describe(spec, ground, tmp_path)

    if UPDATE:
        lines = {tried: known[tried] for tried in TRIED if tried in known} | {name: line}
        GOLDEN.write_text("".join(f"{tried}  {lines[tried]}\n" for tried in sorted(lines)))
    assert line == read_golden()[name]


def test_nothing_is_known_of_what_is_not_tried() -> None:
    assert set(read_golden()) <= set(TRIED)
