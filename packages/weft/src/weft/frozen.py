"""The decorators of the values that everything here is made of: frozen, slotted dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from weft.native import native

T = TypeVar("T")
PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
OFTEN = 64  # values of a class from which on it pays to make them faster


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass whose instances cannot be changed and have no attributes but its fields."""
    own = {*vars(cls)}
    return _finish(dataclass(frozen=True, slots=True)(cls), own)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_by_name(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose fields are all given by name."""
    own = {*vars(cls)}
    return _finish(dataclass(frozen=True, slots=True, kw_only=True)(cls), own)


def _finish(cls: type[T], own: set[str]) -> type[T]:
    """Add methods faster than a dataclass's, unless the class itself defines them in `own`."""
    made: Any = cls
    pickled = own.isdisjoint(PICKLING)
    names = [each.name for each in fields(made)]
    if pickled and len(names) > 1:  # of one alone `attrgetter` gives no tuple
        _pickle_by_slots(made, names)
    plain = type(made) is type and made.__bases__ == (object,) and "__init__" not in own
    if not names or not plain:
        return cls
    if native is not None:
        _make_directly(native, made)
        if pickled and len(names) > 1 and "__post_init__" not in own:
            _pickle_by_making(made, names)
    elif all(each.init for each in fields(made)):
        _init_faster(made, names)
    return cls


def _pickle_by_slots(made: Any, names: list[str]) -> None:
    """Pickled and copied by slots that are found once; dataclasses look for them each time."""
    read, writers = attrgetter(*names), [attrgetter(name)(made).__set__ for name in names]

    def get_state(value: Any) -> tuple[Any, ...]:
        if type(value) is made:
            return read(value)
        return tuple(attrgetter(each.name)(value) for each in fields(value))

    def set_state(value: Any, state: tuple[Any, ...]) -> None:
        if type(value) is made:
            for write, part in zip(writers, state, strict=True):
                write(value, part)
        else:  # a dataclass below this one, with fields of its own
            for each, part in zip(fields(value), state, strict=True):
                object.__setattr__(value, each.name, part)

    made.__getstate__, made.__setstate__ = get_state, set_state


def _pickle_by_making(made: Any, names: list[str]) -> None:
    """Pickled as a call of the class, where such a call is quick and takes every field.

    A class below this one may have more fields: it is pickled by its slots.
    """
    if not all(each.init and not each.kw_only for each in fields(made)):
        return
    read = attrgetter(*names)

    def reduce(value: object, protocol: Any) -> Any:
        if type(value) is made:
            return made, read(value)
        return object.__reduce_ex__(value, protocol)

    made.__reduce_ex__ = reduce


def _make_directly(native: Any, made: Any) -> None:
    """Let compiled code make values: it writes their slots without a call of `__init__`."""
    ordered = sorted(fields(made), key=lambda each: (not each.init, each.kw_only))
    described = tuple(
        (
            each.name,
            each.init,
            each.default is not MISSING,
            each.default,
            None if each.default_factory is MISSING else each.default_factory,
        )
        for each in ordered
    )
    by_position = sum(each.init and not each.kw_only for each in ordered)
    native.make_directly(made, described, by_position, vars(made).get("__post_init__"))


def _init_faster(made: Any, names: list[str]) -> None:
    """Once many were made, let `__init__` write fields without a call for each of them."""
    slow, count = made.__init__, 0

    @wraps(slow)
    def init(self: object, *args: Any, **by_name: Any) -> None:
        nonlocal count
        count += 1
        if count == OFTEN:
            made.__init__ = _write_init(made, names, slow)
        slow(self, *args, **by_name)

    made.__init__ = init


def _write_init(made: Any, names: list[str], slow: Any) -> Callable[..., None]:
    """As `slow` does it, but on a value of a class like this one that is not frozen yet.

    Dataclasses call `object.__setattr__` for each field of a frozen one, which takes two to three
    times as long. A class below this one is left to `slow`.
    """
    given = signature(slow).parameters
    factories = {
        each.name: each.default_factory
        for each in fields(made)
        if each.default_factory is not MISSING
    }
    inside: dict[str, Any] = {f"make_{name}": factory for name, factory in factories.items()}
    inside |= {
        "made": made,
        "slow": slow,
        "open_class": type(made.__name__, (), {"__slots__": made.__slots__}),
        "set_class": vars(object)["__class__"].__set__,
        "left_out": next((given[name].default for name in factories), None),
    }
    named = [name for name in names if given[name].kind is Parameter.KEYWORD_ONLY]
    plain = [name for name in names if name not in named]
    lines = [
        f"def init({', '.join(['self', *plain, *(['*'] if named else []), *named])}):",
        " if type(self) is not made:",
        f"  return slow({', '.join(['self', *plain, *(f'{name}={name}' for name in named)])})",
        " set_class(self, open_class)",
        *(
            f" self.{name} = make_{name}() if {name} is left_out else {name}"
            if name in factories
            else f" self.{name} = {name}"
            for name in names
        ),
        " self.__class__ = made",
        *([" self.__post_init__()"] if "__post_init__" in vars(made) else []),
    ]
    exec("\n".join(lines), inside)  # noqa: S102 - as dataclasses do, from names of fields
    fast: Any = wraps(slow)(inside["init"])
    fast.__defaults__, fast.__kwdefaults__ = slow.__defaults__, slow.__kwdefaults__
    return fast  # type: ignore[no-any-return]
