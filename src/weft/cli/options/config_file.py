"""A file with the options of `weft serve`, TOML or YAML, by the same names.

What is given on the command line wins. Names of files in it are relative to the file itself.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.frozen import frozen

USERS = "users"  # a file, or a table in this one
NOT_HERE = ("config", "print_config")


@frozen
class ConfigFile:
    """What a file says, and where."""

    path: Path
    text: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """The file as it is; InvalidConfig says what cannot be read, and in which line."""
        try:
            text = path.read_text(encoding="utf-8")
            content = parse_yaml(text, str(path)) if is_yaml(path) else tomllib.loads(text)
        except OSError as error:
            raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"{path} is not TOML: {error}") from error
        if content is not None and not isinstance(content, Mapping):
            raise InvalidConfig(f"{path} holds no options", hint="such as port = 7878")
        return cls(path, text, content or {})

    def where(self, key: str) -> str:
        """The file, and the line that says this key where it can be found."""
        sign = ":" if is_yaml(self.path) else "="
        wanted = re.compile(
            rf"""\s*["']?{re.escape(key)}["']?\s*{sign}|\s*\[+\s*{re.escape(key)}\b"""
        )
        lines = self.text.splitlines()
        number = next((n for n, line in enumerate(lines, 1) if wanted.match(line)), None)
        return f"{self.path}" if number is None else f"{self.path}:{number}"


@frozen
class Option:
    """What an option takes: values of `kind`, several if it may be repeated, between bounds."""

    kind: type
    several: bool = False
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, annotation: Any) -> Option:
        """As a command declares it."""
        declared, info = get_args(annotation)[:2]
        kind = _without_none(declared)
        several = get_origin(kind) is list
        return cls(get_args(kind)[0] if several else kind, several, info.min, info.max)

    def trouble(self, value: Any) -> str:
        """What is wrong with one value; empty if nothing is."""
        numbers = (int, float) if self.kind is float else self.kind
        wanted = str if self.kind is Path else numbers
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.kind is not bool):
            return f"expected {KINDS[self.kind]}"
        if isinstance(value, (int, float)):
            if self.low is not None and value < self.low:
                return f"expected at least {self.low:g}"
            if self.high is not None and value > self.high:
                return f"expected at most {self.high:g}"
        return ""


KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def options_of(command: Callable[..., Any]) -> dict[str, Option]:
    """Every option that a file may give, by the name of its parameter."""
    hints = get_type_hints(command, include_extras=True)
    declared = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: Option.of(hint) for name, hint in declared.items() if name not in NOT_HERE}


def defaults_of(file: ConfigFile, options: Mapping[str, Option]) -> dict[str, Any]:
    """The file's values as defaults of options; InvalidConfig for what is none."""
    defaults: dict[str, Any] = {}
    for key, value in file.values.items():
        name = str(key).replace("-", "_")
        if name not in options:
            known = [option.replace("_", "-") for option in options]
            close = did_you_mean(str(key), known)
            raise InvalidConfig(
                f"{file.where(str(key))}: there is no option {key!r}{close}",
                hint="`weft serve --help` lists them; write them without the dashes in front",
            )
        if name == USERS and isinstance(value, Mapping):
            defaults[name] = value
        else:
            defaults[name] = check_value(file, str(key), value, options[name])
    return defaults


def check_value(file: ConfigFile, key: str, value: Any, option: Option) -> Any:
    """A value as the option takes it."""
    given = value if option.several and isinstance(value, list) else [value]
    for item in given:
        if trouble := option.trouble(item):
            shown = json.dumps(value, default=str)
            raise InvalidConfig(f"{file.where(key)}: {key} is {shown}, {trouble}")
    if option.kind is Path:
        given = [str(file.path.parent / item) for item in given]
    return given if option.several else given[0]


def _without_none(declared: Any) -> Any:
    kinds = [kind for kind in get_args(declared) if kind is not NoneType]
    return kinds[0] if isinstance(declared, UnionType) else declared


def as_toml(values: Mapping[str, Any]) -> str:
    """Options as a file that could be read; what is not set is left out."""
    return "".join(f"{line}\n" for line in _lines(values))


def _lines(values: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    for key, value in values.items():
        if value not in (None, "") and not isinstance(value, Mapping):
            yield f"{key.replace('_', '-') if not inside else key} = {_value(value)}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            name = f"{inside}{json.dumps(key) if inside else key}"
            if any(not isinstance(item, Mapping) for item in value.values()):
                yield f"\n[{name}]"
            yield from _lines(value, f"{name}.")


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value))


def is_yaml(path: Path) -> bool:
    """Whether a file's name says YAML; TOML otherwise."""
    return path.suffix in (".yaml", ".yml")
