"""Values as JSON has them, and back, by their types.

What a type needs is looked up once and kept as a function: a service reads and writes every event,
and looking at type hints each time took ten times as long. Fields at their default are left out, as
is what follows from others: fields that are no arguments, or whose metadata say `kept=False`.
Tables whose keys are tuples are lists of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from types import GenericAlias, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from weft.base.typed import LEAVES, Reader, Step, as_it_is, read_whole
from weft.core.events.report import Report
from weft.core.spec.part_spec import PartSpec, read_plain

AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def encode(value: Any) -> Any:
    """Plain JSON values of a dataclass and whatever it holds."""
    kind: Any = type(value)
    return value if kind in AS_THEY_ARE else _writer(kind)(value)


def decode(kind: Any, data: Any) -> Any:
    """A value of type `kind` from what `encode` made of it."""
    return _READER.of(kind)(data)


# ---- writing


@cache
def _writer(kind: Any) -> Step:  # noqa: PLR0911 - one return a type
    if issubclass(kind, Report):
        return lambda value: _write_table(value.values())
    if is_dataclass(kind):
        return _fields_writer(kind)
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, np.ndarray):
        return lambda value: _write_items(value.tolist())
    if issubclass(kind, np.generic):
        return lambda value: encode(value.item())
    if issubclass(kind, float):
        return lambda value: value if isfinite(value) else str(value)
    if issubclass(kind, Mapping):
        return _write_table
    if issubclass(kind, (set, frozenset)):
        return lambda value: _write_items(sorted(value))
    return _write_items if issubclass(kind, (tuple, list)) else as_it_is


def _fields_writer(kind: Any) -> Step:
    defaults = _defaults(kind)

    def write(value: Any) -> dict[str, Any]:
        written = {}
        for name, default in defaults:
            held = getattr(value, name)
            if held is not default and not _is_default(held, default):
                written[name] = encode(held)
        return written

    return write


def _write_table(value: Mapping[Any, Any]) -> Any:
    if isinstance(next(iter(value), None), tuple):
        return [[encode(key), encode(item)] for key, item in value.items()]
    return {str(key): encode(item) for key, item in value.items()}


def _write_items(value: Any) -> list[Any]:
    return [encode(item) for item in value]


def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    pairs = []
    for f in fields(kind):
        factory = f.default_factory
        if f.init and f.metadata.get("kept", True):
            pairs.append((f.name, factory() if factory is not MISSING else f.default))
    return tuple(pairs)


def _is_default(held: Any, default: Any) -> bool:
    if default is MISSING or type(held) is not type(default):
        return False
    if isinstance(held, np.ndarray):
        return np.array_equal(held, default)
    if is_dataclass(held):
        both = ((getattr(held, f.name), getattr(default, f.name)) for f in fields(held))
        return all(_is_default(ours, theirs) for ours, theirs in both)
    return bool(held == default)


# ---- reading


def _also(kind: Any) -> Step | None:
    if kind is PartSpec:
        return read_plain
    if kind is Report:
        return Report.read
    if get_origin(kind) in (np.ndarray, get_origin(NDArray[Any])):  # newer numpys name the alias
        number = get_args(get_args(kind)[-1])
        return lambda data: np.array(data, dtype=number[0] if number else get_args(kind)[0])
    return _also_shape(kind)


def _also_shape(kind: Any) -> Step | None:
    """The reader of a named tuple, a table by tuples, or one of several dataclasses."""
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        read = _READER.of(GenericAlias(tuple, (*get_type_hints(kind).values(),)))
        return lambda data: kind(*read(data))
    if get_origin(kind) is dict and get_origin(get_args(kind)[0]) is tuple:
        pair = _READER.of(GenericAlias(tuple, get_args(kind)))
        return lambda data: dict(map(pair, data))
    others = [each for each in get_args(kind) if is_dataclass(each)]
    if get_origin(kind) in (Union, UnionType) and len(others) > 1:
        return lambda data: None if data is None else _read_one_of(others, data)
    return None


def _read_one_of(kinds: list[Any], data: Any) -> Any:
    """The first of these dataclasses that has all the fields."""
    names = set(data)
    kind = next(k for k in kinds if names <= {each.name for each in fields(k)})
    return decode(kind, data)


def _read_whole(data: Any) -> int:
    return int(data) if isinstance(data, float) and data.is_integer() else read_whole(data)


_READER = Reader({**LEAVES, int: _read_whole}, also=_also)
