"""`weft reserve`: machines and GPUs that are kept for a tenant, or for maintenance."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from weft.cli.connect.client import ServiceClient
from weft.cli.options import shared as o
from weft.cli.options.shared import seconds
from weft.cli.view import words
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.tables import TableColumn, show_rows
from weft.core.errors import InvalidConfig
from weft.service.responses.admin import Reservation, ReservationList
from weft.service.responses.answers import ClusterAnswer
from weft_client.connection import at

reserve = typer.Typer(
    help="Reserve machines or GPUs for a tenant, or for maintenance (admins).",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")]


@reserve.command("list")
def list_reservations(as_json: o.AsJson = False) -> None:
    """List current and future reservations."""
    with user_errors():
        answer = ServiceClient().get(ReservationList, "/reservations")
    _show(answer, answer.reservations, as_json=as_json)


@reserve.command()
def add(
    name: Name,
    nodes: Annotated[
        list[str],
        typer.Argument(help="Machines, or some of their GPUs: n1 n2:0-3.", metavar="NODE..."),
    ],
    tenant: Annotated[
        str, typer.Option(help="The tenant that may use them; default: none, for maintenance.")
    ] = "",
    start: Annotated[
        str, typer.Option(help="When it begins: 2026-11-20T08:00, or in 2h; default: now.")
    ] = "",
    end: Annotated[
        str, typer.Option(help="When it ends: a time, or 4h after it began; default: never.")
    ] = "",
    when_done: Annotated[
        bool, typer.Option("--when-done", help="Let the jobs there run to their end.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """Reserve machines, or some of their GPUs, from now or from a given time.

    A job that says how long it takes is placed there only if it ends before the reservation begins.
    Jobs that are still there when it begins are stopped, and continue elsewhere from their last
    checkpoint.
    """
    with user_errors():
        client = ServiceClient()
        now = client.get(ClusterAnswer, "/cluster").now
        begins = read_time(start, now, "--start") if start else None
        body: dict[str, Any] = {"nodes": nodes, "when_done": when_done}
        body |= {"tenant": tenant} if tenant else {}
        body |= {"start": begins} if begins is not None else {}
        body |= {"end": read_time(end, begins or now, "--end")} if end else {}
        made = client.put(Reservation, at("reservations", name), body)
    _show(made, [made], as_json=as_json)


@reserve.command()
def remove(name: Name, as_json: o.AsJson = False) -> None:
    """Remove a reservation; all jobs may use its devices again."""
    with user_errors():
        ServiceClient().delete(at("reservations", name))
    if as_json:
        print_json({"removed": name})
    else:
        console().print(f"reservation {name} is removed")


def read_time(text: str, since: float, option: str) -> float:
    """Seconds since the epoch, from a local date and time or a span after `since`."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        pass
    try:
        return since + seconds(text, option)
    except InvalidConfig as error:
        raise InvalidConfig(
            f"{option} is {text!r}, neither a time nor a span",
            hint="write it as 2026-11-20T08:00 or 4h",
        ) from error


def _show(answer: Any, reservations: list[Reservation], *, as_json: bool) -> None:
    columns: list[TableColumn[Reservation]] = [
        TableColumn("name", lambda reservation: reservation.name),
        TableColumn("devices", lambda reservation: " ".join(reservation.nodes), most=40),
        TableColumn("from", lambda reservation: words.moment(reservation.start) or "now"),
        TableColumn("until", lambda reservation: words.moment(reservation.end) or "removed"),
        TableColumn("for", lambda reservation: reservation.tenant or "nobody"),
        TableColumn("now", lambda reservation: "in force" if reservation.in_force else "", drop=1),
        TableColumn(
            "jobs there",
            lambda reservation: "run to their end" if reservation.when_done else "",
            drop=2,
        ),
    ]
    show_rows(answer, columns, reservations, "no reservations", as_json=as_json)
