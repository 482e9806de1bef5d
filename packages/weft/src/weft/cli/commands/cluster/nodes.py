"""`weft nodes`, `weft drain`, `weft undrain`: the machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from urllib.parse import urlencode

import typer

from weft.cli.connect.client import RequestRefused, ServiceClient, active_jobs
from weft.cli.options import shared as o
from weft.cli.view.errors import user_errors
from weft.cli.view.screen import console, print_json
from weft.cli.view.status import health_table, nodes_table, trouble
from weft.plural import say_gpus
from weft.service.responses.answers import ClusterAnswer, Done, NodeCheck, Nodes
from weft_client.connection import ANY_TEXT, at

NodeId = Annotated[str, typer.Argument(help="A machine (`weft nodes`).", metavar="NODE")]


def nodes(
    health: Annotated[
        bool,
        typer.Option(
            "--health", help="Show the health of their GPUs, and which are set aside and why."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Open each GPU that no job holds; exits with 1 if one has a fault."
        ),
    ] = False,
    as_json: o.AsJson = False,
) -> None:
    """List the machines, their GPUs, and the jobs on them."""
    with user_errors():
        client = ServiceClient()
        answer = client.get(Nodes, "/nodes")
        if check:
            raise typer.Exit(_check(client, answer, as_json=as_json))
        held = [] if as_json else active_jobs(client)
        troubles = [] if as_json else trouble(client.get(ClusterAnswer, "/cluster"))
    if as_json:
        print_json(answer)
        return
    screen = console()
    if health and any(node.health for node in answer.nodes):
        screen.print(health_table(answer.nodes, screen.width))
        return
    if health:
        screen.print(
            "no machine reports the health of its GPUs: the engine cannot query a driver on any "
            "of them"
        )
        return
    screen.print(*troubles, nodes_table(answer.nodes, held, screen.width), sep="\n")


def _check(client: ServiceClient, nodes: Nodes, *, as_json: bool) -> int:
    """Print what opening the GPUs of each machine showed; 1 if one has a fault."""
    faulty, answers = False, []
    for node in nodes.nodes:
        try:
            answer = client.post(NodeCheck, at("nodes", node.id, "check"))
        except RequestRefused as error:
            answers.append({"id": node.id, "refused": error.what})
            line = error.what
        else:
            answers.append(asdict(answer))
            faults = [f"GPU {gpu.gpu}: {gpu.fault}" for gpu in answer.gpus if gpu.fault]
            faulty = faulty or bool(faults)
            well = (
                f"{say_gpus(len(answer.gpus))} can be opened"
                if answer.gpus
                else "CUDA is not installed there"
            )
            line = f"{node.id}: {'; '.join(faults) or well}"
        if not as_json:
            console().print(line, markup=False)
    if as_json:
        print_json({"nodes": answers})
    return int(faulty)


def drain(
    node: Annotated[
        str,
        typer.Argument(
            help="A machine (`weft nodes`), or some of its GPUs: n1:2 or n1:0,2-3.",
            metavar="NODE[:GPUS]",
        ),
    ],
    when_done: Annotated[
        bool, typer.Option("--when-done", help="Let the jobs there run to their end.")
    ] = False,
    why: Annotated[str, typer.Option("--why", help="Say why, for those who ask later.")] = "",
    as_json: o.AsJson = False,
) -> None:
    """Move every job off a machine and place no more there.

    Stops all its jobs, including those that may not be preempted: they have their grace time to
    write a checkpoint, then wait to start elsewhere from the last one. Use `weft cancel` for jobs
    that should not come back. The machine stays drained, also across restarts, until `weft
    undrain`.
    """
    text = f"{node} is drained; its jobs are asked to leave and start again elsewhere"
    if when_done:
        text = f"{node} gets no more jobs; the jobs there run to their end"
    name, _, gpus = node.partition(":")
    _tell(name, "drain", text, as_json=as_json, gpus=gpus, when_done=when_done, why=why)


def undrain(node: NodeId, as_json: o.AsJson = False) -> None:
    """Put a machine that was drained or set aside back into service."""
    _tell(node, "undrain", f"{node} is in use again", as_json=as_json)


def _tell(
    node: str,
    what: str,
    text: str,
    *,
    as_json: bool,
    gpus: str = "",
    when_done: bool = False,
    why: str = "",
) -> None:
    with user_errors():
        options = {"gpus": gpus, "when_done": "true" * when_done, "why": why}
        chosen = {name: value for name, value in options.items() if value}
        query = urlencode(chosen, errors=ANY_TEXT)
        answer = ServiceClient().post(
            Done, at("nodes", node, what) + (f"?{query}" if query else "")
        )
    if as_json:
        print_json(answer)
    else:
        console().print(text)
