"""`weft what-if`: the past, or what comes, if something were different."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.app.insight.history import read_history_file
from weft.app.insight.what_if import WhatIfChanges, read_named, what_if_in_file
from weft.cli.connect.client import RequestRefused, ServiceClient
from weft.cli.options import shared as o
from weft.cli.options.shared import read_changes
from weft.cli.view.errors import user_errors
from weft.cli.view.results import comparison_table
from weft.cli.view.screen import console, named_bars, print_json
from weft.core.errors import InvalidConfig
from weft.service.responses.answers import Comparison
from weft.service.responses.watch import WhatIfLine, tell_never

Report = Callable[[str, float], None]  # of a side's label, and the part done of it
CHANGE = o.panel("What is different")
Limits = Annotated[
    list[str] | None,
    CHANGE(
        "--limit", help="GPUs that a tenant may hold at once; repeatable.", metavar="TENANT=GPUS"
    ),
]
Weights = Annotated[
    list[str] | None,
    CHANGE(
        "--weight",
        help="A tenant's weight relative to the others; repeatable.",
        metavar="TENANT=WEIGHT",
    ),
]
MORE_NODES: Any = {"help": "More machines, written as a cluster.", "metavar": "NODESxGPUS:KIND"}


def what_if(
    policy: Annotated[
        str | None, CHANGE("--policy", "-p", help="A policy (`weft list policy`), with parameters.")
    ] = None,
    limit: Limits = None,
    weight: Weights = None,
    nodes: Annotated[str, CHANGE("--add-nodes", "--nodes", **MORE_NODES)] = "",
    job: Annotated[
        list[str] | None,
        CHANGE("--job", help="A job with another number of GPUs; repeatable.", metavar="ID=GPUS"),
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Start from what runs and waits now, not from the past.")
    ] = False,
    hours: Annotated[
        float | None, typer.Option(help="Replay only this many of the latest hours.", min=0.001)
    ] = None,
    cpu: Annotated[
        float | None,
        typer.Option(
            help="Seconds of CPU time that the service may use; a replay that needs more is "
            "left out. Default: 100.",
            metavar="SECONDS",
            min=0.1,
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option(
            help="Replay the events in this file (`weft simulate --events`), without a service.",
            metavar="FILE",
        ),
    ] = None,
    cluster: o.Cluster = "",
    as_json: o.AsJson = False,
) -> None:
    """Replay the past, or simulate the future, with one thing changed.

    Try another policy, other quotas, more machines or another size of a job, and compare the result
    with the current settings.
    """
    with user_errors():
        changes = read_changes(policy, limit, weight, nodes, job)
        _check(changes, now=now, hours=hours, events=events, cluster=cluster, cpu=cpu)
        with named_bars(quiet=as_json) as progress:
            if events is not None:
                answer = _from_file(events, changes, cluster, hours, progress)
            else:
                body = {"start": "now" if now else "history", "hours": hours, "cpu_s": cpu}
                given = {name: value for name, value in body.items() if value is not None}
                answer = ask_what_if(ServiceClient(), {**changes, **given}, progress)
    if as_json:
        print_json(answer)
        return
    screen = console()
    screen.print(comparison_table(answer, screen.width))


def ask_what_if(
    client: ServiceClient, body: dict[str, Any], progress: Report = lambda _label, _part: None
) -> Comparison:
    """Send a what-if and wait for its result, however long it takes."""
    for line in client.lines(WhatIfLine, "/what-if/stream", body):
        if line.progress is not None:
            progress(line.progress.label, line.progress.part)
        if line.problem is not None:
            raise RequestRefused(line.problem.error, hint=line.problem.hint)
        if line.result is not None:
            return line.result
    raise RequestRefused("the service ended before the simulation did", hint="ask again")


def _check(
    changes: dict[str, Any],
    *,
    now: bool,
    hours: float | None,
    events: Path | None,
    cluster: str,
    cpu: float | None,
) -> None:
    if not changes:
        raise InvalidConfig(
            "nothing is different", hint="name --policy, --limit, --weight, --nodes or --job"
        )
    if now and (hours is not None or events is not None):
        raise InvalidConfig("--now looks ahead", hint="leave --hours and --events out")
    if cpu is not None and events is not None:
        raise InvalidConfig("a file is replayed whole", hint="leave --cpu out")
    if cluster and events is None:
        raise InvalidConfig("--cluster is of a file's past", hint="name --events, or --nodes")


def _from_file(
    path: Path, changes: dict[str, Any], cluster: str, hours: float | None, progress: Report
) -> Comparison:
    change = WhatIfChanges(
        read_named(changes.get("policy")),
        changes.get("limits", {}),
        changes.get("weights", {}),
        changes.get("nodes", ""),
        {job["id"]: job["gpus"] for job in changes.get("jobs", ())},
    )
    history = read_history_file(path)
    compared = what_if_in_file(history, change, cluster, str(path), hours=hours, progress=progress)
    policies: dict[str, dict[str, float | None]] = {
        name: dict(values) for name, values in compared.policies.items()
    }
    return Comparison(
        policies=policies,
        jobs=compared.jobs,
        hours=compared.hours,
        note=compared.note,
        never=tell_never(compared.never),
    )
