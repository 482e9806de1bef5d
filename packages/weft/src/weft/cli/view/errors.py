"""Errors raised on purpose, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from weft.core.errors import EngineError, InvalidConfig, PlanError, WeftError

LONGEST_NAME = 200  # of a file, as an error shows it


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn an error raised on purpose into one line, a hint, and an exit code.

    The same holds for a system error about a file that the user named: the user can fix it.
    """
    try:
        with named_files():
            yield
    except WeftError as error:
        from weft.cli.view.screen import notes

        console = notes()
        console.print("error: ", style="bold red", end="")
        console.print(error.what, soft_wrap=True)
        if error.hint:
            console.print(f"  hint: {error.hint}", soft_wrap=True)
        ours = isinstance(error, (PlanError, EngineError))
        raise typer.Exit(1 if ours else 2) from error


@contextmanager
def named_files() -> Iterator[None]:
    """A system error about a file is a mistake of the user who named it; other errors stay."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.strerror is None:
            raise
        name = str(error.filename)
        shown = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        raise InvalidConfig(f"cannot use {shown!r}: {error.strerror}") from error
