"""`weft serve`: the scheduler as a service."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.app.serve.own_unit import install
from weft.cli.options.serve import ServeOptions
from weft.cli.options.shared import options_from_fields
from weft.cli.view.errors import user_errors
from weft_client.own_state import HERE, publish_address, running_url, state_folder, user_folder

if TYPE_CHECKING:
    from weft.app.serve.standby import Standby

DAYS_KEPT = 30
FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
USERS = "weft.users"  # a table of users in the file of --config


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a file's values be the defaults of all options."""
    if path is not None:
        with user_errors():
            from weft.cli.options.serve import ConfigFile, defaults_of, options_of

            defaults = defaults_of(ConfigFile.read(path), options_of(serve))
            if isinstance(defaults.get("users"), Mapping):
                from weft.engines.machine.users import users_of

                users_of(defaults["users"], str(path))
                context.meta[USERS] = defaults.pop("users")
            context.default_map = defaults
    return path


@options_from_fields
def serve(
    *,
    context: typer.Context,
    config: Annotated[  # noqa: ARG001 - read before all others
        Path | None,
        typer.Option(
            help="Read these options from a TOML or YAML file; options given here override it.",
            metavar="FILE",
            callback=read_config,
            is_eager=True,
        ),
    ] = None,
    options: ServeOptions,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Wait while another service leads, and take over when it stops."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log decisions.")] = False,
    log_folder: Annotated[
        Path | None,
        typer.Option(help="Also log to this folder, one file per day.", metavar="FOLDER"),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print all options as a file for --config, and exit."),
    ] = False,
    install: Annotated[
        bool,
        typer.Option(
            "--install",
            help="Write a systemd unit of your own that serves with these options, and exit.",
        ),
    ] = False,
) -> None:
    """Run the scheduler service: REST API, events, metrics.

    Jobs keep running when the service exits; it finds them again when it starts with the same
    --state.
    """
    table = context.meta.get(USERS) if options.users is None else None
    if print_config or install:
        from weft.cli.options.serve import NOT_HERE, as_toml

        given = {
            name: value.absolute() if isinstance(value, Path) else value
            for name, value in {**context.params, "state": options.state or state_folder()}.items()
            if name not in NOT_HERE
        }
        text = as_toml({**given, "users": given["users"] or table})
        if install:
            _install(text)
        else:
            typer.echo(text, nl=False)
        return
    with user_errors():
        from weft.core.errors import InvalidConfig

        try:
            from weft.service.main import serve as run
        except ModuleNotFoundError as error:
            if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
                raise
            raise InvalidConfig(
                f"the service needs {error.name}", hint="pip install 'weft[serve]'"
            ) from error
        level = logging.INFO if verbose else logging.WARNING
        logging.basicConfig(level=level, format=FORMAT)
        if log_folder is not None:
            logging.getLogger().addHandler(daily_log(log_folder))
        settings = options.settings(table)
        folder = options.state or state_folder()
        if not standby and (running := running_url(folder)):
            raise InvalidConfig(
                f"your service with its state in {folder} is running already, at {running}",
                hint="`weft jobs` finds it; for a second service, give both --state and --port",
            )
        turn = _wait_for_turn(folder, options.database) if standby else None
        with ExitStack() as address:

            def ready(url: str) -> None:
                if turn is not None:
                    turn.release()
                address.enter_context(publish_address(folder, url))
                announce(url, folder, named=options.state is not None)

            run(settings, ready=ready, invite=announce_joining)
        end_now()


def end_now() -> None:
    """Exit with 0: all is closed, and on a busy machine Python clears its memory for seconds."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _install(options: str) -> None:
    with user_errors():
        config, unit, switch = install(options)
    typer.echo(f"wrote the options to {config} and {unit}; this switches it on:\n  {switch}")


def _wait_for_turn(state: Path, database: str) -> Standby:
    """Stand by until no service leads; notify the parent process that this one is alive."""
    from weft.app.serve.standby import Standby, open_place
    from weft.service.watchdog import notify_systemd

    place = open_place(state, database)
    typer.echo(f"standing by for the service at {place.name}")
    notify_systemd(os.environ, "READY=1\nSTATUS=standing by")
    turn = Standby(place, lambda: notify_systemd(os.environ, "WATCHDOG=1"))
    turn.wait()
    return turn


def daily_log(folder: Path) -> logging.Handler:
    """A file per day, `weft.log` and those before with their date; thirty are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    made = TimedRotatingFileHandler(
        folder / "weft.log", when="midnight", utc=True, backupCount=DAYS_KEPT, encoding="utf-8"
    )
    made.setFormatter(logging.Formatter(FORMAT))
    return made


def announce(url: str, state: Path, *, named: bool = True) -> None:
    """Print where the service is, for people and for the parent process."""
    typer.echo(f"weft serves {url} (API: {url}/docs), state in {state.absolute()}")
    if not named and state == HERE:
        typer.echo(
            f"this folder has a {state} from before, so it is used; elsewhere the default is "
            f"{user_folder()}"
        )
    typer.echo(
        "Ctrl-C stops the service; jobs keep running, and the service finds them when it starts "
        "again"
    )


def announce_joining(line: str) -> None:
    """Say how another machine joins."""
    typer.echo(f"other machines join with: {line}")
