"""`weft profile`: how fast a script trains here, at which batch sizes, and beside which others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from weft.cli.job_files.job_file import SHELL, name_of, words_of
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, interactive, notes, print_json
from weft.core.errors import InvalidConfig

if TYPE_CHECKING:
    from weft.app.measure.pairs import PairTable, Script
    from weft.app.measure.script import ScriptProfile

Found = TypeVar("Found")

PAIRS = o.panel("Beside others")


def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="A script that uses weft_train, after `--`.", metavar="COMMAND..."),
    ],
    gpus: Annotated[int, typer.Option("--gpus", "-g", help="How many GPUs to use.", min=1)] = 1,
    each_s: Annotated[
        float, typer.Option("--each", help="Seconds for each batch size.", min=0.1)
    ] = 4.0,
    sizes: Annotated[int, typer.Option(help="The most batch sizes to try.", min=1, max=20)] = 8,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Use CPU slots even if there are GPUs.")
    ] = False,
    beside: Annotated[
        list[str] | None,
        PAIRS(
            "--beside",
            help="Measure on the same GPUs as this command; repeatable.",
            metavar="COMMAND",
        ),
    ] = None,
    every_pair: Annotated[
        bool, PAIRS("--every-pair", help="Also measure pairs without this script.")
    ] = False,
    mps: Annotated[bool, PAIRS("--mps", help="Share GPUs by MPS, not time slices.")] = False,
    name: Annotated[
        list[str] | None,
        PAIRS(
            "--name", help="The `model` of this script's jobs; repeat for each --beside, in order."
        ),
    ] = None,
    out: Annotated[Path | None, o.OUT("--out", help="Also write the JSON here.")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Measure a training script, alone or beside others.

    Runs the script alone for a short time and measures stage times, throughput over batch sizes,
    memory and gradient noise; no service is needed. Doubles the batch size from the script's own to
    the largest it allows. With --beside, measures how fast each script runs on the same GPUs as the
    other, compared with alone. Neither reads nor writes checkpoints.
    """
    from weft.app.measure.pairs import beside as measure_pairs
    from weft.app.measure.script import MeasureSettings
    from weft.app.measure.script import profile as measure
    from weft.cli.view.results import profile_tables

    env = {name: os.environ[name] for name in SHELL if os.environ.get(name)}
    slots = f",slots={gpus}" if cpu else ""
    options = f"warm=false,cpu={_word(cpu)}{slots},mps={_word(mps)}"
    wanted = MeasureSettings(gpus, each_s, sizes, f"local:{options}", env)
    with user_errors():
        scripts = _scripts(command, beside or [], name or [])
        measured: ScriptProfile | PairTable
        if beside:
            measured = _watch(
                lambda progress: measure_pairs(
                    scripts, Path.cwd(), wanted, mps=mps, every_pair=every_pair, progress=progress
                ),
                quiet=as_json,
            )
        else:
            measured = _watch(
                lambda progress: measure(command, Path.cwd(), wanted, progress), quiet=as_json
            )
        if out is not None:
            write(out, measured.as_dict())
    if as_json:
        print_json(measured.as_dict())
    else:
        screen = console()
        screen.print(profile_tables(measured, screen.width))


def _word(flag: bool) -> str:
    return "true" if flag else "false"


def _scripts(command: Sequence[str], others: Sequence[str], names: Sequence[str]) -> list[Script]:
    """Return the scripts to run at the same time; raise InvalidConfig for names that do not fit."""
    from weft.app.measure.pairs import Script

    commands = [tuple(command), *(tuple(words_of(text, "--beside")) for text in others)]
    if names and len(names) != len(commands):
        raise InvalidConfig(
            f"{len(names)} names for {len(commands)} scripts",
            hint="give --name once for the script and once for each --beside, in order",
        )
    called = names or [name_of(words) for words in commands]
    return [Script(model, words) for model, words in zip(called, commands, strict=True)]


def _watch(measure: Callable[[Callable[[str], None]], Found], *, quiet: bool) -> Found:
    """Measure, telling a person who sits in front what goes on."""
    if quiet or not interactive():
        return measure(lambda _: None)
    with notes().status("starting") as status:
        return measure(status.update)


def write(path: Path, measured: Mapping[str, Any]) -> None:
    """Write the measurements as a JSON file."""
    try:
        path.write_text(json.dumps(measured, indent=1) + "\n")
    except OSError as error:
        raise InvalidConfig(f"cannot write {path}: {error.strerror}") from error
