"""Dataclasses to JSON and back, by their fields; both ends of the API use the same ones.

Reading is lenient with fields that are not known, so that an older command line can talk to a
newer service, and strict with those that are missing.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from weft.core.errors import EngineError

T = TypeVar("T")
Reader = Callable[[Any], Any]


def plain(value: Any) -> dict[str, Any]:
    """The fields of one dataclass; what they hold is left as it is. For `json.dumps(default=)`."""
    kind: Any = type(value)
    names, read = _getter(kind)
    return dict(zip(names, read(value), strict=True))


def read_as(kind: type[T], data: Any) -> T:
    """An object of `kind` from parsed JSON."""
    wanted: Any = kind
    found: T = _reader(wanted)(data)
    return found


@cache
def _getter(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no part of an answer")
    names = tuple(one.name for one in fields(kind))
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda value: tuple(getattr(value, name) for name in names)


def _as_it_is(data: Any) -> Any:
    return data


@cache
def _reader(kind: Any) -> Reader:
    """How to read a type; the same function for all that JSON has by itself."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _object_reader(kind)
    if origin in (Union, types.UnionType):
        inner = [_reader(one) for one in args if one is not type(None)]
        read = next((one for one in inner if one is not _as_it_is), _as_it_is)
        if read is _as_it_is:
            return read
        return lambda data: None if data is None else read(data)
    if origin is list and (read := _reader(args[0])) is not _as_it_is:
        return lambda data: [read(one) for one in data]
    if origin is dict and (read := _reader(args[1])) is not _as_it_is:
        return lambda data: {key: read(one) for key, one in data.items()}
    return _as_it_is


def _object_reader(kind: type) -> Reader:
    hints = get_type_hints(kind)
    readers = {one.name: _reader(hints[one.name]) for one in fields(kind)}
    needed = {
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING
    }

    def read(data: Any) -> Any:
        if not isinstance(data, dict) or (missing := needed - data.keys()):
            what = sorted(missing)[0] if isinstance(data, dict) else "everything"
            raise EngineError(
                f"the service answered without {what!r} of {kind.__name__}",
                hint="service and command line are of different versions; `weft --version` tells",
            )
        return kind(**{name: one(data[name]) for name, one in readers.items() if name in data})

    return read
