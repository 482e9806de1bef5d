"""Files of this machine: YAML and JSON that people write, and what jobs print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig
from weft.wire.shared_files import open_regular

SUFFIXES = (".yaml", ".yml", ".json")
FILE_VALUES = 1_000_000  # of a file on this machine, such as a cluster of many nodes


def parse_aside(text: str, _report: Callable[[Any], None]) -> Any:
    """The content of someone's job file, as work that is done aside."""
    return parse_yaml(text, "the job file")


def dump_yaml(fields: Any) -> str:
    """Return `fields` as YAML in the style that people write."""
    import yaml

    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, default_flow_style=None)


def load_yaml(path: Path) -> Any:
    """The content; JSON is YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not text in UTF-8") from error
    return parse_yaml(text, str(path), values=FILE_VALUES)


def open_output(path: Path) -> int | None:
    """A handle to read what a job printed; None if it is not there, or is no file of the job."""
    try:
        return open_regular(path)
    except (OSError, WireError):
        return None
