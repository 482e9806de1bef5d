"""A job's fields as short texts for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.text import Text

from weft.report.units import duration, number
from weft.service.responses.answers import JobAnswer, Part

ENDED = ("succeeded", "failed", "cancelled")
HOLDING = ("starting", "running", "checkpointing")
STYLES = {
    "pending": "yellow",
    "preempted": "yellow",
    "suspended": "magenta",
    "starting": "cyan",
    "checkpointing": "cyan",
    "running": "green",
    "succeeded": "bold green",
    "failed": "bold red",
    "cancelled": "dim",
}
BAR, SHORT = 20, 8

Parts = Sequence[Part] | None


def state(word: str) -> Text:
    """The state, coloured by what it means."""
    return Text(word, style=STYLES.get(word, ""))


def gpus(held: Parts) -> str:
    """Return how many devices of each kind it holds: `2 h200`, `1 cpu x 0.5` where it is shared.

    Of a job without devices: `2 CPUs`.
    """
    count = sum(len(part.gpus) for part in held or ())
    if not count:
        cpus = sum(part.cpus for part in held or ())
        return f"{cpus:g} CPU{'s' * (cpus != 1)}" if cpus else ""
    kinds = "+".join(dict.fromkeys(part.kind for part in held or ()))
    share = "" if share_of(held) >= 1.0 else f" x {share_of(held):.2g}"
    return f"{count} {kinds}{share}"


def reason(job: JobAnswer) -> str:
    """Return the reason for a job's state, if the state alone does not say it."""
    text = plain(job.reason)
    return "" if text == job.state else text


def describe_after(job: JobAnswer) -> str:
    """The jobs that it is to run after."""
    ways = {"ok": "succeeded", "any": "ended", "not_ok": "failed"}
    return "; ".join(f"{', '.join(names)} {ways[how]}" for how, names in job.after.items())


def describe_demand(job: JobAnswer) -> str:
    """`2 GPUs`, `1 to 4 GPUs`, `8 GPUs on 2 nodes`, `2 CPUs and 4 GB` without any."""
    least, most = job.gpus.min, job.gpus.max
    if not most:
        memory = f" and {job.mem_gb:g} GB" if job.mem_gb else ""
        return f"{job.cpus or 0.0:g} CPU{'s' * (job.cpus != 1)}{memory}"
    count = f"{least} to {most}" if least != most else f"{most}"
    where = f" on {job.nodes} node{'s' * (job.nodes != 1)}" if job.nodes else ""
    return f"{count} {job.device}{'s' * (most != 1)}{where}"


def share_of(held: Parts) -> float:
    """The claim on each device; 1 is the whole."""
    return min((part.share for part in held or ()), default=1.0)


def where(held: Parts) -> str:
    """Devices by node: `n0:0,1 n1:0`."""
    return " ".join(
        f"{part.node}:{ranges(part.gpus)}" if part.gpus else part.node for part in held or ()
    )


def ranges(numbers: list[int]) -> str:
    """`0-3,6` for 0 1 2 3 6."""
    spans: list[list[int]] = []
    for value in sorted(numbers):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def batch(job: JobAnswer) -> str:
    """Samples of a step, where the job reports them."""
    return "" if not job.batch else f"{job.batch:,.0f}"


def goodput(job: JobAnswer) -> str:
    """Useful samples per second, where the job reports them."""
    return "" if not job.goodput or job.state in ENDED else f"{number(job.goodput)}/s"


def speed(job: JobAnswer) -> str:
    """Useful samples per second, or steps where nothing more is known."""
    steps = job.measured.steps_per_s if job.measured else None
    if job.goodput or not steps or job.state in ENDED:
        return goodput(job)
    return f"{number(steps)} steps/s"


def steps(job: JobAnswer) -> str:
    """`1,200 of 5,000 steps, about 3 m left`, where they are counted."""
    seen = job.measured
    if seen is None or seen.steps is None:
        return ""
    whole = f" of {seen.total_steps:,.0f}" if seen.total_steps else ""
    left = (
        "" if seen.left_s is None or job.state in ENDED else f", about {seconds(seen.left_s)} left"
    )
    return f"{seen.steps:,.0f}{whole}{left}"


def device_use(job: JobAnswer) -> str:
    """GPU memory now and at most, and how busy it keeps the GPU."""
    seen = job.measured
    if seen is None or job.state in ENDED:
        return ""
    held, peak = seen.gpu_mem_gb, seen.gpu_mem_peak_gb
    parts = [
        "" if not held else f"{held:.1f} GB" + (f", at most {peak:.1f} GB" if peak else ""),
        "" if seen.gpu_busy is None else f"busy {100 * seen.gpu_busy:.0f} % of the time",
    ]
    return ", ".join(filter(None, parts))


def waits_for_data(job: JobAnswer) -> str:
    """The part of its time in which training waits for data."""
    part = job.measured.waits_for_data if job.measured else None
    return "" if part is None or job.state in ENDED else f"{100 * part:.0f} % of the time"


def percent_done(job: JobAnswer) -> str:
    """`45 %`, where the job reports it."""
    return "" if job.progress is None else f"{int(100 * min(max(job.progress, 0.0), 1.0))} %"


def short_progress(job: JobAnswer) -> str:
    """A short bar and a number, where the job reports how far it is."""
    if job.progress is None:
        return ""
    return f"{bar(job.progress, 1.0, SHORT)} {percent_done(job):>5}"


def bar(part: float, whole: float, width: int = SHORT) -> str:
    """`━━━···` for a half."""
    full = round(min(max(part / whole, 0.0), 1.0) * width) if whole else 0
    return "━" * full + "·" * (width - full)


def progress(job: JobAnswer) -> str:
    """A bar and a number, where the job reports how far it is."""
    if job.progress is None:
        return ""
    return f"{bar(job.progress, 1.0, BAR)} {percent_done(job)}"


def span(job: JobAnswer, now: float) -> str:
    """Return how long it has run, or waited if it never ran; the whole of it once it has ended."""
    since = job.submitted if job.started is None else job.started
    return seconds(max((job.ended or now) - since, 0.0))


def due(job: JobAnswer, now: float) -> str:
    """Return the time until its deadline; `missed` once that came before its end."""
    if job.deadline is None or (job.state in ENDED and not job.deadline_missed):
        return ""
    return "missed" if job.deadline_missed else seconds(max(job.deadline - now, 0.0))


def deadline(job: JobAnswer, now: float) -> str:
    """The deadline, and what happened to it."""
    if job.deadline is None:
        return ""
    parts = [due(job, now), f"or {job.deadline_or}" if job.deadline_or else ""]
    left = ", ".join(filter(None, parts))
    return moment(job.deadline) + (f" ({left})" if left else "")


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
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def command(job: JobAnswer) -> str:
    """The command as a shell would take it."""
    return shlex.join(job.command)


def plain(text: object) -> str:
    """One line without control characters: names and reasons may hold anything."""
    return "".join(c if c.isprintable() else " " for c in str(text or "")).strip()


def readable(text: str) -> str:
    """The lines of a text without control characters, for a terminal obeys those."""
    if text.isprintable() or text == "\n":
        return text
    kept = (c if c.isprintable() or c in "\n\t" else " " * c.isspace() for c in text)
    return "".join(kept)
