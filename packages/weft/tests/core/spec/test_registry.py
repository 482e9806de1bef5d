"""Parts by name with parameters as text."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from packages.weft.tests.core.spec.every_type import EveryType

from weft.core.errors import InvalidConfig, UnknownName, WeftError
from weft.core.spec.parameters import parameters, settings
from weft.core.spec.registry import GROUPS, build, find, names
from weft.policies.fifo import Fifo
from weft.policies.las import Las
from weft.predict.none import NoPredictor


@dataclass(frozen=True)
class Part(EveryType):
    lam: float = field(default=1.0, metadata={"name": "lambda"})
    truth: object = field(default=None, metadata={"settable": False})


def read(**params: str) -> dict[str, object]:
    return settings("part 'p'", Part, params)


def message(key: str, text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        settings("part 'p'", Part, {key: text})
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        *[("flag", text, True) for text in ("true", "True", "yes", "1")],
        *[("flag", text, False) for text in ("false", "NO", "0")],
        ("count", "12", 12),
        ("weight", "1e3", 1000.0),
        ("limit", "none", None),
        ("limit", "2.5", 2.5),
        ("most", "None", None),
        ("most", "3", 3),
        ("steps", "3250/7200.5", (3250.0, 7200.5)),
        ("steps", "", ()),
        ("words", "a/b", ("a", "b")),
        ("prices", "a=1/b@k=2.5", {"a": 1.0, "b@k": 2.5}),
        ("mode", "slow", "slow"),
        ("text", "any thing", "any thing"),
    ],
)
def test_texts_are_read_by_the_type_of_the_field(key: str, text: str, value: object) -> None:
    values = read(**{key: text})

    assert values == {key: value}
    assert type(values[key]) is type(value)


def test_a_parameter_may_have_another_name_than_its_field() -> None:
    assert read(**{"lambda": "2"}) == {"lam": 2.0}


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("flag", "maybe", "part 'p': flag='maybe' is not true or false"),
        ("count", "1.5", "part 'p': count='1.5' is not a whole number"),
        ("weight", "heavy", "part 'p': weight='heavy' is not a number"),
        ("limit", "x", "part 'p': limit='x' is not a number or none"),
        ("most", "1.5", "part 'p': most='1.5' is not a whole number or none"),
        ("steps", "1/x", "part 'p': steps='1/x' is not numbers joined by '/'"),
        ("prices", "a", "part 'p': prices='a' is not name=number joined by '/'"),
        ("weight", "nan", "part 'p': weight='nan' is not a number"),
        (
            "mode",
            "fsat",
            "part 'p': mode='fsat' is not one of its choices; did you mean 'fast'?\n"
            "  hint: choose fast or slow",
        ),
    ],
)
def test_a_text_that_cannot_be_read_is_named_with_what_was_expected(
    key: str, text: str, expected: str
) -> None:
    assert message(key, text) == expected


def test_a_bad_number_keeps_its_cause() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(count="x")

    assert isinstance(caught.value.__cause__, ValueError)


def test_an_unknown_parameter_is_answered_with_the_closest_and_all() -> None:
    expected = "count, flag, lambda, limit, mode, most, prices, steps, text, weight, words"

    assert message("cuont", "1") == (
        f"part 'p' has no parameter 'cuont'; did you mean 'count'?\n  hint: it has {expected}"
    )


def test_what_users_may_not_set_is_unknown_to_them() -> None:
    assert "truth" not in parameters(Part)
    assert message("truth", "1").startswith("part 'p' has no parameter 'truth'")


def test_parameters_are_listed_with_type_and_default() -> None:
    assert parameters(Fifo) == {"backfill": (bool, False), "place": (str, "packed")}


def test_a_policy_is_built_from_its_spec() -> None:
    assert build("policy", "fifo:backfill=true") == Fifo(backfill=True)
    assert build("policy", "las:by=time,thresholds=1/2") == Las("time", (1.0, 2.0))
    assert build("predictor", "none") == NoPredictor()


def test_a_part_without_parameters_says_so() -> None:
    with pytest.raises(InvalidConfig) as caught:
        build("order", "srtf:fast=true")

    assert str(caught.value) == (
        "order 'srtf' has no parameter 'fast'\n  srtf:fast=true\n       ^^^^\n  hint: it has none"
    )


def test_arguments_the_caller_adds_reach_the_part() -> None:
    def truth(*_: object) -> object:
        return None

    predictor = build("predictor", "noisy:sigma=0.1", truth=truth, lengths=truth, seed=7)

    assert (predictor.sigma, predictor.seed) == (0.1, 7)


def test_an_unknown_name_is_an_error_of_its_own() -> None:
    with pytest.raises(UnknownName, match="no policy named 'fifi'; did you mean 'fifo'"):
        find("policy", "fifi")


def test_the_values_of_a_part_are_checked_by_itself() -> None:
    with pytest.raises(WeftError, match="quantum=0 must be above 0"):
        build("policy", "las:quantum=0")


@pytest.mark.parametrize("kind", ["policy", "predictor", "trace", "perf"])
def test_every_registered_part_can_be_loaded(kind: str) -> None:
    known = names(kind)

    assert known == tuple(sorted(set(known)))
    assert all(find(kind, name) is not None for name in known)


def test_every_kind_has_a_group() -> None:
    assert all(isinstance(names(kind), tuple) for kind in GROUPS)
