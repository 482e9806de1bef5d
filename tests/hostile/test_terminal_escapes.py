"""What others write reaches a terminal as text: none of their control characters does."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.integration.serving import serving, submit
from tests.seeds import seeds
from weft.cli.connect.client import RequestRefused
from weft.cli.main import COMMANDS, cli
from weft.cli.view import screen
from weft_client.connection import Connection

# A title, a cleared screen, a colour, eight-bit control sequences, a backspace, reversed text.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b5m\x9d52;c;x\x9c\x08\x7f\u202e\x1bcend"
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
REVERSED = "\u202e"
REST = {  # they change something, do not end, or show what no other may write
    *("run", "shell", "submit", "plan", "cancel", "suspend", "resume", "priority", "forward"),
    *("slurm-client", "profile", "serve", "join", "demo", "drain", "undrain", "mcp", "doctor"),
    *("simulate", "compare", "predict", "verify", "list", "wait", "state", "explain", "what-if"),
    "fetch",
}
# Words by which commands choose what to show.
KEPT = {"state", "level", "format", "next"}


def attack(value: Any, key: str = "") -> Any:
    """The answer with control characters at the end of every text."""
    if isinstance(value, dict):
        keyed = key in ("parameters", "env")
        return {k + ESCAPES * keyed: attack(held, k) for k, held in value.items()}
    if isinstance(value, list):
        return [attack(held, key) for held in value]
    return value + ESCAPES if isinstance(value, str) and key not in KEPT else value


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job of a service, all whose answers are an attacker's."""
    with serving(policy="fifo") as client:
        made = submit(client, gpus=8, tenant="a", user="ann")
        submit(client, gpus=8, tenant="a")
        monkeypatch.setenv("WEFT_URL", str(client.base_url))
        monkeypatch.setenv("COLUMNS", "200")
        answered = Connection.json
        hostile = lambda *args, **named: attack(answered(*args, **named))  # noqa: E731
        monkeypatch.setattr(Connection, "json", hostile)
        yield made


EMPTY = ("metrics", "quota", "reserve", "token", "webhook")  # nothing of anyone's to show


def commands(job: str) -> list[list[str]]:
    """Every command that shows something, with what it needs."""
    more = {"top": ["--once"], "jobs": ["--all"], "job": [job], "logs": [job], "metrics": [job]}
    more |= {"token": ["list"], "webhook": ["list"], "quota": ["list"], "reserve": ["list"]}
    return [[entry.name, *more.get(entry.name, ())] for entry in COMMANDS if entry.name not in REST]


def test_no_command_hands_control_characters_to_the_terminal(job: str) -> None:
    for words in commands(job):
        answer = CliRunner().invoke(cli, words)

        assert answer.exception is None, words
        assert "owned" in answer.output or words[0] in EMPTY, words
        assert not OBEYED.search(answer.output) and REVERSED not in answer.output, words


def test_nor_does_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RequestRefused(ESCAPES, hint=ESCAPES)

    monkeypatch.setattr(Connection, "json", refuse)

    answer = CliRunner().invoke(cli, ["jobs"])

    assert answer.output.count("end") == 2
    assert not OBEYED.search(answer.output)


class Screen(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_a_log_keeps_its_colours_on_a_terminal_and_all_bytes_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for out, shown in (
        (Screen(), b"]0;owned\x1b[31m5m52;c;x\xe2\x80\xaecend"),
        (io.BytesIO(), ESCAPES.encode()),
    ):
        monkeypatch.setattr(typer, "get_binary_stream", lambda _, out=out: out)

        screen.log_printer()(ESCAPES.encode())

        assert out.getvalue() == shown


@pytest.mark.parametrize("seed", seeds(20))
def test_wherever_a_log_is_cut_the_terminal_gets_the_same(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    parts = [ESCAPES, "\x1b[1;32mé漢\x1b[0m", "\x1b[", "12;3", "m", "\x1b", "\u009b", "K", "\r\n"]
    text = "".join(rng.choices(parts, k=40)).encode() + b"."
    shown: list[bytes] = []
    for cuts in ([], sorted(rng.choices(range(len(text)), k=12))):
        out = Screen()
        monkeypatch.setattr(typer, "get_binary_stream", lambda _, out=out: out)
        write = screen.log_printer()

        for begin, end in pairwise([0, *cuts, len(text)]):
            write(text[begin:end])

        shown.append(out.getvalue())
    assert shown[0] == shown[1]
    assert not OBEYED.search(re.sub(r"\x1b\[[0-9;:]*m|\r\n", "", shown[0].decode()))
