"""`weft verify`: whether a result can be trusted in a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.cli.view.errors import user_errors


def verify(
    result: Annotated[Path, typer.Argument(help="JSON with --per-job, or CSV.", exists=True)],
    gpus: Annotated[
        float | None, typer.Option(help="GPUs in the cluster, if the file does not say.", min=0)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check RESULT: GPUs in use, all jobs counted, costs, seeds.

    Exits with 1 if something is wrong. It lists what the file does not say; that is not an error.
    """
    import json

    from weft.report.result_files import read_runs
    from weft.report.verify import Level
    from weft.report.verify import verify as check

    with user_errors():
        findings = check(read_runs(result, gpus))
    if as_json:
        rows = [
            {"run": f.run, "check": f.check, "level": f.level.name.lower(), "text": f.text}
            for f in findings
        ]
        typer.echo(json.dumps(rows, indent=1))
    else:
        for finding in findings:
            run = f"{finding.run}: " if finding.run else ""
            typer.echo(f"{finding.level.name.lower():8}{finding.check:10} {run}{finding.text}")
    wrong = sum(finding.level is Level.WRONG for finding in findings)
    if not as_json:
        typer.echo(f"{wrong} of {len(findings)} checks failed" if wrong else "nothing is wrong")
    if wrong:
        raise typer.Exit(1)
