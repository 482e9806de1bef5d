"""Values of declared types from parsed JSON: what a type needs is looked up once, and kept.

Event logs, snapshots, messages between processes and answers of the API are all read by it; each
has a `Reader` of its own that says what is read as it is, and how strictly.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

Step = Callable[[Any], Any]


def as_it_is(data: Any) -> Any:
    """The value that JSON has itself."""
    return data


class Reader:
    """One way of reading.

    `leaves` read types that hold no others; a type that is not among them is left as it is. What
    `also` returns for a type comes before everything else. With `missing`, objects may have fields
    that are unknown, a value of the wrong type is named with its field, and `missing` makes the
    error for a field that is not there; without it, objects have just the fields they need.
    """

    def __init__(
        self,
        leaves: Mapping[Any, Step],
        *,
        also: Callable[[Any], Step | None] = lambda _kind: None,
        missing: Callable[[type, str], Exception] | None = None,
    ) -> None:
        self._leaves, self._also, self._missing = leaves, also, missing
        self._known: dict[Any, Step] = {}

    def of(self, kind: Any) -> Step:
        read = self._known.get(kind)
        if read is None:
            read = self._known[kind] = self._make(kind)
        return read

    def _make(self, kind: Any) -> Step:  # noqa: PLR0911 - one return a type
        if isinstance(kind, NewType):
            return self.of(kind.__supertype__)
        if (own := self._also(kind)) is not None:
            return own
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._or_none([self.of(each) for each in args if each is not type(None)])
        if isinstance(kind, type) and is_dataclass(kind):
            return self._exact(kind) if self._missing is None else self._lenient(kind)
        if origin in (tuple, list, set, frozenset):
            return self._items(origin, args)
        if origin in (dict, Mapping):
            return self._table(*args)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind
        return self._leaves.get(kind, as_it_is)

    def _or_none(self, others: list[Step]) -> Step:
        read = next((each for each in others if each is not as_it_is), as_it_is)
        return read if read is as_it_is else lambda data: None if data is None else read(data)

    def _exact(self, kind: Any) -> Step:
        readers: dict[str, Step] = {}  # filled when the first is read: a type may hold itself

        def read(data: Any) -> Any:
            if not readers:
                readers.update((n, self.of(hint)) for n, hint in get_type_hints(kind).items())
            return kind(**{name: readers[name](item) for name, item in data.items()})

        return read

    def _lenient(self, kind: Any) -> Step:
        readers: dict[str, Step] = {}
        needed = {
            each.name
            for each in fields(kind)
            if each.default is MISSING and each.default_factory is MISSING
        }
        declared = {each.name: each.type for each in fields(kind)}
        missing = self._missing
        assert missing is not None

        def read(data: Any) -> Any:
            if not readers:
                hints = get_type_hints(kind)
                readers.update((name, self.of(hints[name])) for name in declared)
            if not isinstance(data, dict):
                raise missing(kind, "everything")
            if absent := needed - data.keys():
                raise missing(kind, min(absent))
            made = {}
            for name, each in readers.items():
                if name in data:
                    try:
                        made[name] = each(data[name])
                    except (TypeError, ValueError, OverflowError) as error:
                        what = f"{name} is {data[name]!r:.200}, expected {declared[name]}"
                        raise ValueError(what) from error
            return kind(**made)

        return read

    def _items(self, origin: Any, args: tuple[Any, ...]) -> Step:
        if len(args) > 1 and args[1] is not Ellipsis:
            each = [self.of(arg) for arg in args]
            return lambda data: origin(
                read(item) for read, item in zip(each, _listed(data), strict=True)
            )
        read_all = self.of(args[0])
        if read_all is as_it_is:
            return lambda data: origin(_listed(data))
        return lambda data: origin(map(read_all, _listed(data)))

    def _table(self, key: Any, value: Any) -> Step:
        read = self.of(value)
        if key in (int, float):  # JSON knows texts only
            return lambda data: {key(name): read(item) for name, item in _paired(data)}
        return lambda data: {name: read(item) for name, item in _paired(data)}


def _listed(data: Any) -> Any:
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"{data!r:.60} is not a list")
    return data


def _paired(data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise TypeError(f"{data!r:.60} is not a mapping")
    return data.items()


def read_float(data: Any) -> float:
    """A number; texts of numbers too, as JSON has no word for some of them."""
    if type(data) is float:
        return data
    if isinstance(data, bool):
        raise TypeError(f"{data!r} is not of type float")
    return float(data)


def read_whole(data: Any) -> int:
    """An integer."""
    if type(data) is int:
        return data
    raise TypeError(f"{data!r} is not of type int")


def read_text(data: Any) -> str:
    """A text."""
    if type(data) is str:
        return data
    raise TypeError(f"{data!r} is not of type str")


def read_truth(data: Any) -> bool:
    """True or false."""
    if type(data) is bool:
        return data
    raise TypeError(f"{data!r} is not of type bool")


LEAVES: Mapping[Any, Step] = {float: read_float, int: read_whole, str: read_text, bool: read_truth}
