"""Tables of measured pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig
from weft.core.profile import Profile
from weft.perf.pairs import read_pairs

HEAD = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"


def test_a_pair_is_found_in_either_order_and_an_unknown_one_runs_at_full_speed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEAD + "A,x,64,0,0.9,B,y,32,1,0.7\n")
    a, b, c = (Profile(tag=t) for t in ("A/x/64/0", "B/y/32/1", "C"))

    pairs = read_pairs(path)

    assert pairs((a, b)) == [0.9, 0.7]
    assert pairs((b, a)) == [0.7, 0.9]
    assert pairs((a, c)) == [1.0, 1.0]
    assert pairs((a, b, b)) == pytest.approx([0.81, 0.7, 0.7])
    assert pairs.average("A/x/64/0") == 0.9
    assert pairs.average("C") is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("A,x,64,0,,B,y,32,1,0.7\n", "line 2: no speed1"),
        ("A,x,64,0,fast,B,y,32,1,0.7\n", "line 2: could not convert"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEAD + row)

    with pytest.raises(InvalidConfig, match=said):
        read_pairs(path)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read pairs"):
        read_pairs(tmp_path / "nowhere.csv")
