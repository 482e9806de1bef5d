"""Arguments that travel with the rows of a list."""

from __future__ import annotations

import pytest

from weft.core.model.launch import Launch
from weft.service.jobs.arguments import LONGEST, MOST, arguments_of


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (
            "python a.py --lr 0.1 --bias -1 --amp --out=b",
            {"lr": "0.1", "bias": "-1", "amp": "", "out": "b"},
        ),
        ("python a.py model.depth=3 -v data", {"model.depth": "3"}),
        ("python -m a", {}),
        ("sh -c x=1; echo $x", {"x": "1;"}),
        ("", {}),
    ],
)
def test_options_of_a_command_are_arguments(line: str, options: dict[str, str]) -> None:
    assert arguments_of(Launch(tuple(line.split()))) == options


def test_values_of_a_sweep_come_first_and_are_bounded() -> None:
    many = {f"p{number}": "x" * 99 for number in range(20)}

    values = arguments_of(Launch(("python", "--lr", "1"), parameters=many))

    assert list(values) == [f"p{number}" for number in range(MOST)]
    assert {len(value) for value in values.values()} == {LONGEST}
    assert arguments_of(None) == {}


def test_secrets_are_not_among_them() -> None:
    launch = Launch(("python", "--api-token", "abcdefghij", "--lr", "s3cret-value"))

    assert arguments_of(launch, ["s3cret-value"]) == {"lr": "***"}
