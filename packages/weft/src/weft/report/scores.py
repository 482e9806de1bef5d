"""The table of policies: a row per policy, a column per number, the best of each column marked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean, median

from weft.formulas.metrics import METRICS, Better, Columns, Metric, Unit, columns_of
from weft.formulas.statistics import differs, interval, mean_interval
from weft.report.figures import line_of
from weft.report.units import HOUR, fix_digits, human, unit_for
from weft.sim.result import Outcome, Outcomes

NO_BOUNDS: Mapping[str, float] = {}
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
    return f"<td{mark}>{star}{middle:+z.1f} %{spread}</td>"


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


DECIDE = "p50"  # of `Outcome.decide_ms`


def table(
    outcomes: Outcomes, which: Columns = "main", bounds: Mapping[str, float] = NO_BOUNDS
) -> str:
    """The whole table as HTML, with `bounds` by metric above; the caller explains the star."""
    every = [outcome.metrics for each in outcomes.values() for outcome in each]
    shown = columns_of(which, every)
    columns = [_column(metric, outcomes) for metric in shown]
    least = [_least(metric, outcomes, bounds) for metric in shown]
    columns.insert(1, _against_first(outcomes))
    least.insert(1, "")
    if which == "main":
        columns.append(_decisions(outcomes))
        least.append("")
    heads = "".join(f'<th scope="col" title="{escape(m)}">{h}</th>' for h, m, _ in columns)
    rows = "".join(
        f"<tr>{_policy(i, policy, each)}{''.join(cells[i] for _, _, cells in columns)}</tr>\n"
        for i, (policy, each) in enumerate(outcomes.items())
    )
    if any(least):
        cells = "".join(f"<td>{text}</td>" for text in least)
        rows = f'<tr><th scope="row">bound</th>{cells}</tr>\n{rows}'
    return (
        f'<div class="wide"><table>\n<thead><tr><th scope="col">policy</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
    )


def _policy(index: int, policy: str, each: Sequence[Outcome]) -> str:
    left = sum(outcome.metrics.get("failed", 0) for outcome in each)
    jobs = sum(outcome.metrics.get("jobs", 0) for outcome in each)
    note = f'<small class="warn">{left:,.0f} of {jobs:,.0f} jobs unfinished</small>' if left else ""
    swatch = f'<i class="swatch" style="background:{line_of(index)["color"]}"></i>'
    return f'<th scope="row">{swatch}{_breakable(policy)}{note}</th>'


def _breakable(policy: str) -> str:
    """A long spec may wrap after its punctuation, and nowhere else."""
    return re.sub("([:,/=])", r"\1<wbr>", escape(policy))


def _column(metric: Metric, outcomes: Outcomes) -> tuple[str, str, list[str]]:
    values, factor, unit = _scaled(metric, outcomes)
    return _head(metric.heading, unit), metric.help, _cells(values, factor, metric.better)


def _least(metric: Metric, outcomes: Outcomes, bounds: Mapping[str, float]) -> str:
    """The bound of a metric in the unit of its column; empty without one."""
    if metric.name not in bounds:
        return ""
    return fix_digits(_scaled(metric, outcomes)[1] * bounds[metric.name])


def _scaled(metric: Metric, outcomes: Outcomes) -> tuple[list[list[float]], float, str]:
    """The values of a metric by policy and seed, and the unit that shows them best."""
    values = [[_value(metric.name, outcome) for outcome in each] for each in outcomes.values()]
    known = [m for v in values if not math.isnan(m := fmean(v))]
    return values, *_scale(metric.unit, known)


def _decisions(outcomes: Outcomes) -> tuple[str, str, list[str]]:
    values = [[_value(DECIDE, outcome) for outcome in each] for each in outcomes.values()]
    meaning = "median time of one decision, on the machine that ran it"
    return _head("decide p50", "ms"), meaning, _cells(values, 1.0, "less")


def _head(text: str, unit: str) -> str:
    return escape(text) + (f" <small>({unit})</small>" if unit else "")


def _cells(values: Sequence[Sequence[float]], factor: float, better: Better) -> list[str]:
    means = [fmean(v) for v in values]
    shown = [[factor * x for x in v] for v in values]
    texts = [fix_digits(fmean(v)) for v in shown]
    known = [m for m in means if not math.isnan(m)]
    good = min if better == "less" else max
    first = means.index(good(known)) if known else -1
    best = texts[first] if known else ""
    # Nothing to tell apart, or nothing that seeds agree on.
    tied = len(set(texts)) == 1 or not all(
        differs(values[first], v) for v, text in zip(values, texts, strict=True) if text != best
    )
    return [
        _cell(text, v, best=text == best and not tied) for text, v in zip(texts, shown, strict=True)
    ]


def _against_first(outcomes: Outcomes) -> tuple[str, str, list[str]]:
    """Average completion time over the first policy's, seed by seed."""
    averages = [[_value("avg_jct_h", outcome) for outcome in each] for each in outcomes.values()]
    ratios = [
        [a / b if b else math.nan for a, b in zip(each, averages[0], strict=False)]
        for each in averages
    ]
    meaning = "average completion time over that of the first policy; below 1 is faster"
    cells = [_cell(f"{fmean(r):.2f}&times;" if _all(r) else "—", r, best=False) for r in ratios]
    return "vs first", meaning, cells


def _value(key: str, outcome: Outcome) -> float:
    """NaN when nothing finished: the zeros in such an outcome are no measurements."""
    if not outcome.metrics.get("finished", 1):
        return math.nan
    value = outcome.metrics.get(key, outcome.decide_ms.get(key))
    return math.nan if value is None else float(value)


def _scale(unit: Unit, means: Sequence[float]) -> tuple[float, str]:
    """One unit a column, so that its cells compare at a glance."""
    if unit == "percent":
        return 100.0, "%"
    if unit != "hours" or not means:
        return 1.0, ""
    shown = unit_for(HOUR.seconds * median(means))
    return HOUR.seconds / shown.seconds, shown.name


def _cell(text: str, values: Sequence[float], *, best: bool) -> str:
    star = '<span class="star" title="best of the column">★</span>' if best else ""
    spread = ""
    if len(values) > 1 and _all(values):
        spread = f'<small class="spread">± {fix_digits(mean_interval(values)[1])}</small>'
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{star}{text}{spread}</td>"


def _all(values: Sequence[float]) -> bool:
    return bool(values) and not any(math.isnan(v) for v in values)
