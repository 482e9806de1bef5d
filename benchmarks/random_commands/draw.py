"""Drawn command lines: every command of the table, its options, and values of all kinds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.random_commands.files import FILES, HOSTILE, damage, draw_file

# What a shell cannot pass on: no argument holds a NUL, and bytes that are no text look so.
POSSIBLE = str.maketrans({"\x00": None, "\ud800": "\udcff"})
WORKLOADS = ("tiny-20", "philly-syn-160", "losses", "philly")
POLICIES = (
    "fifo", "srtf", "las:by=time", "tiresias", "las:thresholds=1e999", "las:thresholds=1/2",
    "fifo:place=", "compose:order=las", "gavel:reset=-1", "weft", "nothing", "fifo:",
    "las:by={time,gpu-time}", "fifo:backfill={true,false", "gandiva:quantum=0", "own.py:Policy",
    "gittins:quantum=nan", "srtf+backfill", "compose:order=(", "themis", "pollux:interval=-5",
)  # fmt: skip
# What an option could take; any other gets a number, a word or a hostile text.
USUAL: dict[str, tuple[str, ...]] = {
    "workload": (*WORKLOADS, "pollux", "gavel", "nope"),
    "--replay": ("tiny-20", "nope"),
    "--policy": POLICIES,
    "--cluster": ("2x4:v100", "1x8:a100+2x4:t4", "sia-homo", "0x0", "1x1", "x", "9999999x9"),
    "--nodes": ("+1", "2x8:a100", "-1", "1-2", "n1", "100000x8", "0"),
    "--predictor": ("oracle", "noisy:sigma=0.5", "noisy:sigma=nan", "hinted", "alike", "none"),
    "--perf": ("muri", "replay", "splicing"),
    "--sharing": ("mps", "timeslicing"),
    "--weights": ("a=1/b=2", "a=nan", "a=-1", "=", "a=1e999"),
    "--loan": ("1x8:v100,low=0.3,high=0.95", "1x8:v100,trace=needed.csv", "1x8:v100,low=nan"),
    "--resize": ("live", "live:pause_s=0.05", "live:pause_s=nan", "restart", "live:pause_gb_s=0"),
    "--stops": ("freeze", "suspend", "freeze,suspend", "x"),
    "--window": ("0:100", ":", "5:1", "nan:inf"),
    "--trace-option": ("scale_arrivals=2", "scale_arrivals=0", "attempts=span", "sample=1", "x"),
    "--report": ("report.html", "no/such/folder/a.html", "."),
    "--events": ("events.jsonl", ".", "weft-state/events"),
    "--columns": ("main", "waits", "fairness"),
    "--engine": ("local", "simulated:cluster=1x1", "local:slots=-1", "slurm", "kubernetes:x"),
    "--limit": ("rate=50", "jobs=nan", "gpus=-1", "rate", "vision=4"),
    "--weight": ("vision=2", "a=nan", "a=0"),
    "--job": ("gpus=2", "a=1", "gpus=nan"),
    "--hours": ("1", "0", "nan", "1e999"),
    "--own": ("a=4", "a=-1", "a=x"),
    "--parent": ("a=b", "a=a", "b="),
    "--env": ("A=1", "A", "=1", "A B=2"),
    "--sweep": ("lr=0.1,0.2", "lr=1..9", "lr=log(1,2,3)", "seed=1-3", "lr=", "lr=0..1e9"),
    "--array": ("0-7%2", "0-999999999", "5-1", "1,2,2"),
    "--gpus": ("1", "1-4", "4-1", "0.5", "2"),
    "--time-limit": ("2h", "1-02:00:00", "90", "-1h", "1e999h"),
    "--since": ("2h", "2024-01-01", "yesterday", "now"),
    "--until": ("1d", "2024-13-45"),
    "--start": ("2h", "2030-01-01T00:00", "now"),
    "--end": ("4h", "1e9d", "0001-01-01"),
    "--state": ("weft-state", "backup", "none", "running", "."),
    "target": ("backup", "weft-state", "new/er"),
    "source": ("backup", "weft-state", "."),
    "kind": ("policy", "trace", "predictor", "cluster", "engine", "part", "place"),
    "--host": ("127.0.0.1", "0.0.0.0", "::"),
    "--smtp": ("smtp://a@b:25", "smtps://", "smtp://a:99999", "http://[", "smtp://[::1"),
    "address": ("127.0.0.1:6379", "h", "h:x", ":1", "[::1]:99999999"),
    "url": ("http://127.0.0.1:9/x", "http://[", "slack", "mailto:a@b"),
    "command": ("python", "true", "a b", "-c", "'"),
    "app": ("@last", "job-1", "a/b"),
    "job": ("@last", "job-1", "a/b", "a?b#c"),
}  # fmt: skip
FILE_OF = {
    "what": ".yaml", "workload": "", "--replay": "", "--config": "ml", "--env-file": ".env",
    "--pairs": ".json", "--profiles": ".json", "--policy": ".yaml", "--cluster": ".yaml",
    "--users": ".toml", "--token-file": "token", "--tls-cert": "token", "--tls-key": "token",
    "--events": "", "--workdir": "", "--checkpoint": "", "--loan": ".csv",
}  # fmt: skip
# Values that are right, where the first of the usual ones is not, or would take long.
RIGHT: dict[str, tuple[str, ...]] = {
    "workload": ("tiny-20", "weft.csv", "philly.csv", "tiresias.csv", "sia.csv", "gavel.trace"),
    "--replay": ("tiny-20",),
    "--policy": ("fifo", "srtf", "las:by=time", "tiresias", "compose:order=las", "themis"),
    "what": ("job.yaml", "plain.yaml", "job.json", "sky.yaml", "job.sh"),
    "--profiles": ("models.json",), "--pairs": ("pairs.json",),
    "--config": ("serve.toml", "serve.yaml"), "--env-file": ("vars.env",),
    "--users": ("users.toml",), "--token-file": ("token",), "--trace-option": ("scale_arrivals=2",),
    "--add-nodes": ("2x8:a100",), "--engine": ("local", "simulated:cluster=1x1"),
    "--state": ("weft-state", "running"), "--gpus": ("1", "2", "1-4"), "--array": ("0-3%2",),
    "--after-ok": ("job0",), "--after-any": ("job1",), "--after-not-ok": ("job2",),
    "--role": ("user", "viewer"), "--format": ("slack", "json"), "--where": ("offline", "live"),
    "--min-run": ("5m",), "--half-life": ("2d",), "--deadline": ("2d",), "--idle-timeout": ("1h",),
    "--priority": ("low", "normal", "high"), "--workdir": (".",), "--checkpoint": ("ckpt",),
    "--kinds": ("a100",), "--name": ("run-1",), "--tenant": ("vision",), "--parent": ("a=b",),
    "--host": ("127.0.0.1",), "--id": ("own-1", "own-2", "own-3"), "--share": ("0.5",),
    "--batch": ("32-512",), "--load": ("0.5",), "--on": ("cluster", "2x4:v100"),
    "--window": ("0:100",), "--expires": ("2d",), "--overlap": ("1h",),
    "job": ("job0", "job1", "@last"), "jobs": ("job0", "job1"), "app": ("job0",),
    "to": ("low", "high"), "node": ("a100-0", "a100-1:0", "a100-1:0-3"),
    "nodes": ("a100-2", "a100-2:1"), "name": ("fifo", "srtf", "mine"), "tenant": ("vision",),
    "url": ("http://127.0.0.1:9/x",), "port": ("8080",), "address": ("127.0.0.1:6379",),
}  # fmt: skip
# With a service these wait for something that does not come, or take it away from us.
ALONE = ("token", "forward", "shell", "demo", "join", "profile", "state", "serve")
DEAR = ("plan", "what-if", "explain")  # simulated in a process, for a while
ENDLESS = {"--follow", "--watch", "--wait"}
AT_ONCE = {"run": "--detach", "top": "--once", "cancel": "--yes", "suspend": "--yes"}
NEEDED = {"predict": "--replay", "what-if": "--policy", "wait": "--timeout"}
NUMBERS = ("1", "2", "0", "0.5", "3", "8")
SMALL = {
    "--jobs": ("3", "5", "60"),
    "--seeds": ("1", "2"),
    "--processes": ("1",),
    "--seed": NUMBERS,
}


class Line(NamedTuple):
    """A command of the table: its words and its parameters."""

    words: tuple[str, ...]
    parameters: tuple[Any, ...]


def command_lines() -> list[Line]:
    """Every command, those of groups too."""
    from weft.cli.main import commands

    lines = []
    for name, command in commands().load_all().items():
        group = getattr(command, "commands", None) or {}
        lines += [
            Line((name, inner), tuple(subcommand.params)) for inner, subcommand in group.items()
        ]
        if not group:
            lines.append(Line((name,), tuple(command.params)))
    return lines


def draw_right(rng: random.Random, name: str, folder: Path) -> str:
    """A value that an option or argument takes, of a file just written as it should be."""
    value = rng.choice(RIGHT.get(name) or USUAL.get(name, NUMBERS[:2])[:1])
    if value in FILES:
        (folder / value).write_text(FILES[value])
    return value


def draw_nearly_right(rng: random.Random, lines: list[Line], folder: Path) -> list[str]:
    """The words of a command that is right, but for one value in most of them."""
    line = rng.choice(lines)
    while line.words[0] in DEAR and rng.random() > 0.05:
        line = rng.choice(lines)
    options = [parameter for parameter in line.parameters if parameter.opts[0].startswith("-")]
    options = [option for option in options if option.opts[0] not in ENDLESS]
    chosen = rng.sample(options, min(len(options), rng.choice((0, 1, 1, 2, 3))))
    needed = {"--jobs"} if line.words[0] in ("simulate", "compare") else set()
    needed |= {NEEDED.get(line.words[0], ""), "--processes" if line.words[0] == "compare" else ""}
    chosen += [option for option in options if option.opts[0] in needed and option not in chosen]
    words = [*line.words, *([AT_ONCE[line.words[0]]] if line.words[0] in AT_ONCE else [])]
    values: list[tuple[int, str]] = []  # where they are, and of what
    for parameter in sorted(chosen, key=options.index):
        words.append(rng.choice(parameter.opts))
        if not parameter.is_flag:
            values.append((len(words), parameter.opts[0]))
            words.append(draw_right(rng, parameter.opts[0], folder))
    for parameter in line.parameters:
        if parameter.opts[0].startswith("-") or not (parameter.required or rng.random() < 0.5):
            continue
        for _ in range(1 if parameter.nargs == 1 else rng.choice((1, 1, 2))):
            values.append((len(words), parameter.opts[0]))
            words.append(draw_right(rng, parameter.opts[0], folder))
    if values and rng.random() < 0.8:
        at, name = rng.choice(values)
        words[at] = draw_damaged(rng, words[at], name, folder)
    return [word.translate(POSSIBLE) for word in words]


def draw_damaged(rng: random.Random, word: str, name: str, folder: Path) -> str:
    """A value made wrong: inside its file, in some of its characters, or another one."""
    if word in FILES and rng.random() < 0.8:
        (folder / word).write_bytes(damage(rng, FILES[word]))
        return word
    if rng.random() < 0.5:
        return draw_value(rng, name, folder)
    at = rng.randrange(len(word) + 1)
    return word[:at] + rng.choice(HOSTILE) + word[at + rng.randrange(2) :]


def draw_value(rng: random.Random, name: str, folder: Path) -> str:
    """What is typed for one option or argument."""
    kind = rng.random()
    if name in SMALL:  # what makes a run long has small values, or wrong ones
        return rng.choice(SMALL[name] if kind < 0.9 else ("nan", "-1", "", "x", "0", "1e999"))
    if name in FILE_OF and kind < (0.9 if name in ("what", "--config") else 0.4):
        return draw_file(rng, folder, FILE_OF[name])
    if kind < 0.75:
        return rng.choice(USUAL.get(name, NUMBERS))
    if kind < 0.85:
        return rng.choice(NUMBERS)
    text = rng.choice(HOSTILE)
    if rng.random() < 0.3:
        usual = rng.choice(USUAL.get(name, NUMBERS))
        at = rng.randrange(len(usual) + 1)
        text = usual[:at] + text + usual[at:]
    return text


def draw_line(rng: random.Random, lines: list[Line], folder: Path) -> list[str]:
    """The words after `weft`."""
    line = rng.choice(lines)
    options = [parameter for parameter in line.parameters if parameter.opts[0].startswith("-")]
    arguments = [
        parameter for parameter in line.parameters if not parameter.opts[0].startswith("-")
    ]
    words: list[str] = []
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5)) if options else 0):
        option = rng.choice(options)
        words.append(rng.choice(option.opts))
        if not option.is_flag:
            words.append(draw_value(rng, option.opts[0], folder))
    for command, needed in NEEDED.items():
        if line.words == (command,) and needed not in words:
            words += [needed, draw_value(rng, needed, folder)]
    given: list[str] = []
    for argument in arguments:
        count = 1 if argument.nargs == 1 else rng.choice((1, 1, 2, 3))
        given += [draw_value(rng, argument.opts[0], folder) for _ in range(count)]
    if rng.random() < 0.03:
        given = given[:-1] if rng.random() < 0.5 else [*given, rng.choice(HOSTILE)]
    if line.words[0] in ("simulate", "compare") and not {"--jobs", *FILES} & {*words, *given}:
        words += ["--jobs", "4"]
    if line.words == ("compare",):
        words += ["--processes", "1"]
    if rng.random() < 0.1:
        words.append(rng.choice(("--", "-h", "--nope", "-", rng.choice(HOSTILE))))
    return [word.translate(POSSIBLE) for word in (*line.words, *words, *given)]
