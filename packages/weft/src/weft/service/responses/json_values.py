"""Dataclasses to JSON and back, by their fields; both ends of the API use the same ones.

Reading is lenient with fields that are not known, so that an older command line can talk to a
newer service, and strict with those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from weft.base.typed import Reader
from weft.core.errors import EngineError

T = TypeVar("T")


def plain(value: Any) -> dict[str, Any]:
    """The fields of one dataclass; what they hold is left as it is. For `json.dumps(default=)`."""
    kind: Any = type(value)
    names, read = _getter(kind)
    return dict(zip(names, read(value), strict=True))


def read_as(kind: type[T], data: Any) -> T:
    """An object of `kind` from parsed JSON."""
    wanted: Any = kind
    answer: T = _READER.of(wanted)(data)
    return answer


@cache
def _getter(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no part of an answer")
    names = tuple(field.name for field in fields(kind))
    if len(names) > 1:
        return names, attrgetter(*names)
    return names, lambda value: tuple(getattr(value, name) for name in names)


def _missing(kind: type, name: str) -> EngineError:
    return EngineError(
        f"the service answered without {name!r} of {kind.__name__}",
        hint="service and command line are of different versions; compare them with `weft "
        "--version`",
    )


_READER = Reader({}, missing=_missing)
