"""Dataclasses as columns and back: the same values, also from files of other versions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.codec.columns import pack, pack_floats, unpack, unpack_floats
from weft.core.errors import InvalidConfig
from weft.core.model import job as model
from weft.core.model.launch import Launch
from weft.frozen import frozen

numbers = st.floats(0.0, 1e12)
texts = st.text(max_size=8)
demands = st.builds(
    model.Demand, st.just(8), st.integers(1, 8), st.integers(8, 16), st.just(()) | st.just(("a",))
)
launches = st.builds(
    Launch, st.lists(texts, max_size=3).map(tuple), texts, st.dictionaries(texts, texts, max_size=2)
)
jobs = st.builds(
    model.Job,
    texts.map(model.JobId),
    numbers,
    demands,
    texts,
    batch=st.none()
    | st.builds(model.BatchRange, st.integers(1, 9), st.integers(9, 99), st.just(3)),
    deadline=st.none() | numbers,
    tier=st.sampled_from(model.Tier),
    hints=st.dictionaries(texts, numbers, max_size=2),
    preemptible=st.booleans(),
    launch=st.none() | launches,
)
slices = st.builds(
    model.Slice, texts.map(model.NodeId), st.lists(st.integers(0, 7)).map(tuple), numbers
)
allocations = st.builds(
    model.Allocation,
    st.lists(slices, max_size=3).map(tuple),
    st.builds(
        model.Sharing,
        numbers,
        st.sampled_from(model.Tier),
        discipline=st.sampled_from(model.Discipline),
    ),
    st.none() | st.builds(model.Batch, st.integers(1, 9)),
)


@given(st.lists(jobs, max_size=6))
def test_jobs_come_back_as_they_were(many: list[model.Job]) -> None:
    assert unpack(model.Job, json.loads(json.dumps(pack(model.Job, many)))) == many


@given(st.lists(allocations, max_size=6))
def test_allocations_come_back_as_they_were(many: list[model.Allocation]) -> None:
    assert unpack(model.Allocation, json.loads(json.dumps(pack(model.Allocation, many)))) == many


@given(st.lists(st.floats()))
def test_arrays_come_back_bit_by_bit(values: list[float]) -> None:
    array = np.array(values)

    unpacked = unpack_floats(json.loads(json.dumps(pack_floats(array))))

    assert unpacked.tobytes() == array.tobytes()


def test_what_is_alike_is_written_once() -> None:
    many = [model.Job(model.JobId(str(i)), tenant="vision") for i in range(50)]

    assert pack(model.Job, many)["tenant"] == {"all": "vision"}


@frozen
class Old:
    name: str
    gone: int = 0


@frozen
class New:
    name: str
    fresh: tuple[str, ...] = ("x",)


@frozen
class Needy:
    name: str
    needed: int


def test_a_file_of_another_version_is_read_with_defaults_and_without_what_is_unknown() -> None:
    packed = pack(Old, [Old("a", 1), Old("b", 2)])

    assert unpack(New, packed) == [New("a"), New("b")]


def test_a_field_that_has_no_default_and_is_not_there_is_named() -> None:
    with pytest.raises(InvalidConfig, match="needed"):
        unpack(Needy, pack(Old, [Old("a")]))


def test_columns_of_different_length_are_refused() -> None:
    packed = pack(Old, [Old("a", 1), Old("b", 2)])
    packed["gone"].pop()

    with pytest.raises(InvalidConfig, match="1 values, not 2"):
        unpack(Old, packed)
