"""The decorators of the values that everything here is made of: frozen, slotted dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass whose instances cannot be changed and have no attributes but its fields."""
    return _with_state(dataclass(frozen=True, slots=True)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_by_name(cls: type[T]) -> type[T]:
    """The same, with every field given by its name."""
    return _with_state(dataclass(frozen=True, slots=True, kw_only=True)(cls))


def _with_state(cls: type[T]) -> type[T]:
    """Pickled and copied by slots that are found once; dataclasses look for them each time."""
    made: Any = cls
    names = [each.name for each in fields(made)]
    if len(names) > 1:  # of one alone `attrgetter` gives no tuple
        read, writers = attrgetter(*names), [attrgetter(name)(made).__set__ for name in names]

        def set_state(value: T, state: tuple[Any, ...]) -> None:
            for write, part in zip(writers, state, strict=True):
                write(value, part)

        made.__getstate__ = lambda value: read(value)
        made.__setstate__ = set_state
    return cls
