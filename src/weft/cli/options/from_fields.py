"""Commands whose options are the fields of a dataclass, declared once for all that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints


def options_from_fields(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each field of its parameters that are dataclasses.

    A field is `Annotated` with Typer's `Option` or `Argument`. One that is a `Sequence` is an
    option that can be repeated.
    """
    own = signature(command, eval_str=True).parameters
    groups = {name: part.annotation for name, part in own.items() if is_dataclass(part.annotation)}
    parts = [
        option
        for name, part in own.items()
        for option in (_options(groups[name]) if name in groups else [part])
    ]

    @wraps(command)
    def expanded(**typed: Any) -> None:
        built = {name: _build(group, typed) for name, group in groups.items()}
        command(**built, **typed)

    parts = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in parts]
    expanded.__signature__ = Signature(parts)  # type: ignore[attr-defined]
    expanded.__annotations__ = {part.name: part.annotation for part in parts}
    return expanded


def _options(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        annotation, default = hints[each.name], each.default
        if _is_sequence(annotation):
            kind, option = get_args(annotation)
            annotation, default = Annotated[list[get_args(kind)[0]] | None, option], None  # type: ignore[misc]
        default = Parameter.empty if default is MISSING else default
        yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _build(group: Any, typed: dict[str, Any]) -> Any:
    hints = get_type_hints(group, include_extras=True)
    values = {each.name: typed.pop(each.name) for each in fields(group)}
    repeated = {name for name in values if _is_sequence(hints[name])}
    return group(
        **{
            name: tuple(value or ()) if name in repeated else value
            for name, value in values.items()
        }
    )


def _is_sequence(annotation: Any) -> bool:
    return get_origin(get_args(annotation)[0]) is Sequence
