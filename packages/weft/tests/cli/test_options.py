"""Options that are made from the fields of dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from weft.app.serve.live import Settings
from weft.app.simulate.setup import Setup
from weft.cli.main import COMMANDS
from weft.cli.options.serve import ServeOptions
from weft.cli.options.shared import options_from_fields
from weft.cli.options.simulation import SimulationOptions

OF_THE_COMMAND = {"state", "keep", "default", "limits", "decide_limit_s"}


@dataclass(frozen=True)
class Drawing:
    name: Annotated[str, typer.Argument()]
    size: Annotated[int, typer.Option("--size", "-s")] = 3
    colours: Annotated[Sequence[str], typer.Option("--colour")] = ()


def drawn(*typed: str) -> tuple[Drawing, bool]:
    got: list[Any] = []

    @options_from_fields
    def draw(*, drawing: Drawing, fast: bool = False) -> None:
        got.append((drawing, fast))

    app = typer.Typer()
    app.command()(draw)
    ran = CliRunner().invoke(app, list(typed))
    assert ran.exit_code == 0, ran.output
    result: tuple[Drawing, bool] = got[0]
    return result


def test_what_is_not_typed_has_the_fields_default() -> None:
    assert drawn("tree") == (Drawing("tree"), False)


def test_options_fill_the_fields_and_repeated_ones_are_tuples() -> None:
    typed = drawn("tree", "-s", "5", "--colour", "red", "--colour", "blue", "--fast")

    assert typed == (Drawing("tree", 5, ("red", "blue")), True)


def test_a_simulation_without_options_is_a_setup_without_arguments() -> None:
    assert SimulationOptions("philly").setup("fifo") == Setup("philly", "fifo")


def test_a_service_without_options_has_the_settings_of_none() -> None:
    typed, plain = ServeOptions().settings(), Settings()

    for field in fields(Settings):
        if field.name not in OF_THE_COMMAND:
            assert getattr(typed, field.name) == getattr(plain, field.name), field.name


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_no_command_declares_an_option_twice(entry: Any) -> None:
    command = entry.load()
    for subcommand in getattr(command, "commands", {"": command}).values():
        spellings = [text for option in subcommand.params for text in option.opts]
        assert sorted(set(spellings)) == sorted(spellings)
