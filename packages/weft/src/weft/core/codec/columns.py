"""Many dataclasses of one kind as columns of plain values, and back: fast, small, no pickle.

A column whose values are all the same is written once. Fields that a file does not have take their
defaults, fields that this version does not know are skipped, so that old files stay readable.
"""

from __future__ import annotations

import base64
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NewType, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig
from weft.core.state.cells import Floats

T = TypeVar("T")
PLAIN = (str, int, float, bool)


def pack(kind: type[T], things: Sequence[T]) -> dict[str, Any]:
    """Columns by field; `kind` is a dataclass."""
    packed: dict[str, Any] = {"count": len(things)}
    alike = len(set(map(id, things))) == 1  # such as a default that all of them have
    for name, hint in _fields(cast(Any, kind)):
        value_of = attrgetter(name)
        column = [value_of(things[0])] * len(things) if alike else [*map(value_of, things)]
        packed[name] = _pack_column(hint, column)
    return packed


def unpack(kind: type[T], packed: Mapping[str, Any]) -> list[T]:
    """The objects that `pack` made columns of."""
    return [*_unpack_rows(kind, packed)]


def _unpack_rows(kind: type[T], packed: Mapping[str, Any]) -> Iterable[T]:
    """The objects of packed columns, one by one; one object, repeated, where all are alike."""
    count = packed["count"]
    columns: list[Iterable[Any]] = []
    for name, hint in _fields(cast(Any, kind)):
        if name in packed:
            columns.append(_unpack_column(hint, packed[name], count))
        else:
            columns.append(repeat(_default(kind, name), count))
    if count and all(isinstance(column, repeat) for column in columns):
        return repeat(_make(kind, columns, count, 1)[0], count)
    return _make(kind, columns, count, count)


def pack_floats(values: Floats) -> dict[str, Any]:
    """An array, bit by bit."""
    data = base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()
    return {"shape": list(values.shape), "floats": data}


def unpack_floats(packed: Mapping[str, Any]) -> Floats:
    """The numbers that `pack_floats` made plain."""
    data = base64.b64decode(packed["floats"])
    return np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(packed["shape"])


def _pack_column(hint: Any, column: list[Any]) -> Any:
    if not column:
        return []
    part, optional = _part(hint)
    if part is not None and not optional:
        return pack(part, column)
    if part is not None:
        there = [i for i, value in enumerate(column) if value is not None]
        return {"at": there, "of": pack(part, [column[i] for i in there])}
    first = column[0]
    if column.count(first) == len(column) and len(set(map(type, column))) == 1:
        return {"all": encode(first)}
    return column if _as_is(hint) else [*map(dict if _is_table(hint) else encode, column)]


def _unpack_column(hint: Any, packed: Any, count: int) -> Iterable[Any]:
    if not count:
        return ()
    part, optional = _part(hint)
    if part is not None and not optional:
        return _unpack_rows(part, packed)
    if part is not None:
        column: list[Any] = [None] * count
        for i, value in zip(packed["at"], _unpack_rows(part, packed["of"]), strict=True):
            column[i] = value
        return column
    if isinstance(packed, dict):
        return repeat(decode(hint, packed["all"]), count)
    if len(packed) != count:
        raise InvalidConfig(f"a column has {len(packed)} values, not {count}")
    read = _reader(hint)
    return cast("list[Any]", packed) if read is None else map(read, packed)


def _make(kind: type[T], columns: list[Iterable[Any]], count: int, first: int) -> list[T]:
    """Objects from the first rows of columns.

    Those that are alike are one object, where they can be compared.
    """
    if not count:
        return []
    rows = list(zip(*columns, strict=False)) if columns else [()] * count
    if len(rows) != count:
        raise InvalidConfig(f"{kind.__name__}: {len(rows)} rows, not {count}")
    del rows[first:]
    if names := _keywords(cast(Any, kind)):
        return [kind(**dict(zip(names, row, strict=True))) for row in rows]
    try:
        hash(rows[0])
    except TypeError:
        return [kind(*row) for row in rows]
    known: dict[Any, T] = {}
    made = []
    for row in rows:
        try:
            thing = known.get(row)
            if thing is None:
                thing = known[row] = kind(*row)
        except TypeError:  # another row holds something that cannot be hashed
            thing = kind(*row)
        made.append(thing)
    return made


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, _bare(hints[f.name])) for f in fields(kind))


@cache
def _keywords(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass that takes some by name alone; else none."""
    known = fields(kind)
    return tuple(f.name for f in known) if any(f.kw_only for f in known) else ()


def _bare(hint: Any) -> Any:
    return hint.__supertype__ if isinstance(hint, NewType) else hint


def _default(kind: type, name: str) -> Any:
    field: Field[Any] = cast(Any, kind).__dataclass_fields__[name]
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise InvalidConfig(f"a {kind.__name__} needs {field.name!r}, which is not in the file")


@cache
def _is_plain(hint: Any) -> bool:
    """True if JSON has the very type: numbers, texts, truths, or None."""
    if get_origin(hint) in (Union, types.UnionType):
        return all(_is_plain(_bare(part)) for part in get_args(hint))
    return hint is type(None) or hint in PLAIN


@cache
def _as_is(hint: Any) -> bool:
    """True if a value is written without looking into it."""
    hint = _unless_none(hint)
    flat = [part for part in get_args(hint) if part is not Ellipsis]
    return _is_plain(hint) or (get_origin(hint) is tuple and all(map(_is_plain, flat)))


@cache
def _is_table(hint: Any) -> bool:
    return get_origin(hint) in (dict, Mapping) and all(map(_is_plain, get_args(hint)[1:]))


@cache
def _reader(hint: Any) -> Callable[[Any], Any] | None:
    """A function that makes a value of what was read; None where that is the value."""
    if _is_plain(hint) or (_is_table(hint) and get_args(hint)[0] is str):
        return None
    bare = _unless_none(hint)
    if _as_is(bare):
        return tuple if bare is hint else lambda values: None if values is None else tuple(values)
    if isinstance(bare, type) and issubclass(bare, Enum) and bare is hint:
        return bare
    return partial(decode, hint)


@cache
def _part(hint: Any) -> tuple[Any, bool]:
    """The dataclass that a hint asks for, and whether it may be missing; None of any other."""
    bare = _unless_none(hint)
    if isinstance(bare, type) and is_dataclass(bare):
        return bare, bare is not hint
    return None, False


@cache
def _unless_none(hint: Any) -> Any:
    """`X` of `X | None`; any other hint itself."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = [_bare(part) for part in get_args(hint) if part is not type(None)]
    return rest[0] if len(rest) == 1 else hint
