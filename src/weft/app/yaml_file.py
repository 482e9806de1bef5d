"""What a YAML or JSON file holds, with errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig

SUFFIXES = (".yaml", ".yml", ".json")


def parse_yaml(text: str, name: str) -> Any:
    """What a text of somebody's holds; references, which can grow without end, are refused."""
    import yaml

    try:
        if any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(text, yaml.SafeLoader)):
            raise InvalidConfig(f"{name} has YAML references (`*name`)", hint="write it out")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{name} is not YAML: {' '.join(str(error).split())}") from error


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
