"""Errors raised on purpose, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from weft.core.errors import EngineError, PlanError, WeftError


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn an error raised on purpose into one line, a hint, and an exit code."""
    try:
        yield
    except WeftError as error:
        from rich.console import Console

        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print("[bold red]error:[/] ", end="")
        console.print(error.what, markup=False)
        if error.hint:
            console.print(f"  hint: {error.hint}", markup=False)
        ours = isinstance(error, (PlanError, EngineError))
        raise typer.Exit(1 if ours else 2) from error
