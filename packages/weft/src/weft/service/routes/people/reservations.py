"""Devices that are kept: for a tenant, for maintenance, or because something is wrong with them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from weft.core.errors import UnknownName
from weft.core.model.job import NodeId
from weft.service.context import PREFIX, PROBLEMS, Admin, Anyone, Context, Service
from weft.service.http.replies import HttpProblem, Json
from weft.service.requests.fields import RequestBody, Word
from weft.service.responses.admin import Reservation, ReservationList
from weft.service.responses.answers import Done
from weft.stack.windows import ReservedWindow, read_gpus, read_window

router = APIRouter(prefix=PREFIX, tags=["reservations"], responses=PROBLEMS)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$")]
Time = Annotated[float, Field(ge=0.0, le=1e11, allow_inf_nan=False)]
Devices = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^@=~+|/\"]+$")]


class AskReservation(RequestBody):
    """Nodes (`n1`) or GPUs of them (`n1:0-3`), from `start` until `end`, for `tenant` alone.

    Without a tenant, no job may use them; without a start, it begins now; without an end, it lasts
    until it is removed. `when_done` lets the jobs there run to their end.
    """

    nodes: Annotated[list[Devices], Field(min_length=1, max_length=1000)]
    start: Time | None = None
    end: Time | None = None
    tenant: Word | None = None
    when_done: bool = False


@router.get("/reservations", response_model=ReservationList)
async def reservations(service: Service, who: Anyone) -> Json:
    """All reservations that have not ended; only admins and its tenant see who it is for."""
    now = service.driver.now
    windows = [window for window in windows_of(service) if window.end > now]
    answers = [
        _answer(
            window,
            now,
            tenant=window.tenant if who.everywhere or who.tenant == window.tenant else "",
        )
        for window in windows
    ]
    return Json(ReservationList(reservations=answers))


@router.put("/reservations/{name}", response_model=Reservation)
async def reserve(name: Name, body: AskReservation, service: Service, who: Admin) -> Json:
    """Reserve devices from now or from later; jobs still there are stopped when it begins.

    A job that says how long it takes is not placed there unless it ends before.
    """
    for text in body.nodes:
        check_devices(service, text)
    now = service.driver.now
    start = body.start if body.start is not None and body.start > now else 0.0
    end = "" if body.end is None else f"{body.end:.0f}"
    when = f"@{f'{start:.0f}' if start else ''}-{end}" if start or end else ""
    soft, whose = "~" * body.when_done, f"={body.tenant}" if body.tenant else ""
    window = read_window(name, f"{soft}{'+'.join(body.nodes)}{when}{whose}")
    if window.end <= now:
        raise HttpProblem(422, "it is over already", "choose an end that comes", "end")
    await service.live.set_quotas(service.live.quotas.with_window(name, window.text), who.word)
    return Json(_answer(window, now, tenant=window.tenant))


@router.delete("/reservations/{name}", response_model=Done)
async def remove_reservation(name: str, service: Service, who: Admin) -> Json:
    """Remove a reservation; all jobs may use its devices again."""
    rules = service.live.quotas
    if name not in rules.windows:
        raise UnknownName.among("reservation", name[:64], rules.windows, "weft reserve list")
    await service.live.set_quotas(rules.without_windows(name), who.word)
    return Json(Done(done=f"reservation {name} is removed"))


def windows_of(service: Context) -> list[ReservedWindow]:
    """Windows that are reserved, now and later."""
    return [read_window(name, text) for name, text in service.live.quotas.windows.items()]


def check_devices(service: Context, text: str) -> tuple[NodeId, tuple[int, ...] | None]:
    """`n1` or `n1:0-3` of the machines there are."""
    name, colon, gpus = text.partition(":")
    known = {node.id: node for node, _ in service.driver.nodes()}
    if name not in known:
        raise UnknownName.among("node", name[:64], known, "weft nodes")
    chosen = read_gpus(name, gpus) if colon else None
    if chosen is not None and max(chosen) >= known[NodeId(name)].gpus:
        count = known[NodeId(name)].gpus
        raise HttpProblem(
            422, f"{name} has no GPU {max(chosen)}", f"it has 0 to {count - 1}", "nodes"
        )
    return NodeId(name), chosen


def _answer(window: ReservedWindow, now: float, *, tenant: str) -> Reservation:
    return Reservation(
        name=window.name,
        nodes=[
            node if gpus is None else f"{node}:{','.join(map(str, gpus))}"
            for node, gpus in window.devices.items()
        ],
        start=window.start or None,
        end=None if window.end == float("inf") else window.end,
        tenant=tenant,
        when_done=window.when_done,
        in_force=window.holds(now),
    )
