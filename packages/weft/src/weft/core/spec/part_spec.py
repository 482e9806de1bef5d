"""A part by name, with its parameters: what logs store and programs exchange.

    PartSpec("las", {"by": "time"}, wrappers=(PartSpec("quota", {"limits": {"nlp": 8.0}}),))

People write the short form, `quota:limits=nlp=8|las:by=time`: wrappers before the part they
wrap, outermost first, each `name:key=value,key=value`; items of a list or mapping are joined by
`/`. What holds one of these marks stands in double quotes, as in JSON. `parse` is the only
reader of the short form, and what it refuses it points at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

FIELDS = ("name", "params", "wrappers")
INFINITE = ("inf", "-inf")
# Wrappers by the names they had before, which users may type and logs may have.
RENAMED: Mapping[str, str] = {"firm": "no_preempt", "spare": "skip_failing"}


@frozen
class PartSpec:
    """A part by name.

    Parameters are JSON values, with tuples for lists; wrappers outermost first. Parameters that are
    not given have their default.
    """

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[PartSpec, ...] = ()

    @property
    def text(self) -> str:
        """The short form, which reads back as an equal spec."""
        around = "".join(f"{wrapper.text}|" for wrapper in self.wrappers)
        pairs = ",".join(f"{key}={write_value(value)}" for key, value in self.params.items())
        return f"{around}{self.name}:{pairs}" if pairs else f"{around}{self.name}"

    def inside(self, *wrappers: PartSpec) -> PartSpec:
        """Return the spec with more wrappers around it."""
        return replace(self, wrappers=(*wrappers, *self.wrappers))

    def without(self, *names: str) -> PartSpec:
        """Return the spec without its outermost wrappers that have one of these names."""
        kept = next(
            (
                i
                for i, wrapper in enumerate(self.wrappers)
                if current_name("wrapper", wrapper.name) not in names
            ),
            len(self.wrappers),
        )
        return replace(self, wrappers=self.wrappers[kept:])


@frozen
class Word:
    """A stretch of a text, and where in it it stands."""

    whole: str
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.whole[self.start : self.end]

    def strip(self) -> Word:
        """Return the word without the spaces around it."""
        text = self.text
        start = self.start + len(text) - len(text.lstrip())
        return Word(self.whole, start, max(start, self.end - len(text) + len(text.rstrip())))

    def split(self, mark: str) -> list[Word]:
        """The words between `mark`s, those within quotes apart."""
        ends = [at for at in _outside_quotes(self) if self.whole[at] == mark]
        starts = [self.start, *(at + 1 for at in ends)]
        return [
            Word(self.whole, start, end).strip()
            for start, end in zip(starts, [*ends, self.end], strict=True)
        ]

    def cut(self, mark: str) -> tuple[Word, Word | None]:
        """The words before and after the first `mark`; None for the second where there is none."""
        for at in _outside_quotes(self):
            if self.whole[at] == mark:
                before, after = Word(self.whole, self.start, at), Word(self.whole, at + 1, self.end)
                return before.strip(), after.strip()
        return self.strip(), None

    def point(self, what: str, hint: str = "") -> InvalidConfig:
        """An error with the text and a mark under this word."""
        return InvalidConfig(what + self.shown(), hint=hint)

    def shown(self) -> str:
        """The text with this word underlined, on lines of their own; nothing if it is all."""
        if self.text == self.whole:
            return ""
        text = "".join(char if char.isprintable() else "?" for char in self.whole)
        return f"\n  {text}\n  {' ' * self.start}{'^' * max(1, self.end - self.start)}"


@frozen
class WrittenPart:
    """One part as it was written: its name, and each key with its value."""

    name: Word
    params: tuple[tuple[Word, Word], ...]


def current_name(kind: str, name: str) -> str:
    """The name of a part today; another one only for a wrapper that was renamed."""
    return RENAMED.get(name, name) if kind == "wrapper" else name


def parse(text: str) -> tuple[WrittenPart, ...]:
    """The parts of a short form: wrappers, then what they wrap."""
    return tuple(map(_parse_part, Word(text, 0, len(text)).split("|")))


def read_plain(data: object) -> PartSpec:
    """A spec from its JSON, or from a short form as old logs have it.

    Nothing is looked up, so parts that are not installed can be read; values of a short form
    stay texts until the part itself is known.
    """
    if isinstance(data, str):
        parts = [
            PartSpec(written.name.text, {key.text: value.text for key, value in written.params})
            for written in parse(data)
        ]
        return replace(parts[-1], wrappers=tuple(map(_rename_wrapper, parts[:-1])))
    return _read_fields(data, "")


def unquote(word: Word) -> str:
    """The text that a word stands for."""
    if not word.text.startswith('"'):
        return word.text
    try:
        text = json.loads(word.text)
    except ValueError as error:
        raise word.point("this is not one quoted text", 'for example "a,b"') from error
    return str(text)


def freeze(value: object) -> Any:
    """A JSON value with tuples for lists; JSON knows no infinity, which is written as a text."""
    if isinstance(value, Mapping):
        return {str(key): freeze(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    return float(value) if value in INFINITE else value


def write_value(value: object) -> str:
    """A value as the short form has it."""
    if isinstance(value, Mapping):
        pairs = ((_item(str(key), "/="), _part(item)) for key, item in value.items())
        return "/".join(f"{key}={item}" for key, item in pairs)
    if isinstance(value, (tuple, list)):
        return "/".join(map(_part, value))
    return _scalar(value)


def _part(value: object) -> str:
    return _item(value, "/") if isinstance(value, str) else _scalar(value)


def _parse_part(part: Word) -> WrittenPart:
    name, rest = part.cut(":")
    if not name.text:
        raise name.point("a name is missing", "write name:key=value, wrappers before it with |")
    params: list[tuple[Word, Word]] = []
    for pair in rest.split(",") if rest is not None else ():
        if not pair.text:
            continue
        key, value = pair.cut("=")
        if value is None or not key.text:
            raise pair.point(
                f"cannot read {pair.text!r}", "parameters are written name:key=value,key=value"
            )
        if any(key.text == known.text for known, _ in params):
            raise key.point(f"{key.text!r} is there twice", "name every parameter once")
        params.append((key, value))
    return WrittenPart(name, tuple(params))


def _read_fields(data: object, where: str) -> PartSpec:
    if not isinstance(data, Mapping):
        raise InvalidConfig(
            f"{where or 'a part'} is {data!r}, expected a name or fields",
            hint='for example {"name": "las", "params": {"by": "time"}}',
        )
    if unknown := sorted(set(map(str, data)) - set(FIELDS)):
        raise InvalidConfig(
            f"{where or 'a part'} has no field {unknown[0]!r}", hint=f"it has {', '.join(FIELDS)}"
        )
    name, params, wrappers = data.get("name"), data.get("params", {}), data.get("wrappers", ())
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"{_field(where, 'name')} is {name!r}, expected a text")
    if not isinstance(params, Mapping):
        raise InvalidConfig(
            f"{_field(where, 'params')} is {params!r}, expected fields",
            hint='for example {"by": "time"}',
        )
    if not isinstance(wrappers, (list, tuple)) or (where and wrappers):
        raise InvalidConfig(
            f"{_field(where, 'wrappers')} is {wrappers!r}, expected "
            + ("nothing: wrappers stand in one list" if where else "a list")
        )
    around = (_wrapper(wrapper, f"wrappers[{i}]") for i, wrapper in enumerate(wrappers))
    return PartSpec(name, freeze(params), tuple(around))


def _wrapper(data: object, where: str) -> PartSpec:
    spec = PartSpec(data) if isinstance(data, str) else _read_fields(data, where)
    return _rename_wrapper(spec)


def _rename_wrapper(spec: PartSpec) -> PartSpec:
    return replace(spec, name=current_name("wrapper", spec.name))


def _field(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _outside_quotes(word: Word) -> Iterator[int]:
    """Positions of a word that are not within double quotes."""
    at, opened = word.start, None
    while at < word.end:
        char = word.whole[at]
        if opened is not None:
            at += char == "\\"
            opened = None if char == '"' else opened
        elif char == '"':
            opened = at
        else:
            yield at
        at += 1
    if opened is not None:
        raise Word(word.whole, opened, opened + 1).point("this quote is not closed")


def _scalar(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return _word(str(value))


def _item(text: str, marks: str) -> str:
    return _word(text, marks) or '""'


def _word(text: str, marks: str = "") -> str:
    """A text as it is, or in quotes where it holds marks."""
    plain = text.isprintable() and text == text.strip() and not set(text) & {*'",|', *marks}
    return text if plain else json.dumps(text, ensure_ascii=False)
