"""A verdict in words: a table, findings a line each, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from weft.judge.finding import CHECKS, FORETOLD, Finding, Weight
from weft.judge.judge import Verdict

SHOWN = 20
CALENDAR_S = 1e8  # later times are seconds since the epoch, earlier ones since a simulation began


def describe(verdict: Verdict, shown: int | None = SHOWN) -> Iterator[str]:
    """Lines for a terminal; at most `shown` findings, None for all."""
    begin, end = say_time(verdict.begin), say_time(verdict.end)
    yield f"{verdict.where}: {verdict.lines:,} events from {begin} to {end}"
    if not verdict.whole:
        yield "the log has no beginning: jobs from before are not judged"
    yield ""
    yield from say_promises(verdict)
    for check, meaning in CHECKS.items():
        yield f"{check:9} {say_weights(verdict, check):22} {meaning}"
        for word, number in verdict.numbers.get(check, {}).items():
            yield f"{'':33}{number:,.6g} {word}"
    findings = verdict.findings if shown is None else verdict.findings[:shown]
    if findings:
        yield ""
    yield from map(say_finding, findings)
    if more := len(verdict.findings) - len(findings):
        yield f"and {more} more: --all shows them"


def say_promises(verdict: Verdict) -> Iterator[str]:
    """Yield tables of promises and of what tenants were entitled to, and how much of it held."""
    if verdict.promises:
        yield f"{'promised':44}{'made':>8}{'kept':>8}"
    for (what, who), (made, kept) in sorted(verdict.promises.items()):
        yield f"{f'{what} ({who})':44}{made:8,}{kept:8,}{kept / made:8.0%}"
    due = {t: a for t, a in verdict.tenants.items() if a.entitled_s}
    if due:
        yield f"{'tenant':20}{'entitled to':>16}{'had of that':>16}{'had in all':>16}  GPU-hours"
    for tenant, account in sorted(due.items()):
        hours = (account.entitled_s, account.met_s, account.gpu_s)
        numbers = "".join(f"{seconds / 3600.0:16,.2f}" for seconds in hours)
        yield f"{tenant or 'no tenant':20}{numbers}"
    if verdict.promises or due:
        yield ""


def say_weights(verdict: Verdict, check: str) -> str:
    """`2 wrong, 1 in doubt`, `ok`, or that the log has nothing on it."""
    weights = [f.weight for f in verdict.findings if f.check == check]
    wrong, doubts = weights.count(Weight.WRONG), weights.count(Weight.DOUBT)
    words = [f"{wrong} wrong"] * bool(wrong) + [f"{doubts} in doubt"] * bool(doubts)
    nothing = check == FORETOLD and not verdict.starts
    return ", ".join(words) or ("nothing was said" if nothing else "ok")


def say_finding(finding: Finding) -> str:
    """`wrong  stops/swap  at 12:03, line 7: a, b: why`."""
    jobs = f"{', '.join(finding.jobs)}: " if finding.jobs else ""
    what = f"{finding.check}/{finding.what}"
    weight = finding.weight.name.lower()
    return f"{weight:6} {what:24} {say_time(finding.at)}, line {finding.line}: {jobs}{finding.text}"


def say_time(at: float) -> str:
    """A date and a time of day; seconds in a simulation."""
    if at < CALENDAR_S:
        return f"{at:,.0f} s"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_values(verdict: Verdict) -> dict[str, Any]:
    """All of it as JSON has it."""
    return {
        "where": verdict.where,
        "events": verdict.lines,
        "begin": verdict.begin,
        "end": verdict.end,
        "whole": verdict.whole,
        "wrong": verdict.wrong,
        "doubts": sum(f.weight is Weight.DOUBT for f in verdict.findings),
        "promises": [
            {"what": what, "who": who, "made": made, "kept": kept}
            for (what, who), (made, kept) in sorted(verdict.promises.items())
        ],
        "tenants": [
            {
                "tenant": tenant,
                "jobs": account.jobs,
                "gpu_seconds": account.gpu_s,
                "entitled_gpu_seconds": account.entitled_s,
                "met_gpu_seconds": account.met_s,
            }
            for tenant, account in sorted(verdict.tenants.items())
        ],
        "numbers": {check: dict(numbers) for check, numbers in verdict.numbers.items()},
        "findings": [
            {
                "check": f.check,
                "what": f.what,
                "weight": f.weight.name.lower(),
                "at": f.at,
                "line": f.line,
                "jobs": list(f.jobs),
                "text": f.text,
            }
            for f in verdict.findings
        ],
    }
