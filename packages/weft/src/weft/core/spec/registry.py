"""Names to parts, by entry point: built-ins and plug-ins register the same way.

A part is described by a `PartSpec`, by its JSON, or by its short form `name:key=value,key=value`;
keys are the fields of its dataclass. Listing names imports nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from weft.core.errors import InvalidConfig, UnknownName
from weft.core.spec.elsewhere import installed_by, names_elsewhere
from weft.core.spec.parameters import (
    check_known,
    old_names,
    parameters,
    read_values,
    read_word,
    settings,
)
from weft.core.spec.part_spec import PartSpec, Word, WrittenPart, current_name, parse, read_plain

GROUPS: Mapping[str, str] = {
    "policy": "weft.policies",
    "wrapper": "weft.wrappers",
    "trace": "weft.traces",
    "engine": "weft.engines",
    "perf": "weft.perf",
    "predictor": "weft.predictors",
    "command": "weft.commands",
    "order": "weft.orders",
    "size": "weft.sizes",
    "place": "weft.places",
    "share": "weft.shares",
    "admit": "weft.admits",
}
# What a policy can be composed of, in the order in which it decides.
ROLES = ("admit", "order", "size", "place", "share")
Described = str | Mapping[str, Any] | PartSpec


def names(kind: str) -> tuple[str, ...]:
    """Every registered name of `kind`, sorted."""
    return tuple(sorted(_entries(kind)))


def find(kind: str, name: str) -> Any:
    """The object registered as `name`; an unknown name is answered with the closest."""
    entries, name = _entries(kind), current_name(kind, name)
    if name not in entries:
        if package := installed_by(kind, name):
            what = f"the {kind} {name!r} is in {package}, which is not installed"
            raise UnknownName(what, hint=f"pip install {package}")
        raise UnknownName.among(kind, name, entries, also=names_elsewhere(kind))
    return entries[name].load()


def build(kind: str, described: Described, **given: object) -> Any:
    """Build the part that is described: `las:by=time,thresholds=3250/7200`.

    `given` are arguments the caller adds, such as a seed.
    """
    spec = read_spec(kind, described)
    part = _make(kind, spec, given)
    for wrapper in reversed(spec.wrappers):
        part = _make("wrapper", wrapper, {"inner": part})
    return part


@cache
def get_part(role: str, text: str) -> Any:
    """The part of a composition that is described, made once: parts keep nothing."""
    return build(role, text)


def read_spec(kind: str, described: Described) -> PartSpec:
    """The spec that was described: every name known, every value of its parameter's type."""
    if isinstance(described, str):
        if described.lstrip().startswith("{"):
            return read_spec(kind, _json(described))
        return _read_text(kind, described)
    spec = described if isinstance(described, PartSpec) else read_plain(described)
    if spec.wrappers and kind != "policy":
        raise InvalidConfig(f"{kind} {spec.name!r} has wrappers; only a policy can")
    return replace(
        _read_typed(kind, spec),
        wrappers=tuple(_read_typed("wrapper", wrapper) for wrapper in spec.wrappers),
    )


def _json(text: str) -> Mapping[str, Any]:
    try:
        described: Mapping[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        word = Word(text, error.pos, error.pos + 1)
        raise word.point(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from error
    return described


def _read_text(kind: str, text: str) -> PartSpec:
    *around, part = parse(text)
    if around and kind != "policy":
        raise around[0].name.point(f"only a policy can have wrappers, not a {kind}")
    spec = _read_written(kind, part)
    return replace(spec, wrappers=tuple(_read_written("wrapper", wrapper) for wrapper in around))


def _read_written(kind: str, written: WrittenPart) -> PartSpec:
    name = current_name(kind, written.name.text)
    try:
        part = find(kind, name)
    except UnknownName as error:
        raise UnknownName(error.what + written.name.shown(), hint=error.hint) from error
    who = f"{kind} {name!r}"
    known = _parameters(who, part, [key.text for key, _ in written.params])
    now = old_names(part) if known else {}
    read = {}
    for word, value in written.params:
        key = now.get(word.text, word.text)
        check_known(who, key, known, word.shown())
        read[key] = read_word(who, key, value, known[key][0])
    return PartSpec(name, read)


def _read_typed(kind: str, spec: PartSpec) -> PartSpec:
    name = current_name(kind, spec.name)
    part, who = find(kind, name), f"{kind} {name!r}"
    _parameters(who, part, list(spec.params))
    return PartSpec(name, read_values(who, part, spec.params) if spec.params else {})


def _parameters(who: str, part: Any, named: list[str]) -> dict[str, tuple[Any, Any]]:
    if is_dataclass(part) and isinstance(part, type):
        return parameters(part)
    if named:
        raise InvalidConfig(f"{who} takes no parameters, got {', '.join(named)}")
    return {}


def _make(kind: str, spec: PartSpec, given: Mapping[str, object]) -> Any:
    part: Any = find(kind, spec.name)
    values = settings(f"{kind} {spec.name!r}", part, spec.params) if spec.params else {}
    return part(**values, **given)


@cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    entries = _installed().select(group=GROUPS[kind])
    return {current_name(kind, entry.name): entry for entry in entries}


@cache
def _installed() -> Any:
    """All entry points, which are read from every package that is installed."""
    return entry_points()
