"""What a YAML or JSON file holds, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig

SUFFIXES = (".yaml", ".yml", ".json")
NESTING, VALUES = 32, 20_000  # of what a person writes


def parse_yaml(text: str, name: str) -> Any:
    """What a text of somebody's holds; references, which can grow without end, are refused.

    So is what is nested too deep or holds too much, before any of it is built.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _count(yaml.parse(text, loader), name)
        return yaml.load(text, loader)  # noqa: S506 - a safe loader, in C where there is one
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, RecursionError) as error:  # a date in month 13, `!!int x`
        raise InvalidConfig(f"{name} has a value that cannot be read: {error}") from error


def _count(events: Iterable[Any], name: str) -> None:
    """Refuse references and what is too large; reading ends where the limit is passed."""
    import yaml

    depth = 0
    for count, event in enumerate(events):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidConfig(f"{name} has YAML references (`*name`)", hint="write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > NESTING:
            raise InvalidConfig(f"{name} is nested more than {NESTING} levels deep")
        if count >= VALUES:
            raise InvalidConfig(f"{name} holds more than {VALUES:,} values")


def dump_yaml(fields: Any) -> str:
    """As a person would write it."""
    import yaml

    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, default_flow_style=None)


def load_yaml(path: Path) -> Any:
    """The content; JSON is YAML."""
    import yaml  # a tenth of what a small simulation takes, and most read no such file

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not text in UTF-8") from error
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{path} is not YAML: {' '.join(str(error).split())}") from error
