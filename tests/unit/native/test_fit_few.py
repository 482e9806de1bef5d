"""The compiled scan over sizes finds what the Python one finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.native.twins import twins

SIZES = st.lists(st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 0.1]), max_size=60)


@given(SIZES, st.sampled_from([0.0, 0.7, 1.0, 8.0, 20.3]))
def test_the_same_sizes_fit(sizes: list[float], room: float) -> None:
    python, compiled = twins("fit_few")
    assert compiled(sizes, room) == python(sizes, room)
