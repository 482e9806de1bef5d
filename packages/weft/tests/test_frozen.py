"""Values that cannot be changed: pickled and copied as they are."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from inspect import signature
from sys import getallocatedblocks
from typing import Any

import pytest

from weft.frozen import OFTEN, frozen, frozen_by_name


@frozen
class Alone:
    """A value of one field."""

    name: str = "a"


@frozen
class Value(Alone):
    """A value with a field that its caller does not give."""

    parts: tuple[int, ...] = ()
    seen: dict[str, int] = field(default_factory=dict, init=False, compare=False)


@frozen
class Place:
    """A value that is pickled as a call of its class."""

    node: str
    gpus: tuple[int, ...] = ()


@frozen
class Rack(Place):
    """A class below it, with a field more."""

    row: int = 0


@dataclass(frozen=True)
class Marked(Place):
    """A class below it that has a dictionary."""

    color: str = ""


@frozen
class Sealed:
    """A value that decides itself what is pickled of it."""

    name: str
    secret: str = ""

    def __reduce__(self) -> tuple[type[Sealed], tuple[str]]:
        return Sealed, (self.name,)


def test_a_class_may_have_a_way_of_its_own_to_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sealed("a", "hush"))) == Sealed("a")


PLACES = [Place("n0", (1,)), Rack("n0", (1,), 3), Marked("n0", (1,), "red")]


@pytest.mark.parametrize("value", [Alone("b"), Value("b", (1, 2)), *PLACES])
def test_a_value_is_the_same_after_a_pickle_or_a_copy(value: Any) -> None:
    again = pickle.loads(pickle.dumps(value))

    assert again == value == copy.copy(value) == copy.deepcopy(value)
    assert type(again) is type(value)
    with pytest.raises(FrozenInstanceError):
        setattr(again, fields(again)[0].name, "c")


def test_what_nobody_compares_is_kept_as_well() -> None:
    value = Value("b")
    value.seen["x"] = 1

    again = pickle.loads(pickle.dumps(value))

    assert again.seen == {"x": 1}
    assert copy.copy(value).seen is value.seen


@frozen
class Checked:
    """A value that refuses some numbers."""

    least: int
    most: int = 9
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise ValueError(self.least)


@frozen_by_name
class Named:
    """A value whose fields are given by name."""

    least: int
    most: int = 9


@dataclass(frozen=True)
class Below(Checked):
    """A class below one that is frozen."""

    more: int = 0


def test_a_value_that_is_made_often_is_made_as_the_first_ones_were() -> None:
    first, declared = Checked(3), signature(Checked)
    many = [Checked(number, most=100) for number in range(OFTEN)]

    last = Checked(3)

    assert (last, repr(last), type(last)) == (first, repr(first), Checked)
    assert (signature(Checked), hash(Named(least=1))) == (declared, hash(Named(least=1)))
    assert last.names is not Checked(3).names  # a list of its own
    assert many[5] == Checked(5, 100)
    with pytest.raises(FrozenInstanceError):
        last.least = 4  # type: ignore[misc]
    with pytest.raises(ValueError, match="10"):
        Checked(10)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'least'"):
        Checked()  # type: ignore[call-arg]


def test_fields_that_are_given_by_name_stay_so_once_many_are_made() -> None:
    many = [Named(least=number) for number in range(2 * OFTEN)]

    assert many[-1] == Named(most=9, least=2 * OFTEN - 1)
    with pytest.raises(TypeError, match="positional"):
        Named(1)  # type: ignore[call-arg]


def test_a_class_below_one_that_is_made_often_keeps_its_own_fields() -> None:
    for number in range(2 * OFTEN):
        Checked(number, 2 * OFTEN)

    below = Below(1, 2, ["a"], 3)

    assert (type(below), below.least, below.names, below.more) == (Below, 1, ["a"], 3)


@frozen
class Kept:
    """A value that keeps something its caller does not give."""

    name: str
    kept: list[str] = field(default_factory=list, init=False, compare=False)
    size: int = 1


def test_what_a_caller_does_not_give_is_each_values_own() -> None:
    first, second = Kept("a"), Kept("b", 2)
    first.kept.append("x")

    assert (first.kept, second.kept, second.size) == (["x"], [], 2)
    assert replace(first, size=3).kept == []
    with pytest.raises(TypeError, match="kept"):
        Kept("a", kept=[])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="argument"):
        Kept("a", 1, [])  # type: ignore[call-arg]


@frozen
class Twice:
    """A value that could be given a name twice."""

    first: int
    second: int = 2


def test_wrong_calls_are_refused_as_dataclasses_refuse_them() -> None:
    wrongs: list[Callable[[], Twice]] = [
        lambda: Twice(1, first=2),  # type: ignore[misc]
        lambda: Twice(second=2),  # type: ignore[call-arg]
        lambda: Twice(1, 2, 3),  # type: ignore[call-arg]
        lambda: Twice(1, third=3),  # type: ignore[call-arg]
    ]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_names_that_were_put_together_while_running_are_found() -> None:
    assert Twice(**{"".join(["fir", "st"]): 5, "sec" + "ond": 6}) == Twice(5, 6)


def test_values_leave_nothing_behind() -> None:
    Checked(1, most=5)
    before = getallocatedblocks()
    for _ in range(5_000):
        Checked(1, most=5)
        with suppress(ValueError):
            Checked(10)
        with suppress(TypeError):
            Checked()  # type: ignore[call-arg]
    assert getallocatedblocks() - before < 200
