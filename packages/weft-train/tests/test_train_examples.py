"""The example scripts train, alone and together, and differ little from their plain twins."""

from __future__ import annotations

import difflib
import runpy
import sys
from pathlib import Path

import pytest
import real_ranks as ranks
from real_ranks import EXAMPLES

NAMES = ["cnn", "image", "language", "regression"]


def play(script: str, printed: str) -> None:
    with Path(printed).open("a") as out:
        sys.stdout = out
        sys.path.insert(0, str(Path(script).parent))  # as Python does for a script
        runpy.run_path(script, run_name="__main__")


def last(path: Path) -> float:
    """The number that the last epoch printed."""
    return float(path.read_text().split()[-1])


def test_an_example_runs_alone(tmp_path: Path) -> None:
    script = str(EXAMPLES / "regression.py")

    codes = ranks.finish(ranks.start(play, 1, {}, script, str(tmp_path / "printed")))

    assert codes == [0]
    assert last(tmp_path / "printed") < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_elastic_example_learns_as_well_as_its_twin(name: str, tmp_path: Path) -> None:
    scripts = {kind: str(EXAMPLES / f"{name}{kind}.py") for kind in ("", "_plain")}

    codes = [
        ranks.finish(ranks.start(play, size, {}, script, str(tmp_path / f"{kind}{size}")))
        for kind, script in scripts.items()
        for size in ((1, 2) if not kind else (1,))
    ]

    assert codes == [[0], [0, 0], [0]]
    alone, pair, plain = (last(tmp_path / which) for which in ("1", "2", "_plain1"))
    assert alone == pytest.approx(plain, abs=0.15)
    assert pair == pytest.approx(plain, abs=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_becomes_elastic_in_a_few_lines(name: str) -> None:
    plain, elastic = (
        (EXAMPLES / f"{name}{kind}.py").read_text().splitlines() for kind in ("_plain", "")
    )

    added = [line for line in difflib.ndiff(plain, elastic) if line.startswith("+ ")]
    new = [line for line in added if line.strip("+ ")]

    assert len(elastic) < 65
    assert len(new) <= 16, new


def test_a_cnn_with_schedule_clipping_amp_and_validation_changes_in_twelve_lines() -> None:
    plain, elastic = (
        (EXAMPLES / f"cnn{kind}.py").read_text().partition('"""\n\n')[2].splitlines()
        for kind in ("_plain", "")
    )

    added = [line for line in difflib.ndiff(plain, elastic) if line.startswith("+ ")]
    lost = [line for line in difflib.ndiff(plain, elastic) if line.startswith("- ")]

    assert len([line for line in added if line.strip("+ ")]) <= 12, added
    assert len(lost) <= 12, lost
    for part in ("OneCycleLR", "clip", "GradScaler", "autocast", "validate"):
        assert any(part in line for line in elastic), part
