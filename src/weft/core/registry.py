"""Names to parts, by entry point: built-ins and plug-ins register the same way.

A part is written `name` or `name:key=value,key=value`; keys are the fields of its dataclass.
Wrappers stand before the policy they wrap, outermost first: `quota:limits=nlp=8|las:by=time`.
Listing names imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args, get_origin, get_type_hints

from weft.core.errors import InvalidConfig, UnknownName, did_you_mean

GROUPS: Mapping[str, str] = {
    "policy": "weft.policies",
    "wrapper": "weft.wrappers",
    "trace": "weft.traces",
    "engine": "weft.engines",
    "perf": "weft.perf",
    "predictor": "weft.predictors",
    "command": "weft.commands",
}


def names(kind: str) -> tuple[str, ...]:
    """Every registered name of `kind`, sorted."""
    return tuple(sorted(_entries(kind)))


def find(kind: str, name: str) -> Any:
    """The object registered as `name`; an unknown name is answered with the closest."""
    entries = _entries(kind)
    if name not in entries:
        raise UnknownName.among(kind, name, entries)
    return entries[name].load()


def build(kind: str, spec: str, **given: object) -> Any:
    """Build the part that `spec` describes: `las:by=time,thresholds=3250/7200`.

    `given` are arguments the caller adds, such as a seed.
    """
    if kind == "policy" and "|" in spec:
        wrapper, _, wrapped = spec.partition("|")
        return build("wrapper", wrapper, inner=build(kind, wrapped, **given))
    name, params = parse(spec)
    part: Any = find(kind, name)
    if not is_dataclass(part):
        if params:
            raise InvalidConfig(f"{kind} {name!r} takes no parameters, got {', '.join(params)}")
        return part(**given)
    make: Any = part
    return make(**settings(f"{kind} {name!r}", make, params), **given)


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Split `name:key=value,key=value`."""
    name, _, rest = spec.partition(":")
    params: dict[str, str] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidConfig(
                f"cannot read {pair!r} in {spec!r}",
                hint="parameters are written name:key=value,key=value",
            )
        params[key.strip()] = value.strip()
    return name.strip(), params


def parameters(part: type) -> dict[str, tuple[Any, Any]]:
    """Field name to (type, default) of a part that users may set."""
    hints = get_type_hints(part)
    return {
        f.metadata.get("name", f.name): (hints[f.name], f.default)
        for f in fields(part)
        if f.init and f.metadata.get("settable", True)
    }


def settings(who: str, part: type, params: Mapping[str, str]) -> dict[str, Any]:
    """Fields of `part` from texts; `who` is named when one cannot be read."""
    known = parameters(part)
    internal = {f.metadata.get("name", f.name): f.name for f in fields(part)}
    values: dict[str, Any] = {}
    for key, text in params.items():
        if key not in known:
            raise InvalidConfig(
                f"{who} has no parameter {key!r}{did_you_mean(key, known)}",
                hint=f"it has {', '.join(sorted(known)) or 'none'}",
            )
        values[internal[key]] = _value(who, key, text, known[key][0])
    return values


@cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def _value(who: str, key: str, text: str, wanted: Any) -> object:
    if get_origin(wanted) is Literal:
        choices = get_args(wanted)
        if text not in choices:
            raise InvalidConfig(
                f"{who}: {key}={text!r} is not one of its choices{did_you_mean(text, choices)}",
                hint=f"choose {' or '.join(choices)}",
            )
        return text
    try:
        return _READERS.get(str(wanted), str)(text)
    except ValueError as error:
        kind = getattr(wanted, "__name__", str(wanted))
        raise InvalidConfig(
            f"{who}: {key}={text!r} is not {_ARTICLES.get(str(wanted), kind)}"
        ) from error


def _boolean(text: str) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split("/") if part)


_READERS: Mapping[str, Callable[[str], object]] = {
    str(bool): _boolean,
    str(int): int,
    str(float): float,
    str(tuple[float, ...]): _floats,
    str(float | None): lambda text: None if text.lower() == "none" else float(text),
    str(int | None): lambda text: None if text.lower() == "none" else int(text),
    str(tuple[str, ...]): lambda text: tuple(part for part in text.split("/") if part),
}
_ARTICLES: Mapping[str, str] = {
    str(bool): "true or false",
    str(int): "a whole number",
    str(float): "a number",
    str(tuple[float, ...]): "numbers joined by '/'",
    str(float | None): "a number or none",
    str(int | None): "a whole number or none",
}
