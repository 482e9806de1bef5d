"""A JSON trace with any value in the wrong place is refused by name, never with a traceback."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packages.weft.tests.traces.test_formats import FILES
from packages.weft.tests.traces.test_philly import LOG
from tests.examples import examples

from weft.core.errors import TraceError
from weft.traces.options import Options
from weft.traces.read import load

WHOLE: dict[str, Any] = {
    "philly-json": LOG,
    "shockwave-profile": json.loads(FILES["shockwave-profile"]),
}
leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=4)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    here = [path] if path else []
    return here + [place for key, item in below for place in places(item, (*path, key))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = new
    return changed


@pytest.mark.parametrize("name", WHOLE)
@examples(150)
@given(data=st.data(), attempts=st.sampled_from(["sum", "span", "last", "split"]))
def test_a_value_in_the_wrong_place_is_named(name: str, data: st.DataObject, attempts: str) -> None:
    changed = put(WHOLE[name], data.draw(st.sampled_from(places(WHOLE[name]))), data.draw(values))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(changed))
        try:
            load(path, options=Options(attempts=attempts))
        except TraceError as error:
            assert "trace.json" in str(error)
