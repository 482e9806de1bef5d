"""The service's answers as text and tables for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from weft.cli.view import words
from weft.cli.view.tables import MOST_NAME, TableColumn, details, fit_columns
from weft.cli.view.words import ENDED
from weft.core.errors import InvalidConfig
from weft.core.plan.reasons import device_word
from weft.report.units import number
from weft.service.responses.answers import ClusterAnswer, JobAnswer, NodeAnswer, Notice
from weft.service.responses.job_row import GpuHealth, StateWord

DEVICES_SHOWN = 8
MOST_METRICS = 4  # of a sweep that are shown where none was chosen
NODE_WIDTH, DEVICE_WIDTH = 16, 24  # characters at most
# Neighbours have different colours; red and yellow mark what needs attention.
PALETTE = ("green", "cyan", "magenta", "blue", "bright_green", "bright_cyan", "bright_magenta")
NODE_STYLES = {
    "up": "green",
    "draining": "yellow",
    "drained": "yellow",
    "set aside": "bold red",
    "down": "bold red",
}
# What a sweep is said to be: the first of these that any of its jobs is.
FIRST: tuple[StateWord, ...] = (
    *("running", "starting", "checkpointing", "preempted", "pending", "suspended"),
    *("failed", "cancelled", "succeeded"),
)


def jobs_table(
    jobs: Sequence[JobAnswer], now: float, width: int, more: Sequence[TableColumn[JobAnswer]] = ()
) -> Table:
    """One row per job, with `more` columns after its state."""
    columns: list[TableColumn[JobAnswer]] = [
        TableColumn("id", lambda job: job.id),
        TableColumn("name", name_column(jobs), drop=5, most=MOST_NAME),
        TableColumn("state", lambda job: words.state(job.state)),
        *more,
        TableColumn(
            _heading(job.device for job in jobs), lambda job: words.gpus(job.allocation), drop=2
        ),
        TableColumn("batch", words.batch, drop=6, right=True),
        TableColumn("goodput", words.speed, drop=6, right=True),
        TableColumn("done", words.short_progress, drop=4),
        TableColumn("for", lambda job: words.span(job, now), drop=3, right=True),
        TableColumn("due", lambda job: words.due(job, now), drop=5, right=True),
        TableColumn("restarts", lambda job: str(job.restarts or ""), drop=8, right=True),
        TableColumn("tenant", lambda job: job.tenant, drop=7, most=16),
        TableColumn("on", lambda job: words.where(job.allocation), drop=9, most=24),
        TableColumn("reason", words.reason, drop=1, rest=True),
    ]
    return fit_columns(columns, jobs, width)


def sweep_columns(
    jobs: Sequence[JobAnswer], metrics: Sequence[str]
) -> list[TableColumn[JobAnswer]]:
    """A column for each parameter of a sweep and each of these metrics; default: the first few."""
    names = list(dict.fromkeys(name for job in jobs for name in job.parameters))
    measured = list(dict.fromkeys(name for job in jobs for name in job.metrics))
    columns: list[TableColumn[JobAnswer]] = [
        TableColumn(words.plain(name), partial(_parameter, name)) for name in names
    ]
    columns += [
        TableColumn(words.plain(name), partial(_metric, name), right=True)
        for name in metrics or measured[:MOST_METRICS]
    ]
    return columns


def _parameter(name: str, job: JobAnswer) -> str:
    return job.parameters.get(name, "")


def _metric(name: str, job: JobAnswer) -> str:
    held = job.metrics.get(name)
    return "" if held is None else "nan" if held.value is None else f"{held.value:.5g}"


def sort_by_metric(jobs: Sequence[JobAnswer], order: str) -> list[JobAnswer]:
    """Jobs by the last value of a metric, least first; most first after a `-`. Those without last.

    InvalidConfig if none has it.
    """
    sign, name = (-1.0, order[1:]) if order.startswith("-") else (1.0, order)
    known = dict.fromkeys(metric for job in jobs for metric in job.metrics)
    if name not in known:
        some = ", ".join([*known][:8]) or "none"
        raise InvalidConfig(f"no job has a metric {name!r}", hint=f"there are: {some}")

    def key(job: JobAnswer) -> tuple[bool, float]:
        held = job.metrics.get(name)
        value = None if held is None else held.value
        return value is None, 0.0 if value is None else sign * value

    return sorted(jobs, key=key)


def _heading(devices: Iterable[str]) -> str:
    """Return the heading of a column that counts devices."""
    return "slots" if {*devices} == {"CPU slot"} else "gpus"


def name_column(jobs: Sequence[JobAnswer]) -> Callable[[JobAnswer], str]:
    """Every job's name, where the ids do not say them all already; else nothing."""
    named = any(map(distinct_name, jobs))
    return lambda job: words.plain(job.name) if named else ""


