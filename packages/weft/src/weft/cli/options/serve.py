"""Options of `weft serve`, on the command line and in its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.options.shared import KeepDays, KeepEvents, KeepGigabytes, KeepJobs
from weft.frozen import frozen

if TYPE_CHECKING:
    from weft.app.serve.live import Settings
    from weft.app.serve.sleep_nodes import SleepSettings


@frozen
class ServeOptions:
    """The fields of `Settings`, as typed."""

    engine: Annotated[
        str,
        typer.Option(help="What runs the jobs (`weft list engine`): NAME or NAME:KEY=VALUE,..."),
    ] = "local"
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="The policy; default: the last one used, and weft the first time.",
        ),
    ] = None
    state: Annotated[
        Path, typer.Option(help="Folder for everything that must survive a restart.")
    ] = Path("weft-state")
    database: Annotated[
        str,
        typer.Option(
            help="Keep the log in this PostgreSQL database instead of a file in --state.",
            metavar="postgresql://...",
        ),
    ] = ""
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 7878
    slots: Annotated[
        int, typer.Option(help="CPU slots where there are no GPUs; 0: one per core.", min=0)
    ] = 0
    predictor: Annotated[str, typer.Option(help="Where policies get remaining times from.")] = ""
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Measured speeds of jobs beside each other, written by `weft profile --beside`.",
            metavar="FILE",
        ),
    ] = None
    pass_env: Annotated[
        Sequence[str],
        typer.Option(
            help="Pass this environment variable to jobs in addition to the usual ones; "
            "repeatable.",
            metavar="NAME",
        ),
    ] = ()
    users: Annotated[
        Path | None,
        typer.Option(
            help="File that maps tenants to the users of this machine that their jobs run as; "
            "needs root.",
            metavar="FILE",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).", metavar="FILE")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="The certificate's key (PEM).", metavar="FILE")
    ] = None
    smtp: Annotated[
        str,
        typer.Option(
            help="Mail server for notifications: smtp://[USER@]HOST[:PORT], or smtps://.",
            metavar="URL",
        ),
    ] = ""
    mail_from: Annotated[
        str, typer.Option(help="Sender address of the service's mail.", metavar="ADDRESS")
    ] = ""
    end_unknown: Annotated[
        bool,
        typer.Option(
            "--end-unknown",
            help="Stop running jobs that are not in the log, for example after a restore.",
        ),
    ] = False
    keep_days: KeepDays = 90.0
    keep_jobs: KeepJobs = 100_000
    keep_gb: KeepGigabytes = 0.0
    keep_events: KeepEvents = 5_000_000
    limit: Annotated[
        Sequence[str],
        typer.Option(
            help="What each tenant may ask for, such as rate=50 or jobs=10000; repeatable.",
            metavar="NAME=NUMBER",
        ),
    ] = ()
    own: Annotated[
        Sequence[str],
        typer.Option(
            help="GPUs that a tenant or group owns, lent while idle; repeatable.",
            metavar="TENANT=GPUS",
        ),
    ] = ()
    parent: Annotated[
        Sequence[str],
        typer.Option(help="The group that a tenant is in; repeatable.", metavar="TENANT=GROUP"),
    ] = ()
    half_life_h: Annotated[
        float | None,
        typer.Option(help="Hours after which past GPU time counts half.", min=0.01),
    ] = None
    min_run: Annotated[
        float | None,
        typer.Option(
            help="Seconds a job may run before it has to give GPUs back to their owner.", min=0.0
        ),
    ] = None
    decide_limit: Annotated[
        float,
        typer.Option(
            help="Seconds a decision may take before a simple order replaces it.", min=0.1
        ),
    ] = 20.0
    sleep_nodes: Annotated[
        int | None,
        typer.Option(
            help="Put idle nodes to sleep when they will not be needed, keeping this many awake.",
            min=0,
        ),
    ] = None
    boot_s: Annotated[
        float, typer.Option(help="Seconds that a sleeping node takes to wake up.", min=0.0)
    ] = 300.0
    sleep_command: Annotated[
        str,
        typer.Option(help="Command that switches a node off, such as 'ssh {node} sudo poweroff'."),
    ] = ""
    wake_command: Annotated[
        str, typer.Option(help="Command that switches a node on again, such as 'ipmi-on {node}'.")
    ] = ""
    slowdown: Annotated[
        float,
        typer.Option(
            help="For jobs that do not set it: how many times longer a step may take when jobs "
            "share a GPU; 100 lets all run at once.",
            min=1.0,
            max=100.0,
        ),
    ] = 1.3
    start_ahead: Annotated[
        bool,
        typer.Option(help="Start the next job before its turn, and freeze it until then."),
    ] = True
    stop_idle_h: Annotated[
        float | None,
        typer.Option(
            help="Stop jobs whose GPUs have been idle for this many hours; default: never.",
            min=0.01,
        ),
    ] = None

    def settings(self, users: Mapping[str, Any] | None = None) -> Settings:
        """Settings of a service; `users` is a table from a file where no other file is named."""
        from weft.app.policy_file import read_policy_to_send
        from weft.app.serve.limits import read_limits
        from weft.app.serve.live import DEFAULT_POLICY, Settings
        from weft.app.serve.rules import read_lending
        from weft.runtime.recovery.retention import Keep

        return Settings(
            engine=self.engine,
            state=self.state,
            database=self.database,
            host=self.host,
            port=self.port,
            policy=None if self.policy is None else read_policy_to_send(self.policy),
            slots=self.slots,
            predictor=self.predictor,
            pairs=str(self.pairs or ""),
            pass_env=tuple(self.pass_env),
            users=self.users or users,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            smtp=self.smtp,
            mail_from=self.mail_from,
            end_unknown=self.end_unknown,
            keep=Keep(self.keep_days, self.keep_jobs, self.keep_gb, self.keep_events),
            limits=read_limits(self.limit),
            decide_limit_s=self.decide_limit,
            lending=read_lending(self.own, self.parent, self.half_life_h, self.min_run),
            default=DEFAULT_POLICY,
            slowdown=self.slowdown,
            sleep_nodes=self._sleep_settings(),
            start_ahead=self.start_ahead,
            stop_idle_s=None if self.stop_idle_h is None else self.stop_idle_h * 3600.0,
        )

    def _sleep_settings(self) -> SleepSettings | None:
        from weft.app.serve.sleep_nodes import SleepSettings

        if self.sleep_nodes is None:
            return None
        commands = (self.sleep_command, self.wake_command)
        return SleepSettings(self.sleep_nodes, self.boot_s, *commands)
