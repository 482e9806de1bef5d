"""Every policy and wrapper in a crowd where its rules decide: what it did, as a fingerprint.

`WEFT_UPDATE_GOLDEN=1 pytest tests/golden` rewrites the file, on purpose only.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.crowd import GOLDEN, GROUNDS, describe, every_spec, read_golden


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("spec", every_spec())
def test_a_policy_still_does_what_it_did_in_a_crowd(spec: str, ground: str, tmp_path: Path) -> None:
    name, known = f"{spec} in {ground}", read_golden()

    line = describe(spec, ground, tmp_path)

    if os.environ.get("WEFT_UPDATE_GOLDEN"):
        known[name] = line
        GOLDEN.write_text("".join(f"{one}  {known[one]}\n" for one in sorted(known)))
    assert line == known[name]


def test_nothing_is_known_of_what_is_not_tried() -> None:
    tried = sorted(f"{spec} in {ground}" for spec in every_spec() for ground in GROUNDS)

    assert list(read_golden()) == tried
