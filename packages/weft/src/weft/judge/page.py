"""A verdict as a page of its own: the table, when things went wrong, and every finding."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from weft.judge.finding import CHECKS, Weight
from weft.judge.judge import Verdict
from weft.judge.words import say_finding, say_promises, say_time, say_weights

WIDTH, HEIGHT, SLOTS = 720, 60, 60
COLOURS = {Weight.NOTE: "#999", Weight.DOUBT: "#d9a400", Weight.WRONG: "#c0392b"}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}pre{white-space:pre-wrap}"
)


def write_page(verdict: Verdict) -> str:
    """HTML that needs no other file."""
    rows = "".join(
        f"<tr><th>{check}</th><td>{escape(say_weights(verdict, check))}</td>"
        f"<td>{escape(meaning)}</td><td>{_numbers(verdict, check)}</td></tr>"
        for check, meaning in CHECKS.items()
    )
    plots, promises = "".join(_plots(verdict)), escape("\n".join(say_promises(verdict)))
    findings = escape("\n".join(map(say_finding, verdict.findings)) or "nothing is wrong")
    begin, end = say_time(verdict.begin), say_time(verdict.end)
    return (
        f"<!doctype html><meta charset='utf-8'><title>{escape(verdict.where)}</title>"
        f"<style>{STYLE}</style><h1>What was promised, and what held</h1>"
        f"<p>{escape(verdict.where)}: {verdict.lines:,} events from {begin} to {end}</p>"
        f"<pre>{promises}</pre>{_starts(verdict)}{_tenants(verdict)}"
        f"<table>{rows}</table>{plots}<h2>Findings</h2><pre>{findings}</pre>\n"
    )


def _numbers(verdict: Verdict, check: str) -> str:
    numbers = verdict.numbers.get(check, {})
    return "<br>".join(f"{number:,.4g} {escape(word)}" for word, number in numbers.items())


def _starts(verdict: Verdict) -> str:
    """Draw each range of a predicted start as a line, and a dot where the start came."""
    if not verdict.starts:
        return ""
    points = sorted(verdict.starts, key=lambda point: point[2])
    high = HEIGHT * 3
    top = max(max(low, until, came) for low, until, came in points) or 1.0
    marks = ""
    for i, (low, until, came) in enumerate(points):
        x = (i + 0.5) * WIDTH / len(points)
        y0, y1, y = (high * (1.0 - at / top) for at in (low, until, came))
        colour = COLOURS[Weight.NOTE if low <= came <= until else Weight.DOUBT]
        marks += f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y0:.1f}' y2='{y1:.1f}' stroke='#7aa6d6'/>"
        marks += f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2' fill='{colour}'/>"
    return (
        f"<h2>starts</h2><p>Each line is a range that was shown, the dot when the job started; "
        f"the top is {top / 60.0:,.0f} min.</p>"
        f"<svg width='{WIDTH}' height='{high}' role='img'>{marks}</svg>"
    )


def _tenants(verdict: Verdict) -> str:
    """Draw what each tenant was entitled to as a bar, and how much of it its jobs had."""
    due = [(t, a) for t, a in sorted(verdict.tenants.items()) if a.entitled_s]
    if not due:
        return ""
    most, bars = max(account.entitled_s for _, account in due), ""
    for i, (tenant, account) in enumerate(due):
        y, name = i * 24, escape(tenant or "no tenant")
        for seconds, colour in ((account.entitled_s, "#d0d7de"), (account.met_s, "#7aa6d6")):
            wide = (WIDTH - 160) * seconds / most
            bars += f"<rect x='150' y='{y}' width='{wide:.1f}' height='18' fill='{colour}'/>"
        bars += f"<text x='0' y='{y + 14}'>{name}</text>"
    return (
        "<h2>tenants</h2><p>Grey: what a tenant was entitled to; blue: what of it its jobs had.</p>"
        f"<svg width='{WIDTH}' height='{len(due) * 24}' role='img'>{bars}</svg>"
    )


def _plots(verdict: Verdict) -> Iterator[str]:
    """Draw the number of findings of each check over time."""
    span = max(verdict.end - verdict.begin, 1e-9)
    for check in CHECKS:
        findings = [f for f in verdict.findings if f.check == check]
        if not findings:
            continue
        counts = dict.fromkeys(((slot, w) for slot in range(SLOTS) for w in Weight), 0)
        for finding in findings:
            slot = int((finding.at - verdict.begin) / span * SLOTS)
            counts[min(max(slot, 0), SLOTS - 1), finding.weight] += 1
        most = max(sum(counts[slot, w] for w in Weight) for slot in range(SLOTS))
        bars = "".join(_bar(counts, slot, most) for slot in range(SLOTS))
        yield f"<h2>{check}</h2><svg width='{WIDTH}' height='{HEIGHT}' role='img'>{bars}</svg>"


def _bar(counts: dict[tuple[int, Weight], int], slot: int, most: int) -> str:
    wide, top, text = WIDTH / SLOTS, float(HEIGHT), ""
    for weight in reversed(Weight):
        high = HEIGHT * counts[slot, weight] / most
        top -= high
        if high:
            place = (
                f"x='{slot * wide:.1f}' y='{top:.1f}' width='{wide - 1:.1f}' height='{high:.1f}'"
            )
            text += f"<rect {place} fill='{COLOURS[weight]}'/>"
    return text
