"""Compiled functions refuse what their twins in Python do not accept."""

from __future__ import annotations

import numpy as np
import pytest
from tests.twins.twins import twins


@pytest.mark.parametrize("capacity", [-1.0, -np.inf, np.inf, np.nan])
@pytest.mark.parametrize("which", [0, 1])
def test_a_program_without_a_capacity_is_refused(capacity: float, which: int) -> None:
    take = twins("take_at_prices")[which]
    program = (np.ones((1, 1)), np.zeros(1, dtype=np.intp), np.ones(1), np.array([capacity]))

    with pytest.raises(ValueError, match="capacities"):
        take(*program, np.zeros(1), 3)


def test_an_object_in_place_of_a_number_is_an_ordinary_error() -> None:
    class Half:
        def __float__(self) -> float:
            return sum([0.5])

    _, hold = twins("hold")

    with pytest.raises(TypeError, match="real number"):
        hold(np.ones((22, 3)), 0, "two", Half())
