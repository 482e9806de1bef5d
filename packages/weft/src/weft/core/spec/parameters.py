"""Parameters of parts: the fields of a dataclass that users may set, read by their types.

A value comes as a word of a short form (`3250/7200`) or as a JSON value (`[3250, 7200]`); a
JSON text for a field that holds no text is read as the short form is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from math import isnan
from typing import Any, Literal, get_args, get_origin, get_type_hints

from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.spec.part_spec import Word, freeze, unquote
from weft.frozen import frozen


def parameters(part: type) -> dict[str, tuple[Any, Any]]:
    """Name to (type, default) of what users may set."""
    hints = _hints(part)
    return {
        f.metadata.get("name", f.name): (
            hints[f.name],
            f.default if f.default_factory is MISSING else f.default_factory(),
        )
        for f in fields(part)
        if f.init and f.metadata.get("settable", True)
    }


@cache
def _hints(part: type) -> dict[str, Any]:
    return get_type_hints(part)


def field_names(part: type) -> dict[str, str]:
    """Parameter to the field that holds it."""
    return {f.metadata.get("name", f.name): f.name for f in fields(part)}


@cache
def old_names(part: type) -> Mapping[str, str]:
    """Spellings that logs and files may still have, and what each is called now."""
    return {f.metadata["was"]: f.name for f in fields(part) if "was" in f.metadata}


def settings(who: str, part: type, params: Mapping[str, object]) -> dict[str, Any]:
    """Fields of `part` from parameters; `who` is named when one cannot be read."""
    values = read_values(who, part, params)
    field_of = field_names(part)
    return {field_of[key]: value for key, value in values.items()}


def read_values(who: str, part: type, params: Mapping[str, object]) -> dict[str, Any]:
    """JSON values by the types of the parameters they are for."""
    known, now = parameters(part), old_names(part)
    params = {now.get(key, key): value for key, value in params.items()}
    for key in params:
        check_known(who, key, known)
    return {key: read_value(who, key, value, known[key][0]) for key, value in params.items()}


def check_known(who: str, key: str, known: Mapping[str, object], mark: str = "") -> None:
    """Refuse a parameter that is not there; `mark` shows where it was written."""
    if key not in known:
        raise InvalidConfig(
            f"{who} has no parameter {key!r}{did_you_mean(key, known)}{mark}",
            hint=f"it has {', '.join(sorted(known)) or 'none'}",
        )


def read_value(who: str, key: str, value: object, wanted: Any) -> Any:
    """Read one JSON value."""
    reader = _reader_of(wanted)
    try:
        if isinstance(value, str) and not reader.textual:
            return reader.from_word(Word(value, 0, len(value)))
        return reader.from_json(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise _refusal(who, key, value, reader) from error


def read_word(who: str, key: str, word: Word, wanted: Any) -> Any:
    """Read one value of a short form."""
    reader = _reader_of(wanted)
    try:
        return reader.from_word(word)
    except (OverflowError, TypeError, ValueError) as error:
        raise _refusal(who, key, word.text, reader, word.shown()) from error


@frozen
class _Reader:
    """A reader of values of one type; both functions raise ValueError or TypeError."""

    expected: str
    from_word: Callable[[Word], object]
    from_json: Callable[[object], object]
    choices: tuple[str, ...] = ()
    textual: bool = False


def _refusal(who: str, key: str, value: object, reader: _Reader, mark: str = "") -> InvalidConfig:
    close = did_you_mean(value, reader.choices) if isinstance(value, str) else ""
    return InvalidConfig(
        f"{who}: {key}={value!r} is not {reader.expected}{close}{mark}",
        hint=f"choose {' or '.join(reader.choices)}" if reader.choices else "",
    )


def _reader_of(wanted: Any) -> _Reader:
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)

        def choose(value: object) -> object:
            value = str(value).lower() if isinstance(value, bool) else value
            if value not in choices:
                raise ValueError(value)
            return value

        return _Reader(
            "one of its choices", lambda word: choose(unquote(word)), choose, choices, textual=True
        )
    return _READERS.get(str(wanted), _TEXT)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _boolean_word(word: Word) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if word.text.lower() not in known:
        raise ValueError(word.text)
    return known[word.text.lower()]


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _number(value: object) -> float:
    if isinstance(value, str):  # JSON knows no infinity
        return _real(float(value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(value)
    return _real(float(value))


def _real(value: float) -> float:
    if isnan(value):
        raise ValueError(value)
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _items(word: Word) -> list[Word]:
    return [item for item in word.split("/") if item.text]


def _entry(word: Word) -> tuple[str, float]:
    key, value = word.cut("=")
    if value is None or not key.text:
        raise ValueError(word.text)
    return unquote(key), _real(float(value.text))


def _text_entry(word: Word) -> tuple[str, str]:
    key, value = word.cut("=")
    if value is None or not key.text:
        raise ValueError(word.text)
    return unquote(key), unquote(value)


def _optional(reader: _Reader) -> _Reader:
    return _Reader(
        f"{reader.expected} or none",
        lambda word: None if word.text.lower() == "none" else reader.from_word(word),
        lambda value: None if value is None else reader.from_json(value),
    )


def _list(expected: str, reader: _Reader) -> _Reader:
    def from_json(value: object) -> object:
        if not isinstance(value, (list, tuple)):
            raise TypeError(value)
        return tuple(reader.from_json(item) for item in value)

    return _Reader(
        expected, lambda word: tuple(reader.from_word(item) for item in _items(word)), from_json
    )


def _numbers_by_name(value: object) -> object:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return {_string(key): _number(item) for key, item in freeze(value).items()}


def _texts_by_name(value: object) -> object:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return {_string(key): _string(item) for key, item in freeze(value).items()}


_TEXT = _Reader("a text", unquote, _string, textual=True)
_INT = _Reader("a whole number", lambda word: int(word.text), _integer)
_FLOAT = _Reader("a number", lambda word: _real(float(word.text)), _number)
_READERS: Mapping[str, _Reader] = {
    str(bool): _Reader("true or false", _boolean_word, _boolean),
    str(int): _INT,
    str(float): _FLOAT,
    str(str): _TEXT,
    str(int | None): _optional(_INT),
    str(float | None): _optional(_FLOAT),
    str(tuple[float, ...]): _list("numbers joined by '/'", _FLOAT),
    str(tuple[str, ...]): _list("texts joined by '/'", _TEXT),
    str(Mapping[str, str]): _Reader(
        "name=text joined by '/'", lambda word: dict(map(_text_entry, _items(word))), _texts_by_name
    ),
    str(Mapping[str, float]): _Reader(
        "name=number joined by '/'", lambda word: dict(map(_entry, _items(word))), _numbers_by_name
    ),
}
