"""Where commands are tried: a folder of their own, no network but to one service of ours.

Nothing goes on for long, and commands are built once: building them took most of the time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn
from unittest import mock

from typer.testing import CliRunner

from benchmarks.loop_stalls import Service
from benchmarks.random_commands.draw import ALONE, command_lines, draw_line, draw_nearly_right
from weft.cli.lazy import CommandEntry
from weft.cli.main import COMMANDS, cli, commands
from weft.core.errors import EngineError

LONGEST_S = 20.0  # of CPU time
WAIT_S = 120.0  # that pass: nobody waits that long for an answer, however busy the machine
NOBODY = "http://127.0.0.1:9"
NEARLY_RIGHT = 0.7  # of all that is tried
JOBS = 3
SHOWN_EACH = 250  # commands: how it stands is reported
ENGINE = "simulated:cluster=4x8:a100,speed=1000"


class TooLong(BaseException):
    """A command goes on for longer than anybody waits for an answer to a mistake."""


@dataclass(slots=True)
class Findings:
    """How commands ended, and those that ended in a traceback or did not end."""

    codes: dict[int, int] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
    too_long: list[str] = field(default_factory=list)

    def say(self) -> str:
        """How often each exit code came, and the rest in numbers."""
        codes = ", ".join(f"exit {code}: {count}" for code, count in sorted(self.codes.items()))
        wrong = f"{len(self.tracebacks)} tracebacks, {len(self.too_long)} did not end"
        return f"{codes}: {wrong}"


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Stands for whoever is not there."""
    raise ConnectionRefusedError(111, "Connection refused")


def known_only(usual: Any, *known: object) -> Any:
    """As usual where it is about one of these, and refused otherwise."""

    def ask(*args: Any, **options: Any) -> Any:
        return usual(*args, **options) if set(known) & set(_flat(args)) else refuse()

    return ask


def _flat(args: Any) -> Iterator[object]:
    for arg in args:
        yield from arg if isinstance(arg, tuple) else [arg]


def keep_back(*_: Any, **__: Any) -> NoReturn:
    """Stands for what starts a service or somebody's program."""
    raise EngineError("kept from starting")


def check_and_keep_back(settings: Any, **_: Any) -> NoReturn:
    """A service that is made but not started."""
    from weft.service.main import create_app

    create_app(settings)
    keep_back()


def stop(*_: object) -> NoReturn:
    """For the clock."""
    raise TooLong