def distinct_name(job: JobAnswer) -> str:
    """The name, unless the id says it already."""
    name = words.plain(job.name)
    return "" if job.id.startswith(name) else name


def job_details(job: JobAnswer, now: float) -> Table:
    """Everything about one job."""
    return details(
        [
            ("id", job.id),
            ("name", distinct_name(job)),
            ("state", words.state(job.state)),
            ("reason", job.reason),
            ("asks for", words.describe_demand(job)),
            ("part of", job.app),
            ("parameters", ", ".join(f"{k}={v}" for k, v in job.parameters.items())),
            ("after", words.describe_after(job)),
            ("holds", words.gpus(job.allocation)),
            ("on", words.where(job.allocation)),
            ("plan", job.plan),
            ("can run", ", ".join(job.plans)),
            ("progress", words.progress(job)),
            ("batch", words.batch(job)),
            ("goodput", words.speed(job)),
            ("steps", words.steps(job)),
            ("uses of GPU", words.device_use(job)),
            ("waits for data", words.waits_for_data(job)),
            ("restarts", job.restarts or ""),
            ("attempt", job.attempt or ""),
            ("pids", ", ".join(map(str, job.pids))),
            ("tenant", job.tenant),
            ("user", job.user),
            ("priority", job.priority),
            ("deadline", words.deadline(job, now)),
            ("submitted", words.moment(job.submitted)),
            ("started", words.moment(job.started)),
            ("ended", words.moment(job.ended)),
            ("took" if job.ended else "for", words.span(job, now)),
            (f"{job.device} time", words.seconds(job.gpu_seconds or None)),
            ("command", words.command(job)),
            *((entry.level, notice(entry)) for entry in job.notices),
        ]
    )


def notice(entry: Notice) -> Text:
    """Something a job said that a person should read."""
    style = {"error": "red", "warning": "yellow"}.get(entry.level, "")
    return Text(f"{words.moment(entry.at)}  {words.plain(entry.text)}", style=style)


def nodes_table(nodes: Iterable[NodeAnswer], jobs: Sequence[JobAnswer], width: int) -> Table:
    """A row per machine, with the jobs on it."""
    rows = list(nodes)
    columns: list[TableColumn[NodeAnswer]] = [
        TableColumn("node", lambda node: node.id, most=32),
        TableColumn("state", _node_state),
        TableColumn("kind", lambda node: node.kind),
        TableColumn(
            _heading(device_word([node.kind]) for node in rows),
            lambda node: str(node.gpus),
            right=True,
        ),
        TableColumn("held", lambda node: str(node.held), right=True),
        TableColumn("use", lambda node: words.bar(node.held, node.gpus), drop=1),
        TableColumn("cpus", lambda node: _count(node.cpus), drop=2, right=True),
        TableColumn("memory", lambda node: _gb(node.mem_gb), drop=3, right=True),
        TableColumn("jobs", lambda node: ", ".join(map(label, _on(node.id, jobs))), drop=4),
    ]
    if any(node.links for node in rows):
        columns.insert(
            3, TableColumn("links", lambda node: words.plain(node.links), drop=2, most=24)
        )
    if any(node.reason for node in rows):
        columns.append(
            TableColumn("reason", lambda node: words.plain(node.reason), drop=4, most=60)
        )
    return fit_columns(columns, rows, width)


