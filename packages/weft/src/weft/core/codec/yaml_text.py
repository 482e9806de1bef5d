"""YAML that anyone may have written: bounded, plain values only, errors with a line.

Everything that reads YAML reads it here. Dates stay the text they are, as in an environment
variable `A: 2024-01-01`; references, tags other than the plain ones, deep nesting and too many
values are refused before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from weft.core.errors import InvalidConfig

NESTING, VALUES = 32, 20_000  # more than a person writes
_TAG = "tag:yaml.org,2002:"
_NAMES = ("null", "bool", "int", "float", "str", "seq", "map")
_PLAIN = frozenset(f"{_TAG}{name}" for name in _NAMES)


def parse_yaml(text: str, name: str, values: int = VALUES) -> Any:
    """The value that `text` holds; raises InvalidConfig that names `name` and the line."""
    import yaml  # a tenth of what a small simulation takes, and most read no such file

    try:
        _count(yaml.parse(text, _loader()), name, values)
        return yaml.load(text, _loader())  # noqa: S506 - made of a safe loader
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be understood"
        where = _at(getattr(error, "problem_mark", None))
        raise InvalidConfig(f"{name}{where}: not YAML: {problem}") from error


def _count(events: Iterable[Any], name: str, values: int) -> None:
    """Refuse references and what is too large; reading ends where a limit is passed."""
    import yaml

    depth = 0
    for count, event in enumerate(events):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidConfig(
                f"{name}{_at(event.start_mark)}: a YAML reference (`*name`)", hint="write it out"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > NESTING:
            raise InvalidConfig(
                f"{name}{_at(event.start_mark)}: nested more than {NESTING} levels deep"
            )
        if count > values:
            raise InvalidConfig(f"{name} holds more than {values:,} values")


def _at(mark: Any) -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


@lru_cache(maxsize=1)
def _loader() -> Any:
    """A safe loader, in C where there is one, that builds plain values alone."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class PlainLoader(base):  # type: ignore[misc]
        """Text, numbers, truth values, lists and mappings."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - as its base declares it
            first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            """One value; a number out of range or a tag of another kind is an error of its line."""
            if node.tag not in _PLAIN:
                raise _refuse(node, f"the tag {node.tag.replace(_TAG, '!!')} is not supported here")
            try:
                return super().construct_object(node, deep)
            except (ValueError, OverflowError, LookupError) as error:  # `!!int ''`, `!!bool maybe`
                kind = node.tag.removeprefix(_TAG)
                raise _refuse(node, f"{str(node.value)[:40]!r} is not a valid {kind}") from error

    return PlainLoader


def _refuse(node: Any, problem: str) -> Exception:
    from yaml.constructor import ConstructorError

    return ConstructorError(None, None, problem, node.start_mark)
