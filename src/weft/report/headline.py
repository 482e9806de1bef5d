"""What a comparison says, in a sentence or two, and how policies differ from the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from statistics import fmean

from weft.formulas.metrics import METRICS, Metric
from weft.formulas.statistics import differs, interval
from weft.report.units import human
from weft.sim.result import Outcome, Outcomes

SAME = 0.005  # relative differences below are no differences


def headline(outcomes: Outcomes) -> str:
    """The shortest average completion time, by how much, and whether that holds."""
    means = {policy: _values(each, "avg_jct_h") for policy, each in outcomes.items()}
    known = {policy: values for policy, values in means.items() if values}
    if len(known) < 2:
        return _alone(known)
    best = min(known, key=lambda policy: fmean(known[policy]))
    first = next(iter(known))
    other = (
        first
        if best != first
        else min((p for p in known if p != best), key=lambda policy: fmean(known[policy]))
    )
    less = 1.0 - fmean(known[best]) / fmean(known[other]) if fmean(known[other]) else 0.0
    took = human(3600.0 * fmean(known[best]))
    if less < SAME:
        return f"{_name(best)} and {_name(other)} finish jobs about as fast: {took} on average."
    seeds = len(known[best])
    holds = differs(known[best], known[other])
    sure = (
        ""
        if seeds == 1
        else (
            f" That holds over {seeds} seeds."
            if holds
            else f" Over {seeds} seeds that may be chance."
        )
    )
    return (
        f"{_name(best)} finishes jobs fastest: {took} on average, {100.0 * less:.0f} % less than "
        f"{_name(other)}.{sure}"
    )


def against_first(outcomes: Outcomes) -> str:
    """One row per policy: differences from the first, seed by seed; a star for what holds."""
    policies = list(outcomes)
    if len(policies) < 2:
        return ""
    shown = [metric for metric in METRICS if metric.relative]
    heads = "".join(f'<th scope="col">{escape(m.heading or m.name)}</th>' for m in shown)
    rows = "".join(
        f'<tr><th scope="row">{escape(policy)}</th>'
        + "".join(_difference(outcomes[policies[0]], outcomes[policy], m) for m in shown)
        + "</tr>\n"
        for policy in policies[1:]
    )
    return (
        f'<div class="wide"><table>\n<thead><tr><th scope="col">policy</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
    )


def _difference(base: Sequence[Outcome], own: Sequence[Outcome], metric: Metric) -> str:
    first, other = _values(base, metric.name), _values(own, metric.name)
    if not first or not other or not fmean(first):
        return "<td>—</td>"
    middle, half = (100.0 * number / fmean(first) for number in interval(other, first))
    better = middle < 0.0 if metric.better == "less" else middle > 0.0
    star = "★ " if differs(other, first) and abs(middle) > 100.0 * SAME and better else ""
    spread = f'<small class="spread">± {half:.1f}</small>' if half else ""
    mark = ' class="best"' if star else ""
    return f"<td{mark}>{star}{middle:+.1f} %{spread}</td>"


def _alone(known: dict[str, list[float]]) -> str:
    if not known:
        return "No job finished."
    policy, values = next(iter(known.items()))
    return f"Under {_name(policy)} a job takes {human(3600.0 * fmean(values))} on average."


def _values(each: Sequence[Outcome], name: str) -> list[float]:
    done = [outcome.metrics for outcome in each if outcome.metrics.get("finished", 1)]
    numbers = [float(metrics[name]) for metrics in done if name in metrics]
    return numbers if len(numbers) == len(each) and not any(map(math.isnan, numbers)) else []


def _name(policy: str) -> str:
    return f"<b>{escape(policy)}</b>"
