"""`weft quota`: what tenants may hold, and whose jobs go first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view.errors import user_errors
from weft.cli.view.tables import TableColumn, show_rows
from weft.core.errors import InvalidConfig, UnknownName
from weft.service.responses.admin import QuotaAnswer

quota = typer.Typer(
    help="Set limits and weights of tenants (admins).", no_args_is_help=True, add_completion=False
)

GPUS = partial(typer.Option, metavar="N")
RULES = ("limits", "weights", "guaranteed", "own", "parents")
Whose = Annotated[
    str, typer.Argument(help="A tenant, or TENANT@KIND for GPUs of one kind.", metavar="TENANT")
]


@quota.command("list")
def list_quotas(as_json: o.AsJson = False) -> None:
    """List the rules of tenants, and the GPUs they hold now."""
    with user_errors():
        answer = ServiceClient().get(QuotaAnswer, "/quotas")
    _show(answer, as_json=as_json)


@quota.command("set")
def set_quota(
    tenant: Whose,
    gpus: Annotated[float | None, GPUS(help="GPUs it may hold at once.")] = None,
    weight: Annotated[
        float | None,
        typer.Option(help="Its weight relative to the others; 1 without a rule.", metavar="W"),
    ] = None,
    guaranteed: Annotated[
        float | None,
        GPUS(help="GPUs that its users' jobs of priority guaranteed may ask for together."),
    ] = None,
    own: Annotated[
        float | None,
        GPUS(help="GPUs that it owns: lent while idle, and taken back when its jobs need them."),
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option(help="The group it belongs to, which may own GPUs.", metavar="GROUP"),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Set rules of one tenant; its other rules stay. Running jobs are left alone."""
    given: dict[str, float | str | None] = {
        "limits": gpus,
        "weights": weight,
        "guaranteed": guaranteed,
        "own": own,
        "parents": parent,
    }
    rules_given = {rule: value for rule, value in given.items() if value is not None}
    with user_errors():
        if not rules_given:
            raise InvalidConfig(
                "nothing to set",
                hint="name --gpus, --own, --parent, --weight or --guaranteed, or several",
            )
        if "@" in tenant and set(rules_given) != {"limits"}:
            raise InvalidConfig(
                f"{tenant!r} is for GPUs of one kind; weights and guarantees are for all kinds",
                hint="set --gpus for it, and the others for the tenant alone",
            )
        client = ServiceClient()
        rules = _rules(client)
        for rule, value in rules_given.items():
            rules[rule][tenant] = value
        answer = client.put(QuotaAnswer, "/quotas", rules)
    _show(answer, as_json=as_json)


@quota.command()
def lending(
    half_life: Annotated[
        str | None,
        typer.Option(help="Time after which past use counts half: 12h, 7d.", metavar="TIME"),
    ] = None,
    min_run: Annotated[
        str | None,
        typer.Option(
            help="How long a job may run before it has to give the GPUs back: 10m.", metavar="TIME"
        ),
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Set how GPUs that tenants own are lent, or show it; settings not given stay."""
    with user_errors():
        client = ServiceClient()
        rules = _rules(client)
        if half_life is not None:
            rules["half_life_s"] = seconds(half_life, "--half-life")
        if min_run is not None:
            rules["min_run_s"] = seconds(min_run, "--min-run")
        if half_life is None and min_run is None:
            answer = client.get(QuotaAnswer, "/quotas")
        else:
            answer = client.put(QuotaAnswer, "/quotas", rules)
    _show(answer, as_json=as_json)


@quota.command()
def remove(tenant: Whose, as_json: o.AsJson = False) -> None:
    """Remove every rule of one tenant, or of TENANT@KIND alone."""
    with user_errors():
        client = ServiceClient()
        rules = _rules(client)
        if not any(tenant in rules[rule] for rule in RULES):
            raise UnknownName(
                f"there are no rules for {tenant!r}", hint="`weft quota list` shows all"
            )
        for rule in RULES:
            rules[rule].pop(tenant, None)
        answer = client.put(QuotaAnswer, "/quotas", rules)
    _show(answer, as_json=as_json)


def _rules(client: ServiceClient) -> dict[str, Any]:
    answer = client.get(QuotaAnswer, "/quotas")
    rules: dict[str, Any] = {
        "limits": answer.limits,
        "weights": answer.weights,
        "guaranteed": answer.guaranteed,
        "own": answer.own,
        "parents": answer.parents,
    }
    times = {"half_life_s": answer.half_life_s, "min_run_s": answer.min_run_s}
    return rules | {name: seconds for name, seconds in times.items() if seconds is not None}


def _show(answer: QuotaAnswer, *, as_json: bool) -> None:
    tables = (
        answer.limits,
        answer.weights,
        answer.guaranteed,
        answer.own,
        answer.parents,
        answer.held,
    )
    named = sorted({name for table in tables for name in table})

    def number(values: Mapping[str, float]) -> Callable[[str], str]:
        return lambda name: f"{values[name]:g}" if name in values else ""

    columns: list[TableColumn[str]] = [
        TableColumn("tenant", lambda name: name, most=48),
        TableColumn("group", lambda name: answer.parents.get(name, ""), drop=1),
        TableColumn("its own", number(answer.own), right=True, drop=1),
        TableColumn("GPUs at most", number(answer.limits), right=True),
        TableColumn("weight", number(answer.weights), right=True),
        TableColumn("guaranteed", number(answer.guaranteed), right=True),
        TableColumn("holds", number(answer.held), right=True),
    ]
    none = "no rules: every tenant may hold all GPUs, and all have the same weight"
    show_rows(answer, columns, named, none, as_json=as_json)
    if answer.own and not as_json:
        from weft.app.serve.rules import lending_times
        from weft.cli.view.words import seconds

        half_life_s, min_run_s = lending_times(answer.half_life_s, answer.min_run_s)
        typer.echo(
            "GPUs that a tenant owns are lent while idle. A job that may be preempted gives them "
            f"back once it has run for {seconds(min_run_s)}; past use counts half after "
            f"{seconds(half_life_s)}."
        )
