"""A policy as people name it: its short form, or a file that describes it."""

from __future__ import annotations

from pathlib import Path

from weft.app.yaml_file import SUFFIXES, load_yaml
from weft.core.errors import WeftError
from weft.core.registry import read_spec
from weft.core.spec import PartSpec


def read_policy(text: str) -> str | PartSpec:
    """The description in a .yaml or .json file; any other text as it is."""
    path = Path(text).expanduser()
    if path.suffix not in SUFFIXES:
        return text
    try:
        return read_spec("policy", load_yaml(path))
    except WeftError as error:
        if str(path) in error.what:
            raise
        raise type(error)(f"{path}: {error.what}", hint=error.hint) from error
