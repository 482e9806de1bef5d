"""Values as JSON has them, and back, by their types.

What a type needs is looked up once and kept as a function: a service reads and writes every event,
and looking at type hints each time took ten times as long. Fields at their default are left out.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.core.events.report import Report
from weft.core.spec.part_spec import PartSpec, read_plain

Step = Callable[[Any], Any]
AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def encode(value: Any) -> Any:
    """Plain JSON values of a dataclass and whatever it holds."""
    kind: Any = type(value)
    return value if kind in AS_THEY_ARE else _writer(kind)(value)


def decode(kind: Any, data: Any) -> Any:
    """A value of type `kind` from what `encode` made of it."""
    return _reader(kind)(data)


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
    return _write_items if issubclass(kind, (tuple, list)) else _same


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


def _write_table(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): encode(item) for key, item in value.items()}


def _write_items(value: Any) -> list[Any]:
    return [encode(item) for item in value]


def _same(value: Any) -> Any:
    return value


def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    pairs = []
    for f in fields(kind):
        factory = f.default_factory
        pairs.append((f.name, factory() if factory is not MISSING else f.default))
    return tuple(pairs)


def _is_default(held: Any, default: Any) -> bool:
    if default is MISSING or type(held) is not type(default):
        return False
    if isinstance(held, np.ndarray):
        return np.array_equal(held, default)
    return bool(held == default)


# ---- reading


@cache
def _reader(kind: Any) -> Step:  # noqa: PLR0911 - one return a type
    if isinstance(kind, NewType):
        return _reader(kind.__supertype__)
    if kind is PartSpec:
        return read_plain
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _or_none(_reader(next(a for a in args if a is not type(None))))
    if kind is Report:
        return Report.read
    if is_dataclass(kind) and isinstance(kind, type):
        return _fields_reader(kind)
    if origin is np.ndarray:
        return lambda data: np.array(data, dtype=float)
    if origin in (tuple, list):
        return _items_reader(origin, args)
    if origin in (dict, Mapping):
        return _table_reader(*args)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return {float: _read_float, int: _read_int, str: _read_text, bool: _read_truth}.get(kind, _same)


def _or_none(read: Step) -> Step:
    return lambda data: None if data is None else read(data)


def _fields_reader(kind: Any) -> Step:
    readers: dict[str, Step] = {}  # filled as fields are met: a type may hold itself

    def read(data: Any) -> Any:
        made = {}
        for name, item in data.items():
            if name not in readers:
                readers[name] = _reader(get_type_hints(kind)[name])
            made[name] = readers[name](item)
        return kind(**made)

    return read


def _items_reader(origin: Any, args: tuple[Any, ...]) -> Step:
    if len(args) > 1 and args[1] is not Ellipsis:
        each = [_reader(one) for one in args]
        return lambda data: origin(read(one) for read, one in zip(each, data, strict=True))
    read_all = _reader(args[0])
    return lambda data: origin(map(read_all, _listed(data)))


def _listed(data: Any) -> Iterator[Any]:
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"{data!r:.60} is not a list")
    return iter(data)


def _table_reader(key: Any, value: Any) -> Step:
    read = _reader(value)
    if key in (int, float):  # JSON knows texts only
        return lambda data: {key(name): read(item) for name, item in data.items()}
    return lambda data: {name: read(item) for name, item in data.items()}


def _read_float(data: Any) -> float:
    if type(data) is float:
        return data
    if isinstance(data, bool):
        raise TypeError(f"{data!r} is not of type float")
    return float(data)


def _read_int(data: Any) -> int:
    if type(data) is int:
        return data
    if isinstance(data, float) and data.is_integer():
        return int(data)
    raise TypeError(f"{data!r} is not of type int")


def _read_text(data: Any) -> str:
    if type(data) is str:
        return data
    raise TypeError(f"{data!r} is not of type str")


def _read_truth(data: Any) -> bool:
    if type(data) is bool:
        return data
    raise TypeError(f"{data!r} is not of type bool")
