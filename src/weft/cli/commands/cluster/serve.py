"""`weft serve`: the scheduler as a service."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.options import keep
from weft.cli.view.errors import user_errors

USERS = "weft.users"  # a table of users in the file of --config


def read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Let a file's values be the defaults of all options."""
    if path is not None:
        with user_errors():
            from weft.cli.options.config_file import ConfigFile, defaults_of, options_of

            found = defaults_of(ConfigFile.read(path), options_of(serve))
            if isinstance(found.get("users"), Mapping):
                from weft.engines.machine.users_file import users_of

                users_of(found["users"], str(path))
                context.meta[USERS] = found.pop("users")
            context.default_map = found
    return path


def serve(
    context: typer.Context,
    config: Annotated[  # noqa: ARG001 - read before all others
        Path | None,
        typer.Option(
            help="A file with these options, TOML or YAML; those given here win.",
            metavar="FILE",
            callback=read_config,
            is_eager=True,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="What runs the jobs (`weft list engine`): NAME or NAME:KEY=VALUE,..."),
    ] = "local",
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", "-p", help="The policy; default: the last one used, at first weft."
        ),
    ] = None,
    state: Annotated[
        Path, typer.Option(help="Folder of everything that survives a restart.")
    ] = Path("weft-state"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 7878,
    slots: Annotated[
        int, typer.Option(help="CPU slots where there are no GPUs; 0: one per core.", min=0)
    ] = 0,
    predictor: Annotated[str, typer.Option(help="Where policies get remaining times from.")] = "",
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Speeds of jobs beside each other, as `weft profile --beside` wrote it.",
            metavar="FILE",
        ),
    ] = None,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            help="Variable of this environment that jobs get beside the usual ones; repeatable.",
            metavar="NAME",
        ),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(
            help="Which users of this machine tenants' jobs run as: a file; needs root.",
            metavar="FILE",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's key (PEM).", metavar="FILE")
    ] = None,
    smtp: Annotated[
        str,
        typer.Option(
            help="Mail server for notifications: smtp://[USER@]HOST[:PORT], or smtps://.",
            metavar="URL",
        ),
    ] = "",
    mail_from: Annotated[
        str, typer.Option(help="Address that mail of the service comes from.", metavar="ADDRESS")
    ] = "",
    end_unknown: Annotated[
        bool,
        typer.Option(
            "--end-unknown",
            help="Stop running jobs that the log does not know, as after a restore.",
        ),
    ] = False,
    keep_days: keep.Days = 90.0,
    keep_jobs: keep.Jobs = 100_000,
    keep_gb: keep.Gigabytes = 0.0,
    keep_events: keep.Events = 5_000_000,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="What each tenant may ask for, such as rate=50 or jobs=10000; repeatable.",
            metavar="NAME=NUMBER",
        ),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(
            help="GPUs of a tenant's or group's own, lent while idle; repeatable.",
            metavar="TENANT=GPUS",
        ),
    ] = None,
    parent: Annotated[
        list[str] | None,
        typer.Option(help="The group that a tenant is in; repeatable.", metavar="TENANT=GROUP"),
    ] = None,
    half_life_h: Annotated[
        float | None,
        typer.Option(help="Hours after which GPU time that was used counts half.", min=0.01),
    ] = None,
    min_run: Annotated[
        float | None,
        typer.Option(help="Seconds a job runs before it has to give way to an owner.", min=0.0),
    ] = None,
    decide_limit: Annotated[
        float,
        typer.Option(help="Seconds a decision may take before a safe order stands in.", min=0.1),
    ] = 20.0,
    slowdown: Annotated[
        float | None,
        typer.Option(
            help="How many times as long steps may take beside others, of jobs that do not say.",
            min=1.0,
            max=100.0,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log decisions.")] = False,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print all options as a file for --config, and exit."),
    ] = False,
) -> None:
    """Run the scheduler service: REST API, events, metrics.

    Jobs go on when it ends, and are taken up again when it starts with the same --state.
    """
    table = context.meta.get(USERS) if users is None else None
    if print_config:
        from weft.cli.options.config_file import NOT_HERE, as_toml

        told = {
            name: one.absolute() if isinstance(one, Path) else one
            for name, one in context.params.items()
            if name not in NOT_HERE
        }
        typer.echo(as_toml({**told, "users": told["users"] or table}), nl=False)
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
        from weft.app.policy_file import read_policy_to_send
        from weft.app.serve.limits import read_limits
        from weft.app.serve.live import DEFAULT_POLICY, Settings
        from weft.app.serve.rules import read_lending
        from weft.runtime.recovery.retention import Keep

        level = logging.INFO if verbose else logging.WARNING
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        passed = tuple(pass_env or ())
        named = None if policy is None else read_policy_to_send(policy)
        settings = Settings(
            engine,
            state,
            host,
            port,
            named,
            slots,
            predictor,
            str(pairs or ""),
            passed,
            users or table,
            tls_cert,
            tls_key,
            smtp=smtp,
            mail_from=mail_from,
            end_unknown=end_unknown,
            keep=Keep(keep_days, keep_jobs, keep_gb, keep_events),
            limits=read_limits(limit or ()),
            decide_limit_s=decide_limit,
            lending=read_lending(own or (), parent or (), half_life_h, min_run),
            default=DEFAULT_POLICY,
            slowdown=slowdown,
        )
        run(settings, ready=lambda url: announce(url, settings.state), invite=announce_joining)


def announce(url: str, state: object) -> None:
    """Say where the service is, for people and for whoever started us."""
    typer.echo(f"weft serves {url} (API: {url}/docs), state in {state}")
    typer.echo("Ctrl-C ends the service; jobs go on and are taken up again")


def announce_joining(line: str) -> None:
    """Say how another machine joins."""
    typer.echo(f"other machines join with: {line}")
