"""Memory of a policy after it has been saved and loaded, and values compared as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from weft.core.codec.plain_values import decode, encode


def reread(name: str, memory: object) -> object:
    """Memory after it has been saved and loaded."""
    if memory is None:
        return None
    kind = type(memory)
    assert is_dataclass(kind), f"{name} keeps {kind.__name__} as memory, not a dataclass"
    try:
        read = decode(kind, json.loads(json.dumps(encode(memory), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{name}'s memory does not survive JSON: {error}") from error
    read = _with_inner(name, memory, read)
    assert alike(memory, read), f"{name}'s memory does not survive JSON: {read} was {memory}"
    return read


def _with_inner(name: str, memory: Any, read: Any) -> Any:
    """What was read, with the memories of policies inside a wrapper read by their own types."""
    inner = {}
    for f in fields(memory):
        held = getattr(memory, f.name)
        if is_dataclass(held) and not isinstance(getattr(read, f.name), type(held)):
            inner[f.name] = reread(name, held)
        elif isinstance(held, Mapping) and any(map(is_dataclass, held.values())):
            inner[f.name] = {
                k: reread(name, v) if is_dataclass(v) else getattr(read, f.name)[k]
                for k, v in held.items()
            }
    return replace(read, **inner) if inner else read


def alike(value: Any, other: Any) -> bool:
    """Equality that looks into arrays, and minds types where JSON would blur them."""
    if isinstance(value, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(value, other, equal_nan=True)
    if is_dataclass(value):
        names = [f.name for f in fields(value)]
        return type(value) is type(other) and all(
            alike(getattr(value, name), getattr(other, name)) for name in names
        )
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(alike(value[k], other[k]) for k in value)
    if isinstance(value, (tuple, list)) and isinstance(other, (tuple, list)):
        pairs = zip(value, other, strict=False)
        return len(value) == len(other) and all(alike(a, b) for a, b in pairs)
    return bool(value == other) or (value != value and other != other)
