"""Where commands that talk to the service print: JSON for machines, or what a person reads."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer
from rich.console import Console

from weft.service.responses.json_values import plain

PIPED = 500  # columns: one line per job


def console() -> Console:
    """The terminal; nothing in job names or logs is taken for markup.

    For a program that reads it, lines are as long as they are.
    """
    wide = PIPED if is_piped() else None
    return Console(highlight=False, markup=False, emoji=False, width=wide)


def is_piped() -> bool:
    """Whether a program reads the output, and no width was given."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def notes() -> Console:
    """Where remarks go that are not the command's output."""
    return Console(highlight=False, markup=False, emoji=False, stderr=True)


def print_json(body: Any) -> None:
    """One JSON document; answers of the service as it gave them."""
    typer.echo(json.dumps(body, default=plain, indent=1))


def write_bytes(chunk: bytes) -> None:
    """A job's output as it is."""
    out = typer.get_binary_stream("stdout")
    out.write(chunk)
    out.flush()


def interactive() -> bool:
    """Whether a person sits in front."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
