"""Policies as people name them: classes in files, one name, frames of results."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import weft
from weft.app.policy_file import build_policy
from weft.core.errors import InvalidConfig, UnknownName

MINE = '''
from dataclasses import dataclass
from weft.policy import About, pack


@dataclass(frozen=True)
class Mine:
    """Largest first, from `least` GPUs on."""

    least: int = 1
    about = About("mine", "an example", starves="a stream of larger jobs")

    def decide(self, view):
        return pack(view, view.ranked(-view.table.need))
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_class_of_a_file_is_a_policy_with_its_fields_as_parameters(mine: Path) -> None:
    assert build_policy(f"{mine}:Mine").about.name == "mine"
    assert build_policy(f"{mine}:Mine:least=4") == build_policy(f"{mine}:Mine:least=4")

    result = weft.compare("tiny-20", ["fifo", f"{mine}:Mine"], "2x4:v100+1x4:t4", processes=2)

    assert len(result["policies"]) == 2


def test_what_is_wrong_with_it_is_said(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'Mine'"):
        build_policy(f"{mine}:Mina")
    with pytest.raises(InvalidConfig, match="no parameter 'most'"):
        build_policy(f"{mine}:Mine:most=4")
    with pytest.raises(InvalidConfig, match="there is no file"):
        build_policy(f"{tmp_path}/none.py:Mine")
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(InvalidConfig, match="ZeroDivisionError"):
        build_policy(f"{broken}:Mine")


def test_one_policy_needs_no_list() -> None:
    assert list(weft.compare("tiny-20", "fifo")["policies"]) == ["fifo"]


def test_results_are_tidy_frames_and_tables_in_notebooks() -> None:
    result = weft.compare("tiny-20", ["fifo", "srtf"], seeds=(0, 1))

    frame, jobs = result.to_frame(), result.to_frame(per_job=True)

    assert isinstance(frame, pd.DataFrame)
    assert list(zip(frame.policy, frame.seed, strict=True)) == [
        ("fifo", 0),
        ("fifo", 1),
        ("srtf", 0),
        ("srtf", 1),
    ]
    assert len(jobs) == 4 * 20
    assert "<td>srtf</td>" in result._repr_html_()
