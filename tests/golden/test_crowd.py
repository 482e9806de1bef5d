"""Every policy and wrapper in a crowd where its rules decide: what it did, as a fingerprint.

`WEFT_UPDATE_GOLDEN=1 pytest tests/golden` rewrites the file, on purpose only.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

import weft
from tests.golden.crowd import GROUNDS, LOANS, draw, every_spec

GOLDEN = Path(__file__).parent / "crowd.txt"


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("spec", every_spec())
def test_a_policy_still_does_what_it_did_in_a_crowd(spec: str, ground: str, tmp_path: Path) -> None:
    log, name = tmp_path / "events", f"{spec} in {ground}"
    result = weft.simulate(
        draw(ground), spec, GROUNDS[ground], restart_cost=20.0, loans=LOANS[ground], events=log
    )

    numbers = result.outcomes[spec][0].metrics
    line = f"{numbers['avg_jct_h']:.4f} {numbers['makespan_h']:.4f} {_fingerprint(log)}"

    known = dict(text.split("  ", 1) for text in GOLDEN.read_text().splitlines())
    if os.environ.get("WEFT_UPDATE_GOLDEN"):
        known[name] = line
        GOLDEN.write_text("".join(f"{one}  {known[one]}\n" for one in sorted(known)))
    assert line == known[name]


def test_nothing_is_known_of_what_is_not_tried() -> None:
    known = [text.split("  ", 1)[0] for text in GOLDEN.read_text().splitlines()]

    assert known == sorted(f"{spec} in {ground}" for spec in every_spec() for ground in GROUNDS)


def _fingerprint(log: Path) -> str:
    """Who got what when, in twelve characters; moments to a tenth of a second."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [e | {"at": round(e["at"], 1)} for e in events if e["event"] != "Reported"]
    return sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]
