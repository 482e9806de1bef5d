"""A policy as people name it: its short form, a file that describes it, or a class in a file."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from weft.app.yaml_file import SUFFIXES, load_yaml
from weft.core.errors import InvalidConfig, UnknownName, WeftError
from weft.core.parameters import parameters, read_word, settings
from weft.core.policy import Policy
from weft.core.registry import Described, build, read_spec
from weft.core.spec import PartSpec, parse

PYTHON = ".py:"


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


def build_policy(described: Described) -> Policy:
    """The policy that is described: a registered one, or `FILE.py:CLASS` with its parameters."""
    policy: Policy
    if isinstance(described, str) and PYTHON in described:
        policy = _from_python(described)
    else:
        policy = build("policy", described)
    return policy


def _from_python(text: str) -> Policy:
    """`./mine.py:Mine:patience_h=2`: a class of a file, its fields as parameters."""
    file, _, rest = text.partition(PYTHON)
    path = Path(f"{file}.py").expanduser()
    (written,) = parse(rest)
    name = written.name.text
    part = _classes(path).get(name)
    if part is None:
        raise UnknownName.among("class", name, _classes(path))
    who = f"policy {name!r}"
    known = parameters(part)
    params = {
        key.text: read_word(who, key.text, value, known[key.text][0])
        for key, value in written.params
        if key.text in known
    }
    unknown = {key.text: None for key, _ in written.params if key.text not in known}
    policy: Policy = part(**settings(who, part, {**params, **unknown}))
    return policy


def _classes(path: Path) -> dict[str, type[Any]]:
    """The dataclasses that a file defines."""
    if not path.is_file():
        raise InvalidConfig(f"there is no file {path}", hint="a policy is FILE.py:CLASS")
    module_name = f"weft_policy_file_{path.resolve().as_posix().replace('/', '_')}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise InvalidConfig(f"{path} cannot be imported")
        module = module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[module_name]
            raise InvalidConfig(f"{path} cannot be imported: {error!r}") from error
    return {
        name: one
        for name, one in vars(module).items()
        if isinstance(one, type) and is_dataclass(one) and one.__module__ == module_name
    }
