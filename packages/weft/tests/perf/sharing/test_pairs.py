"""Tables of measured pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.refused import refused

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.perf.sharing.device_models import load_shipped_pairs, read_pairs, unordered

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


@refused(
    InvalidConfig,
    {
        "A,x,64,0,,B,y,32,1,0.7\n": "line 2: no speed1",
        "A,x,64,0,fast,B,y,32,1,0.7\n": "line 2: could not convert",
    },
)
def test_a_broken_table_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEAD + text)

    read_pairs(path)


def test_a_missing_table_of_pairs_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read pairs"):
        read_pairs(tmp_path / "nowhere.csv")


TABLE = {
    "kind": "h200",
    "alone": [
        {"model": "mine", "batch": 8, "step_s": 0.1, "mem_gb": 1.0},
        {"model": "yours", "batch": 16, "step_s": 0.2, "mem_gb": 1.0},
    ],
    "together": [{"one": 0, "other": 1, "speed_one": 0.8, "speed_other": 1.1}],
}


def test_what_a_person_measured_comes_before_what_ships_and_the_model(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(TABLE))
    speeds = unordered("mps", str(path))

    assert list(speeds([Profile(tag="yours"), Profile(tag="mine")])) == [1.0, 0.8]
    assert list(speeds([Profile(tag="mine:8"), Profile(tag="yours:16")])) == [0.8, 1.0]
    alone = unordered("mps")
    assert list(speeds([Profile(tag="mine"), Profile(tag="else")])) == list(
        alone([Profile(tag="mine"), Profile(tag="else")])
    )


def test_shipped_pairs_are_as_measured_and_both_ways_round() -> None:
    heavy, light = Profile(tag="resnet50:128"), Profile(tag="resnet18-cifar:128")
    for sharing in ("timeslicing", "mps"):
        there = list(unordered(sharing)([heavy, light]))
        assert list(unordered(sharing)([light, heavy])) == there[::-1]
        assert all(
            0.0 < speed <= 1.0
            for pair in load_shipped_pairs(sharing).speeds.values()
            for speed in pair
        )
        assert len(load_shipped_pairs(sharing).speeds) == 66
    assert sum(unordered("mps")([heavy, light])) > sum(unordered("timeslicing")([heavy, light]))


@pytest.mark.parametrize("text", ["{", "{}", '{"alone": [], "together": [{"one": 0, "other": 1}]}'])
def test_a_file_that_is_no_table_of_pairs_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(text)

    with pytest.raises(InvalidConfig, match="is not a table of pairs"):
        unordered("mps", str(path))
