"""The decorator of the values that everything here is made of: frozen, slotted dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass whose instances cannot be changed and have no attributes but its fields."""
    return dataclass(frozen=True, slots=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_by_name(cls: type[T]) -> type[T]:
    """The same, with every field given by its name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)
