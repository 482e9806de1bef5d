"""Values that cannot be changed: pickled and copied as they are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, field

import pytest

from weft.frozen import frozen


@frozen
class Alone:
    """A value of one field."""

    name: str = "a"


@frozen
class Value(Alone):
    """A value with a field that its caller does not give."""

    parts: tuple[int, ...] = ()
    seen: dict[str, int] = field(default_factory=dict, init=False, compare=False)


@pytest.mark.parametrize("value", [Alone("b"), Value("b", (1, 2))])
def test_a_value_is_the_same_after_a_pickle_or_a_copy(value: Alone) -> None:
    again = pickle.loads(pickle.dumps(value))

    assert again == value == copy.copy(value) == copy.deepcopy(value)
    with pytest.raises(FrozenInstanceError):
        again.name = "c"


def test_what_nobody_compares_is_kept_as_well() -> None:
    value = Value("b")
    value.seen["x"] = 1

    again = pickle.loads(pickle.dumps(value))

    assert again.seen == {"x": 1}
    assert copy.copy(value).seen is value.seen
