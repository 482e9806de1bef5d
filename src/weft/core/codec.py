"""Values to JSON and back, by their types: event logs, saved plans and policy memory.

Fields at their default are left out, so that logs stay small and old logs stay readable.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.core.errors import InvalidConfig, UnreadableEvent, WeftError
from weft.core.events import EVENTS, Event, Reported
from weft.core.report import Report
from weft.core.spec import PartSpec, read_plain

# Fields that older logs have and nothing reads any more.
RETIRED: Mapping[str, frozenset[str]] = {"Decided": frozenset({"asleep"})}
_BY_NAME = {kind.__name__: kind for kind in EVENTS}


def event_line(at: float, event: Event) -> str:
    """One line of an event log."""
    body = encode(event)
    return json.dumps({"at": at, "event": type(event).__name__, **body}, separators=(",", ":"))


def readable_line(at: float, event: Event) -> str:
    """The line of an event; UnreadableEvent unless reading it gives the same event."""
    try:
        line = event_line(at, event)
        same = read_event(line) == (at, event)
    except (WeftError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableEvent(f"{event!r:.200} cannot be written down: {error}") from error
    if not same:
        raise UnreadableEvent(f"{event!r:.200} would not be read as it is")
    return line


def read_event(line: str) -> tuple[float, Event]:
    """What `event_line` wrote; InvalidConfig for anything else."""
    try:
        return _read_event(json.loads(line))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidConfig(f"{line[:200]!r} is no event: {error!r}") from error


def _read_event(record: dict[str, Any]) -> tuple[float, Event]:
    at, name = float(record.pop("at")), record.pop("event")
    if name not in _BY_NAME:
        raise InvalidConfig(f"no event is called {name!r}", hint="the log is of a newer version?")
    for gone in RETIRED.get(name, ()):
        record.pop(gone, None)
    if "values" in record and _BY_NAME[name] is Reported:
        record["report"] = Report.read(record.pop("values"), old=True).values()
    event: Event = decode(_BY_NAME[name], record)
    return at, event


def encode(value: Any) -> Any:  # noqa: PLR0911 - one return a type
    """Plain JSON values of a dataclass and whatever it holds."""
    if isinstance(value, Report):
        return encode(value.values())
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: encode(held)
            for name, default in _defaults(type(value))
            if not _same(held := getattr(value, name), default)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray):
        return [encode(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, data: Any) -> Any:  # noqa: PLR0911 - one return a type
    """A value of type `kind` from what `encode` made of it."""
    if isinstance(kind, NewType):
        kind = kind.__supertype__
    if kind is PartSpec:
        return read_plain(data)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else decode(next(a for a in args if a is not type(None)), data)
    if kind is Report:
        return Report.read(data)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: decode(hints[name], item) for name, item in data.items()})
    if origin is np.ndarray:
        return np.array(data, dtype=float)
    if origin in (tuple, list):
        return origin(_items(args, data))
    if origin in (dict, Mapping):
        return {_key(args[0], key): decode(args[1], item) for key, item in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return _scalar(kind, data)


def _scalar(kind: Any, data: Any) -> Any:
    """A number, text or truth of exactly the type that was promised."""
    if kind is float and not isinstance(data, bool):
        return float(data)
    if kind is int and isinstance(data, float) and data.is_integer():
        return int(data)
    if (kind in (int, bool, str) and type(data) is not kind) or kind is float:
        raise TypeError(f"{data!r} is not of type {kind.__name__}")
    return data


def _items(args: tuple[Any, ...], data: list[Any]) -> Iterator[Any]:
    """Each item by its own type, or all by the one there is."""
    one_each = len(args) > 1 and args[1] is not Ellipsis
    kinds = args if one_each else (args[0],) * len(data)
    return (decode(kind, item) for kind, item in zip(kinds, data, strict=True))


def _key(kind: Any, key: str) -> Any:
    """A key as it was: JSON knows texts only."""
    return kind(key) if kind in (int, float) else key


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    pairs = []
    for f in fields(kind):
        factory = f.default_factory
        pairs.append((f.name, factory() if factory is not MISSING else f.default))
    return tuple(pairs)


def _same(held: Any, default: Any) -> bool:
    if default is MISSING or type(held) is not type(default):
        return False
    if isinstance(held, np.ndarray):
        return np.array_equal(held, default)
    return bool(held == default)