def health_table(nodes: Iterable[NodeAnswer], width: int) -> Table:
    """One row per GPU about which its driver reports anything."""
    columns: list[TableColumn[tuple[str, GpuHealth]]] = [
        TableColumn("node", lambda row: row[0], most=32),
        TableColumn("gpu", lambda row: str(row[1].gpu), right=True),
        TableColumn("state", lambda row: _gpu_state(row[1])),
        TableColumn("seen", lambda row: ", ".join(map(words.plain, row[1].notes)), drop=1),
        TableColumn("fault", lambda row: words.plain(row[1].fault), rest=True),
    ]
    return fit_columns(columns, [(node.id, gpu) for node in nodes for gpu in node.health], width)


def label(job: JobAnswer) -> str:
    """Return a short name of a job, for little room."""
    return words.plain(job.name or job.id)


def cluster_line(cluster: ClusterAnswer, jobs: Sequence[JobAnswer]) -> Text:
    """The whole in one line."""
    waiting = [job for job in jobs if job.state in ("pending", "preempted")]
    running = [job for job in jobs if job.state in words.HOLDING]
    goodput = sum(job.goodput or 0.0 for job in running)
    parts = [
        (f"policy {cluster.policy}", "bold"),
        (f"engine {cluster.engine.partition(':')[0]}", ""),
        (f"{words.bar(cluster.held, cluster.gpus)} {cluster.held:g} of {cluster.gpus} held", ""),
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


def devices_table(nodes: Sequence[NodeAnswer], jobs: Sequence[JobAnswer], width: int = 80) -> Table:
    """Return a table of devices: a row per node, a cell per device with its jobs."""
    most = max((min(node.gpus, DEVICES_SHOWN) for node in nodes), default=0)
    widest = min(width, NODE_WIDTH + most * DEVICE_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="dim", width=widest)
    table.add_column("", style="dim", no_wrap=True, max_width=NODE_WIDTH, overflow="ellipsis")
    for device in range(most):
        table.add_column(str(device), ratio=1, no_wrap=True, overflow="ellipsis")
    colours = colours_of(jobs)
    for node in nodes:
        table.add_row(node.id, *_devices(node, jobs, most, colours))
    return table


def colours_of(jobs: Sequence[JobAnswer]) -> dict[str, str]:
    """A colour each, so that neighbours differ."""
    return {job.id: PALETTE[i % len(PALETTE)] for i, job in enumerate(jobs)}


def board(
    cluster: ClusterAnswer,
    nodes: Sequence[NodeAnswer],
    jobs: Sequence[JobAnswer],
    now: float,
    width: int,
) -> RenderableType:
    """The live view: the cluster, its devices, running and waiting jobs; a sweep is one line."""
    holding = [job for job in jobs if job.state in words.HOLDING]
    lines = fold_sweeps(jobs)
    active = [job for job in lines if job.state in words.HOLDING]
    queue = [job for job in lines if job.state in ("pending", "preempted", "suspended")]
    parts: list[RenderableType] = [
        cluster_line(cluster, jobs),
        *trouble(cluster),
        *warnings(cluster),
        Text(),
    ]
    if nodes:
        parts += [devices_table(nodes, holding, width), Text()]
    if active:
        parts += [jobs_table(active, now, width), Text()]
    if queue:
        parts += [Text("queue", style="bold"), queue_table(queue, now, width)]
    if not active and not queue:
        parts.append(Text("no job runs or waits", style="dim"))
    return Group(*parts)


def trouble(cluster: ClusterAnswer) -> list[RenderableType]:
    """Return warnings about the service itself; mostly none."""
    text = cluster.trouble
    return [Text(f"trouble: {words.plain(text)}", style="bold red")] if text else []


def warnings(cluster: ClusterAnswer) -> list[RenderableType]:
    """A line for each thing that is open to others, for admins."""
    return [Text(words.plain(text), style="yellow") for text in cluster.warnings]


def queue_table(queue: Sequence[JobAnswer], now: float, width: int) -> Table:
    """Waiting jobs, for how long, and why."""
    columns: list[TableColumn[JobAnswer]] = [
        TableColumn("id", lambda job: job.id),
        TableColumn("name", name_column(queue), drop=3, most=MOST_NAME),
        TableColumn("state", lambda job: words.state(job.state), drop=2),
        TableColumn("waits", lambda job: words.seconds(max(now - job.submitted, 0.0)), right=True),
        TableColumn("why", words.reason, drop=1, rest=True),
    ]
    return fit_columns(columns, queue, width)


def _devices(
    node: NodeAnswer, jobs: Sequence[JobAnswer], most: int, colours: Mapping[str, str]
) -> list[Text]:
    if node.state not in ("up", "draining"):
        return [Text(node.state, style=NODE_STYLES[node.state])]
    cells = []
    for device in range(min(node.gpus, most)):
        holders = [
            job
            for job in jobs
            for part in job.allocation or ()
            if part.node == node.id and device in part.gpus
        ]
        if holders:
            names = [Text(label(job), style=colours[job.id]) for job in holders]
            cells.append(Text(" + ").join(names))
        elif device in node.drained_gpus:
            cells.append(Text("drained", style="yellow"))
        else:
            taken = device in node.held_gpus
            cells.append(Text("in use" if taken else "·", style="dim"))
    return cells


def _on(node: str, jobs: Sequence[JobAnswer]) -> list[JobAnswer]:
    return [
        job for job in jobs if any(part.node == node and part.gpus for part in job.allocation or ())
    ]


def _gpu_state(gpu: GpuHealth) -> Text:
    word = "set aside" if gpu.aside else "used again" if gpu.fault else "well"
    return Text(word, style={"well": "green", "used again": "yellow"}.get(word, "bold red"))


def _node_state(node: NodeAnswer) -> Text:
    return Text(node.state, style=NODE_STYLES[node.state])


def _count(value: float | None) -> str:
    return "" if not value else f"{value:g}"


def _gb(value: float | None) -> str:
    return "" if not value else f"{value:.0f} GB"


def fold_sweeps(jobs: Iterable[JobAnswer]) -> list[JobAnswer]:
    """A row for each job that stands alone, and one for all of a sweep, where its first was."""
    answers: dict[str, list[JobAnswer]] = {}
    for job in jobs:
        answers.setdefault(
            f"app {job.tenant} {job.app}" if job.app else f"job {job.id}", []
        ).append(job)
    return [some[0] if len(some) == 1 else fold(some) for some in answers.values()]


def fold(jobs: Sequence[JobAnswer]) -> JobAnswer:
    """Several jobs as one: what they hold together, and how many are in which state."""
    counts = Counter(job.state for job in jobs)
    counted = ", ".join(f"{counts[state]} {state}" for state in FIRST if state in counts)
    parts = [part for job in jobs for part in job.allocation or ()]
    started = [job.started for job in jobs if job.started is not None]
    ended = [job.ended for job in jobs if job.ended is not None]
    done = sum(
        1.0 if job.state in ENDED else min(max(job.progress or 0.0, 0.0), 1.0) for job in jobs
    )
    first = jobs[0]
    return replace(
        first,
        id=first.app,
        name=first.app,
        state=next(state for state in FIRST if state in counts),
        reason=f"{len(jobs)} jobs: {counted}",
        allocation=parts or None,
        started=min(started, default=None),
        ended=max(ended) if len(ended) == len(jobs) else None,
        restarts=sum(job.restarts for job in jobs),
        gpu_seconds=sum(job.gpu_seconds for job in jobs),
        goodput=sum(job.goodput or 0.0 for job in jobs) or None,
        progress=done / len(jobs),
        batch=None,
    )
