"""Options of `weft serve`, on the command line and in its file.

What is given on the command line wins. Names of files in it are relative to the file itself.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from weft.cli.options.shared import KeepDays, KeepEvents, KeepGigabytes, KeepJobs
from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.frozen import frozen
from weft_client.own_state import state_folder

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
        Path | None,
        typer.Option(
            help="Folder for everything that must survive a restart; default: ./weft-state if it "
            "is in use already, and otherwise ~/.local/state/weft (XDG_STATE_HOME)."
        ),
    ] = None
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
        float | None, typer.Option(help="Hours after which past GPU time counts half.", min=0.01)
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
        bool, typer.Option(help="Start the next job before its turn, and freeze it until then.")
    ] = True
    stop_idle_h: Annotated[
        float | None,
        typer.Option(
            help="Stop jobs whose GPUs have been idle for this many hours; default: never.",
            min=0.01,
        ),
    ] = None

    verify: Annotated[
        str,
        typer.Option(
            help="Check what the scheduler promised this often, as `weft verify` does: hourly, "
            "daily or weekly; default: when an admin asks.",
            metavar="HOW-OFTEN",
        ),
    ] = ""

    def settings(self, users: Mapping[str, Any] | None = None) -> Settings:
        """Settings of a service; `users` is a table from a file where no other file is named."""
        from weft.app.policy_file import read_policy_to_send
        from weft.app.serve.live import DEFAULT_POLICY, Settings
        from weft.app.serve.rules import read_lending, read_limits
        from weft.runtime.recovery.retention import Keep

        return Settings(
            engine=self.engine,
            state=self.state or state_folder(),
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
            verify_s=self._verify_s(),
        )

    def _verify_s(self) -> float | None:
        if self.verify and self.verify not in HOW_OFTEN_S:
            close = did_you_mean(self.verify, HOW_OFTEN_S)
            what = f"--verify is {self.verify!r}{close}"
            raise InvalidConfig(what, hint=f"say {', '.join(HOW_OFTEN_S)}, or leave it out")
        return HOW_OFTEN_S.get(self.verify)

    def _sleep_settings(self) -> SleepSettings | None:
        from weft.app.serve.sleep_nodes import SleepSettings

        if self.sleep_nodes is None:
            return None
        commands = (self.sleep_command, self.wake_command)
        return SleepSettings(self.sleep_nodes, self.boot_s, *commands)


HOW_OFTEN_S = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 7 * 86_400.0}
USERS = "users"  # a file, or a table in this one
NOT_HERE = ("config", "print_config", "install")


@frozen
class ConfigFile:
    """The values of a configuration file, and their places in it."""

    path: Path
    text: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """The file as it is; InvalidConfig says what cannot be read, and in which line."""
        try:
            text = path.read_text(encoding="utf-8")
            content = parse_yaml(text, str(path)) if is_yaml(path) else tomllib.loads(text)
        except OSError as error:
            raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"{path} is not TOML: {error}") from error
        if content is not None and not isinstance(content, Mapping):
            raise InvalidConfig(f"{path} holds no options", hint="such as port = 7878")
        return cls(path, text, content or {})

    def where(self, key: str) -> str:
        """The file, and the line that says this key where it can be found."""
        sign = ":" if is_yaml(self.path) else "="
        wanted = re.compile(
            rf"""\s*["']?{re.escape(key)}["']?\s*{sign}|\s*\[+\s*{re.escape(key)}\b"""
        )
        lines = self.text.splitlines()
        number = next((n for n, line in enumerate(lines, 1) if wanted.match(line)), None)
        return f"{self.path}" if number is None else f"{self.path}:{number}"


@frozen
class Option:
    """Type of an option: values of `kind`, several if it may be repeated, between bounds."""

    kind: type
    several: bool = False
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, annotation: Any) -> Option:
        """Return the option that a command declares with this annotation."""
        declared, info = get_args(annotation)[:2]
        kind = _without_none(declared)
        several = get_origin(kind) is list
        return cls(get_args(kind)[0] if several else kind, several, info.min, info.max)

    def trouble(self, value: Any) -> str:
        """Say what is wrong with one value; empty if nothing is."""
        numbers = (int, float) if self.kind is float else self.kind
        wanted = str if self.kind is Path else numbers
        if not isinstance(value, wanted) or (isinstance(value, bool) and self.kind is not bool):
            return f"expected {KINDS[self.kind]}"
        if isinstance(value, (int, float)):
            if self.low is not None and value < self.low:
                return f"expected at least {self.low:g}"
            if self.high is not None and value > self.high:
                return f"expected at most {self.high:g}"
        return ""


KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def options_of(command: Callable[..., Any]) -> dict[str, Option]:
    """Every option that a file may give, by the name of its parameter."""
    hints = get_type_hints(command, include_extras=True)
    declared = {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: Option.of(hint) for name, hint in declared.items() if name not in NOT_HERE}


def defaults_of(file: ConfigFile, options: Mapping[str, Option]) -> dict[str, Any]:
    """The file's values as defaults of options; InvalidConfig for what is none."""
    defaults: dict[str, Any] = {}
    for key, value in file.values.items():
        name = str(key).replace("-", "_")
        if name not in options:
            known = [option.replace("_", "-") for option in options]
            close = did_you_mean(str(key), known)
            raise InvalidConfig(
                f"{file.where(str(key))}: there is no option {key!r}{close}",
                hint="`weft serve --help` lists them; write them without the dashes in front",
            )
        if name == USERS and isinstance(value, Mapping):
            defaults[name] = value
        else:
            defaults[name] = check_value(file, str(key), value, options[name])
    return defaults


def check_value(file: ConfigFile, key: str, value: Any, option: Option) -> Any:
    """A value as the option takes it."""
    given = value if option.several and isinstance(value, list) else [value]
    for item in given:
        if trouble := option.trouble(item):
            shown = json.dumps(value, default=str)
            raise InvalidConfig(f"{file.where(key)}: {key} is {shown}, {trouble}")
    if option.kind is Path:
        given = [str(file.path.parent / item) for item in given]
    return given if option.several else given[0]


def _without_none(declared: Any) -> Any:
    kinds = [kind for kind in get_args(declared) if kind is not NoneType]
    return kinds[0] if isinstance(declared, UnionType) else declared


def as_toml(values: Mapping[str, Any]) -> str:
    """Options as a file that could be read; what is not set is left out."""
    return "".join(f"{line}\n" for line in _lines(values))


def _lines(values: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    for key, value in values.items():
        if value not in (None, "") and not isinstance(value, Mapping):
            yield f"{key.replace('_', '-') if not inside else key} = {_value(value)}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            name = f"{inside}{json.dumps(key) if inside else key}"
            if any(not isinstance(item, Mapping) for item in value.values()):
                yield f"\n[{name}]"
            yield from _lines(value, f"{name}.")


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value))


def is_yaml(path: Path) -> bool:
    """Return true if a file's name says YAML; else it is TOML."""
    return path.suffix in (".yaml", ".yml")
