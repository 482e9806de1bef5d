"""`weft verify`: whether a result can be trusted, or a scheduler kept what it promised."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from weft.cli.view.errors import user_errors
from weft.cli.view.screen import echo
from weft.report.result_files import read_runs
from weft.report.verify import Severity
from weft.report.verify import verify as check
from weft_client.own_state import state_folder


def verify(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A service's state folder or its PostgreSQL URL, a file of events, or a result: "
            "JSON with --per-job, or CSV. Default: the state of your own service on this machine."
        ),
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(help="GPUs in the cluster, if a result does not say.", min=0)
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            help="Judge the last days of a log; default: 30 of a service's, all of a file's.",
            min=0.001,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every finding of a log.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about a log here: the table and plots.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a log or a RESULT: what was promised, and whether it was kept.

    Of a log: states, devices, GPU time, stops, idle GPUs, reasons and promises, each finding with
    its line, and how much of what was promised held. Of a result: GPUs in use, all jobs counted,
    costs, seeds. Exits with 1 if something is wrong. It lists what is in doubt or not said; that is
    not an error.
    """
    from weft.judge.log_lines import ADDRESSES, is_log

    path = state_folder() if what is None else Path(what)
    what = what or str(path)
    with user_errors():
        if not what.startswith(ADDRESSES) and not path.exists():
            raise typer.BadParameter(f"{what} does not exist; name a log or a result")
        wrong = (
            _judge_log(what, report, days, every=every, as_json=as_json)
            if what.startswith(ADDRESSES) or is_log(path)
            else _check_result(path, gpus, as_json=as_json)
        )
    if wrong:
        raise typer.Exit(1)


def _judge_log(
    where: str, report: Path | None, days: float | None, *, every: bool, as_json: bool
) -> int:
    from weft.judge.judge import LAST_DAYS, judge
    from weft.judge.log_lines import read_log
    from weft.judge.page import write_page
    from weft.judge.words import SHOWN, as_values, describe

    log = read_log(where)
    verdict = judge(log, days or (inf if log.last is None else LAST_DAYS))
    if report is not None:
        report.write_text(write_page(verdict), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(as_values(verdict), indent=1))
        return verdict.wrong
    for line in describe(verdict, None if every else SHOWN):
        echo(line)
    typer.echo(f"{verdict.wrong} findings" if verdict.wrong else "nothing is wrong")
    return verdict.wrong


def _check_result(path: Path, gpus: float | None, *, as_json: bool) -> int:
    findings = check(read_runs(path, gpus))
    if as_json:
        rows = [
            {"run": f.run, "check": f.check, "level": f.level.name.lower(), "text": f.text}
            for f in findings
        ]
        typer.echo(json.dumps(rows, indent=1))
    else:
        for finding in findings:
            run = f"{finding.run}: " if finding.run else ""
            echo(f"{finding.level.name.lower():8}{finding.check:10} {run}{finding.text}")
    wrong = sum(finding.level is Severity.WRONG for finding in findings)
    if not as_json:
        typer.echo(f"{wrong} of {len(findings)} checks failed" if wrong else "nothing is wrong")
    return wrong
