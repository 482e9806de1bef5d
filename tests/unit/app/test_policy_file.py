"""Policies in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft import compare, simulate
from weft.app.policy_file import read_policy
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.spec import PartSpec

LAS = {"name": "las", "params": {"by": "time"}, "wrappers": [{"name": "firm"}]}
SPEC = PartSpec("las", {"by": "time"}, (PartSpec("firm"),))


def test_a_short_form_is_left_as_it_is() -> None:
    assert read_policy("firm|las:by=time") == "firm|las:by=time"


@pytest.mark.parametrize("name", ["las.json", "las.yaml", "las.yml"])
def test_a_file_describes_a_policy(tmp_path: Path, name: str) -> None:
    yaml = "name: las\nparams: {by: time}\nwrappers: [firm]\n"
    path = tmp_path / name
    path.write_text(json.dumps(LAS) if name.endswith("json") else yaml)

    assert read_policy(str(path)) == SPEC


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        ("name: [", InvalidConfig, "las.yaml is not YAML"),
        ("", InvalidConfig, "las.yaml: a part is None"),
        ("name: srtff", UnknownName, "las.yaml: no policy named 'srtff'; did you mean 'srtf'"),
        ("{name: las, params: {by: tme}}", InvalidConfig, "las.yaml: policy 'las': by='tme'"),
    ],
)
def test_a_wrong_file_is_named(
    tmp_path: Path, content: str, kind: type[Exception], expected: str
) -> None:
    path = tmp_path / "las.yaml"
    path.write_text(content)

    with pytest.raises(kind, match=expected):
        read_policy(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*none.yaml: No such file"):
        read_policy(str(tmp_path / "none.yaml"))


def test_python_takes_every_form_and_results_agree() -> None:
    text = simulate("tiny-20", "firm|las:by=time")
    fields = simulate("tiny-20", LAS)
    both = compare("tiny-20", [SPEC, "fifo"])

    assert fields.as_dict(timing=False) == text.as_dict(timing=False)
    assert list(both.outcomes) == ["firm|las:by=time", "fifo"]
