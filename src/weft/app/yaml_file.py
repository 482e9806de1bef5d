"""What a YAML or JSON file holds, with errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.core.errors import InvalidConfig

SUFFIXES = (".yaml", ".yml", ".json")


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