def patch_everywhere(stack: contextlib.ExitStack, name: str, stand_in: Any) -> None:
    """Put a stand-in where it is defined, and where any command has imported it to."""
    usual, own = resolve_name(name), name.rpartition(".")[2]
    for entry in COMMANDS:
        entry.load()  # what is imported from now on would keep the stand-in
    stack.enter_context(mock.patch(name, stand_in))
    for module in [*sys.modules.values()]:
        if module.__name__.startswith("weft.") and vars(module).get(own) is usual:
            stack.enter_context(mock.patch.object(module, own, stand_in))


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of a service with a few jobs, on a cluster where they soon end."""
    logging.disable(logging.CRITICAL)  # of the service: it has no terminal of its own here
    service = Service(0, "fifo", ENGINE)
    client = service.begin()
    for number in range(JOBS):
        body = {"id": f"job{number}", "gpus": 1, "hints": {"duration_s": 1e9}}
        client.post("/api/v1/jobs", json=body).raise_for_status()
    client.close()
    yield service.address
    service.end()
    logging.disable(logging.NOTSET)


@contextlib.contextmanager
def fenced(address: str = "") -> Iterator[Path]:
    """A folder to try commands in, below others that may be written to.

    With an `address` the service there can be reached, and nobody else.
    """
    with contextlib.ExitStack() as stack:
        top = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        here = top / "a" / "b" / "c"
        here.mkdir(parents=True)
        stack.enter_context(contextlib.chdir(here))
        own = {"HOME": str(top), "WEFT_URL": NOBODY, "WEFT_TOKEN": "", "SHELL": "sh"}
        stack.enter_context(mock.patch.dict(os.environ, own))
        port = int(address.rpartition(":")[2] or 0)
        for where, name in ((socket.socket, "connect"), (socket, "getaddrinfo")):
            usual = getattr(where, name)
            stand_in: Any = known_only(usual, port, str(port)) if port else refuse
            stack.enter_context(mock.patch.object(where, name, stand_in))
        once, built = cache(commands), dict[str, Any]()

        def load(entry: CommandEntry, usual: Any = CommandEntry.load) -> Any:
            return built.get(entry.name) or built.setdefault(entry.name, usual(entry))

        stack.enter_context(mock.patch("typer.testing._get_command", lambda _: once()))
        stack.enter_context(mock.patch.object(CommandEntry, "load", load))
        for name, stand_in in {
            "weft.service.main.serve": check_and_keep_back,
            "weft.app.serve.standby.Standby.wait": keep_back,
            "weft.cli.connect.batch_client.serve_batch_jobs": keep_back,
            "weft.cli.connect.own_service.own_service": keep_back,
            "weft.app.measure.script.profile": keep_back,
            "weft.app.measure.pairs.beside": keep_back,
            "weft.app.join.join": keep_back,
            "weft.app.join.write_unit": keep_back,
            "weft.app.simulate.run.spread": keep_back,
        }.items():
            patch_everywhere(stack, name, stand_in)
        for clock in (signal.SIGVTALRM, signal.SIGALRM):
            before: Any = signal.signal(clock, stop)
            stack.callback(signal.signal, clock, before)
        stack.callback(_drop_handlers, [*logging.root.handlers])
        yield here


def _drop_handlers(kept: list[logging.Handler]) -> None:
    """Of logs in the folder, which is gone."""
    for handler in [*logging.root.handlers]:
        if handler not in kept:
            logging.root.removeHandler(handler)
            handler.close()


def try_commands(count: int, seed: int, report: Callable[[str], None] = lambda _: None) -> Findings:
    """Draw command lines and run each here; findings are reported as they come."""
    rng, lines, findings = random.Random(seed), command_lines(), Findings()
    with served() as address, fenced(address) as folder:
        for number in range(count):
            drawn = draw_nearly_right if rng.random() < NEARLY_RIGHT else draw_line
            words = drawn(rng, lines, folder)
            asks = drawn is draw_nearly_right and words[0] not in ALONE
            os.environ["WEFT_URL"] = address if asks else NOBODY
            line = f"{number}: weft {' '.join(map(ascii, words))}"[:1500]
            files = {name: (folder / name).read_bytes() for name in words if is_file(folder, name)}
            inputs = "".join(f"\n  {name}: {data!r:.1500}" for name, data in files.items())
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
                signal.setitimer(signal.ITIMER_REAL, WAIT_S)
                code, trace = try_one(words)
            except TooLong:
                findings.too_long.append(line + inputs)
                report(f"--- does not end\n{line}{inputs}")
                continue
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            findings.codes[code] = findings.codes.get(code, 0) + 1
            if trace:
                findings.tracebacks.append(f"{line}{inputs}\n{trace}")
                report(f"--- traceback\n{line}{inputs}\n{trace}")
            if (number + 1) % SHOWN_EACH == 0:
                report(f"{number + 1} commands, {findings.say()}")
    return findings


def try_one(words: list[str]) -> tuple[int, str]:
    """The exit code of one command, and the end of its traceback if it has one."""
    result = CliRunner().invoke(cli, words, input="", prog_name="weft")
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, ""
    return result.exit_code, "".join(traceback.format_exception(result.exception)[-4:])


def is_file(folder: Path, name: str) -> bool:
    """Whether a word is the name of a small file there."""
    try:
        return "/" not in name and (folder / name).is_file()
    except (OSError, ValueError):
        return False
