"""Commands that are imported when they are run or asked for their own help.

`weft --help` shows what the table says about each; only plug-ins are imported for it, as theirs is
not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_from_info
from typer.models import CommandInfo

from weft.core.spec.registry import find, names
from weft.frozen import frozen

PLUGINS = "Plug-ins"
NO_WORDS: Mapping[str, str] = {}


class Panel(NamedTuple):
    """A group of commands: its title in the help, and the folder of its modules."""

    title: str
    folder: str


@frozen
class CommandEntry:
    """One line of the table of commands.

    `summary` is the first line of its help. `where` is `module:name` in the folder of its panel,
    of a function or of a Typer that groups several; by default both are the command's name.
    """

    panel: Panel
    name: str
    summary: str
    where: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        own = self.name.replace("-", "_")
        module, _, name = (self.where or f"{own}:{own}").partition(":")
        command = getattr(import_module(f"weft.cli.commands.{self.panel.folder}.{module}"), name)
        return build(self.name, command, self.panel.title, self.settings)

    def placeholder(self) -> TyperCommand:
        """Return what a list of commands shows of this one."""
        return TyperCommand(self.name, help=self.summary, rich_help_panel=self.panel.title)


def build(name: str, command: Any, panel: str, settings: Mapping[str, Any] | None = None) -> Any:
    """A command from a function, or a group of them from a Typer."""
    if isinstance(command, typer.Typer):
        group = get_command(command)
        group.name = name
        return group
    info = CommandInfo(
        name, callback=command, context_settings=dict(settings or {}), rich_help_panel=panel
    )
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")


class LazyGroup(TyperGroup):
    """The commands of a table, and those that plug-ins register as `weft.commands`."""

    table: tuple[CommandEntry, ...] = ()
    aliases: Mapping[str, str] = NO_WORDS
    meanings: Mapping[str, str] = NO_WORDS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = {entry.name: entry for entry in self.table}
        self.commands.update({name: entry.placeholder() for name, entry in self._entries.items()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        """Every name, those of plug-ins last."""
        return [*self._entries, *(name for name in names("command") if name not in self._entries)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """A placeholder, or a plug-in's own command; None where there is none of that name."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name not in names("command"):
            return None
        self.commands[cmd_name] = build(cmd_name, find("command", cmd_name), PLUGINS)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that was typed, imported now."""
        word = args[0]
        if self.get_command(ctx, word) is None:
            if word in self.meanings:
                ctx.fail(f"there is no command {word!r}: {self.meanings[word]}")
            args = [self.aliases.get(word, word), *args[1:]]
        name, command, rest = super().resolve_command(ctx, args)
        if name in self._entries:
            command = self._entries[name].load()
        return name, command, rest

    def load_all(self) -> dict[str, Any]:
        """Every command of the table by name, imported: for those who document or check them."""
        self.commands.update({entry.name: entry.load() for entry in self.table})
        return {entry.name: self.commands[entry.name] for entry in self.table}
