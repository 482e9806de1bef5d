"""What the service's answers look like in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.cli.view import words
from weft.cli.view.tables import MOST_NAME, Column, Row, details, fitted
from weft.report.units import number

DEVICES_SHOWN = 8


def jobs_table(jobs: Iterable[Row], now: float, width: int) -> Table:
    """A row a job."""
    return fitted(
        [
            Column("id", lambda job: str(job["id"])),
            Column("name", named, drop=3, most=MOST_NAME),
            Column("state", words.state),
            Column("gpus", words.gpus, drop=1),
            Column("batch", words.batch, drop=4, right=True),
            Column("goodput", words.goodput, drop=5, right=True),
            Column("done", words.percent_done, drop=4, right=True),
            Column("for", lambda job: words.span(job, now), drop=2, right=True),
            Column("restarts", lambda job: str(job.get("restarts") or ""), drop=8, right=True),
            Column("tenant", lambda job: job.get("tenant") or "", drop=7, most=16),
            Column("on", words.where, drop=9, most=24),
            Column("reason", words.reason, drop=6, rest=True),
        ],
        jobs,
        width,
    )


def named(job: Row) -> str:
    """The name, unless the id says it already."""
    name = words.plain(job.get("name"))
    return "" if str(job["id"]).startswith(name) else name


def job_details(job: Row, now: float) -> Table:
    """Everything about one job."""
    return details(
        [
            ("id", job["id"]),
            ("name", named(job)),
            ("state", words.state(job)),
            ("reason", job.get("reason")),
            ("asks for", words.asked(job)),
            ("holds", words.gpus(job)),
            ("on", words.where(job)),
            ("progress", words.progress(job)),
            ("batch", words.batch(job)),
            ("goodput", words.goodput(job)),
            ("restarts", job.get("restarts") or ""),
            ("attempt", job.get("attempt") or ""),
            ("tenant", job.get("tenant")),
            ("user", job.get("user")),
            ("priority", job.get("priority") or ""),
            ("submitted", words.moment(job.get("submitted"))),
            ("started", words.moment(job.get("started"))),
            ("ended", words.moment(job.get("ended"))),
            ("took" if job.get("ended") else "for", words.span(job, now)),
            ("GPU time", words.seconds(job.get("gpu_seconds") or None)),
            ("command", words.command(job)),
            *((f"{one['level']}", notice(one)) for one in job.get("notices") or ()),
        ]
    )


def notice(one: Row) -> Text:
    """Something a job said that a person should read."""
    style = {"error": "red", "warning": "yellow"}.get(str(one["level"]), "")
    return Text(f"{words.moment(one['at'])}  {words.plain(one['text'])}", style=style)


def nodes_table(nodes: Iterable[Row], jobs: Sequence[Row], width: int) -> Table:
    """A row a machine, with who is on it."""
    here = {node["id"]: _on(node["id"], jobs) for node in nodes}
    return fitted(
        [
            Column("node", lambda node: str(node["id"]), most=32),
            Column("state", _node_state),
            Column("kind", lambda node: str(node.get("kind", ""))),
            Column("gpus", lambda node: str(node["gpus"]), right=True),
            Column("held", lambda node: str(_held(node["id"], jobs)), right=True),
            Column("cpus", lambda node: _count(node.get("cpus")), drop=2, right=True),
            Column("memory", lambda node: _gb(node.get("mem_gb")), drop=3, right=True),
            Column("jobs", lambda node: ", ".join(label(j) for j in here[node["id"]]), drop=4),
        ],
        nodes,
        width,
    )


def label(job: Row) -> str:
    """What a job is called where there is little room."""
    return words.plain(job.get("name") or job["id"])


def cluster_line(cluster: Mapping[str, Any], jobs: Sequence[Row]) -> Text:
    """The whole in one line."""
    waiting = [job for job in jobs if job["state"] in ("pending", "preempted")]
    running = [job for job in jobs if job["state"] in words.HOLDING]
    goodput = sum(float(job.get("goodput") or 0.0) for job in running)
    parts = [
        (f"policy {cluster.get('policy', '?')}", "bold"),
        (f"engine {str(cluster.get('engine', '?')).partition(':')[0]}", ""),
        (f"{cluster.get('held', 0):g} of {cluster.get('gpus', 0)} held", ""),
        (f"{len(running)} running", "green"),
        (f"{len(waiting)} waiting", "yellow" if waiting else ""),
    ]
    if goodput:
        parts.append((f"goodput {number(goodput)}/s", "cyan"))
    line = Text()
    for i, (text, style) in enumerate(parts):
        line.append(" · " if i else "", style="dim")
        line.append(text, style=style)
    return line


def devices_table(nodes: Sequence[Row], jobs: Sequence[Row]) -> Table:
    """Who holds which device: a row a node, a cell a device, several jobs where it is shared."""
    most = max((min(int(node["gpus"]), DEVICES_SHOWN) for node in nodes), default=0)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("", style="dim", no_wrap=True, max_width=16, overflow="ellipsis")
    for device in range(most):
        table.add_column(str(device), ratio=1, no_wrap=True, overflow="ellipsis")
    for node in nodes:
        table.add_row(str(node["id"]), *_devices(node, jobs, most))
    return table


def board(
    cluster: Mapping[str, Any], nodes: Sequence[Row], jobs: Sequence[Row], now: float, width: int
) -> RenderableType:
    """The live view: the cluster, its devices, who runs, who waits."""
    active = [job for job in jobs if job["state"] in words.HOLDING]
    queue = [job for job in jobs if job["state"] in ("pending", "preempted")]
    parts: list[RenderableType] = [
        cluster_line(cluster, jobs),
        *trouble(cluster),
        *warnings(cluster),
        Text(),
    ]
    if nodes:
        parts += [devices_table(nodes, active), Text()]
    if active:
        parts += [jobs_table(active, now, width), Text()]
    if queue:
        parts += [Text("queue", style="bold"), queue_table(queue, now, width)]
    if not active and not queue:
        parts.append(Text("no job runs or waits", style="dim"))
    return Group(*parts)


def trouble(cluster: Mapping[str, Any]) -> list[RenderableType]:
    """What a person should know about the service itself; mostly nothing."""
    said = cluster.get("trouble")
    return [Text(f"trouble: {words.plain(said)}", style="bold red")] if said else []


def warnings(cluster: Mapping[str, Any]) -> list[RenderableType]:
    """A line for each thing that is open to others; admins are told."""
    return [Text(words.plain(said), style="yellow") for said in cluster.get("warnings") or ()]


def queue_table(queue: Sequence[Row], now: float, width: int) -> Table:
    """Who waits, for how long, and why."""
    return fitted(
        [
            Column("id", lambda job: str(job["id"])),
            Column("name", named, drop=2, most=MOST_NAME),
            Column("state", words.state),
            Column("waits", lambda job: _waited(job, now), right=True),
            Column("why", words.reason, drop=1, rest=True),
        ],
        queue,
        width,
    )


def _waited(job: Row, now: float) -> str:
    return words.seconds(max(now - (job.get("submitted") or now), 0.0))


def _devices(node: Row, jobs: Sequence[Row], most: int) -> list[Text]:
    if node.get("state", "up") != "up":
        return [Text(str(node["state"]), style="red")]
    cells = []
    for device in range(min(int(node["gpus"]), most)):
        holders = [
            job
            for job in jobs
            for part in job.get("allocation") or ()
            if part["node"] == node["id"] and device in part["gpus"]
        ]
        text = " + ".join(label(job) for job in holders)
        cells.append(Text(text or "·", style="green" if holders else "dim"))
    return cells


def _on(node: str, jobs: Sequence[Row]) -> list[Row]:
    return [
        job
        for job in jobs
        if any(part["node"] == node and part["gpus"] for part in job.get("allocation") or ())
    ]


def _held(node: str, jobs: Sequence[Row]) -> int:
    parts = (part for job in jobs for part in job.get("allocation") or ())
    return len({gpu for part in parts if part["node"] == node for gpu in part["gpus"]})


def _node_state(node: Row) -> Text:
    state = str(node.get("state", "up"))
    return Text(state, style={"up": "green", "drained": "yellow"}.get(state, "bold red"))


def _count(value: float | None) -> str:
    return "" if not value else f"{value:g}"


def _gb(value: float | None) -> str:
    return "" if not value else f"{value:.0f} GB"
