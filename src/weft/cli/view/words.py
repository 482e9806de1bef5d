"""A job's fields as short texts for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from weft.report.units import duration, number

ENDED = ("succeeded", "failed", "cancelled")
HOLDING = ("starting", "running", "checkpointing", "unknown")
STYLES = {
    "pending": "yellow",
    "preempted": "yellow",
    "starting": "cyan",
    "checkpointing": "cyan",
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "unknown": "bold red",
    "cancelled": "dim",
}
BAR = 20

Job = Mapping[str, Any]


def state(job: Job) -> Text:
    """The state, coloured by what it means."""
    return Text(str(job["state"]), style=STYLES.get(str(job["state"]), ""))


def gpus(job: Job) -> str:
    """How many devices of which kind it holds: `2 h200`, `1 cpu shared`."""
    parts = job.get("allocation") or ()
    count = sum(len(part["gpus"]) for part in parts)
    if not count:
        return ""
    kinds = "+".join(dict.fromkeys(str(part.get("kind", "")) for part in parts))
    share = "" if share_of(job) >= 1.0 else f" x {share_of(job):.2g}"
    return f"{count} {kinds}{share}"


def reason(job: Job) -> str:
    """Why it is in its state, where the state alone does not say it."""
    said = plain(job.get("reason"))
    return "" if said == job["state"] else said


def asked(job: Job) -> str:
    """`2 GPUs`, `1 to 4 GPUs`."""
    wanted = job.get("gpus")
    if not isinstance(wanted, Mapping):
        return ""
    least, most = wanted["min"], wanted["max"]
    count = f"{least} to {most}" if least != most else f"{most}"
    return f"{count} GPU{'s' * (most != 1)}"


def share_of(job: Job) -> float:
    """Its claim on each device; 1 is the whole."""
    return min((float(p.get("share") or 1.0) for p in job.get("allocation") or ()), default=1.0)


def where(job: Job) -> str:
    """Devices by node: `n0:0,1 n1:0`."""
    parts = job.get("allocation") or ()
    return " ".join(f"{part['node']}:{ranges(part['gpus'])}" for part in parts)


def ranges(numbers: list[int]) -> str:
    """`0-3,6` for 0 1 2 3 6."""
    spans: list[list[int]] = []
    for one in sorted(numbers):
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def batch(job: Job) -> str:
    """Samples of a step, where the job reports them."""
    value = job.get("batch")
    if isinstance(value, Mapping):
        value = value.get("total") or value.get("init")
    return "" if not value else f"{float(value):,.0f}"


def goodput(job: Job) -> str:
    """Useful samples a second, where the job reports them."""
    value = job.get("goodput")
    return "" if not value or job["state"] in ENDED else f"{number(float(value))}/s"


def percent_done(job: Job) -> str:
    """`45 %`, where the job reports it."""
    value = job.get("progress")
    return "" if value is None else f"{int(100 * min(max(float(value), 0.0), 1.0))} %"


def progress(job: Job) -> str:
    """A bar and a number, where the job reports how far it is."""
    value = job.get("progress")
    if value is None:
        return ""
    done = min(max(float(value), 0.0), 1.0)
    full = round(done * BAR)
    return f"{'━' * full}{'·' * (BAR - full)} {percent_done(job)}"


def span(job: Job, now: float) -> str:
    """How long it has run, or waited if it never ran; the whole of it once it has ended."""
    since = job.get("started") or job.get("submitted")
    if since is None:
        return ""
    return seconds(max((job.get("ended") or now) - since, 0.0))


def seconds(value: float | None) -> str:
    """`1.4 s`, `42 s`, `7.3 min`, `5.61 h`."""
    if value is None:
        return ""
    if value < 100.0:
        return f"{value:.1f} s" if value < 10.0 else f"{value:.0f} s"
    return duration(float(value) / 3600.0)


def moment(at: float | None) -> str:
    """Local time of day, with the date."""
    if at is None:
        return ""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def command(job: Job) -> str:
    """The command as a shell would take it."""
    import shlex

    said = job.get("command") or ()
    return said if isinstance(said, str) else shlex.join(said)


def plain(text: object) -> str:
    """One line without control characters: names and reasons may hold anything."""
    return "".join(c if c.isprintable() else " " for c in str(text or "")).strip()
