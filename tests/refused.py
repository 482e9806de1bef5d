"""Tests of texts that must be refused, each with what the error says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import pytest


def refused(
    error: type[Exception], cases: Mapping[str, str]
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """For each `text` of the cases the test must raise `error`, with words that match the case."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        @wraps(test)
        def must_refuse(why: str, **given: Any) -> None:
            with pytest.raises(error, match=why):
                test(**given)

        own = signature(test)
        words = Parameter("why", Parameter.KEYWORD_ONLY)
        must_refuse.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*own.parameters.values(), words]
        )
        marked: Callable[..., None] = pytest.mark.parametrize(("text", "why"), cases.items())(
            must_refuse
        )
        return marked

    return decorate
