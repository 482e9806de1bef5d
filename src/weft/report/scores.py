"""The table of policies: a row a policy, a column a number, the best of each column marked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean, median, stdev
from typing import Literal

from weft.report.durations import HOUR, fixed, unit_for
from weft.report.figures import line_of
from weft.report.shapes import OutcomeLike, Outcomes

Scale = Literal["hours", "ms", "percent", "plain"]


@dataclass(frozen=True, slots=True)
class Column:
    """A number of an outcome: its heading, what it means, and which end of it is good."""

    head: str
    means: str
    key: str
    scale: Scale = "plain"
    good: Callable[[Sequence[float]], float] = min


COLUMNS = (
    Column("avg JCT", "mean job completion time", "avg_jct_h", "hours"),
    Column("p50 JCT", "half of the jobs finished within", "p50_jct_h", "hours"),
    Column("p99 JCT", "99 % of the jobs finished within", "p99_jct_h", "hours"),
    Column("max JCT", "the longest completion time", "max_jct_h", "hours"),
    Column("avg wait", "mean time not running between submission and end", "avg_queue_h", "hours"),
    Column("makespan", "first submission to last end", "makespan_h", "hours"),
    Column("util.", "GPU time held by jobs; more is better", "utilization", "percent", max),
    Column("restarts per job", "mean number of times a job was started again", "restarts_per_job"),
    Column("worst FTF", "the worst finish-time fairness of any job", "worst_ftf"),
    Column("unfair", "jobs worse off than under equal division", "unfair_fraction", "percent"),
    Column("decide p50", "median time of one decision, on the machine that ran it", "p50", "ms"),
)


def table(outcomes: Outcomes) -> str:
    """The whole table as HTML; the caller explains the star."""
    columns = [_column(column, outcomes) for column in COLUMNS]
    columns.insert(1, _against_first(outcomes))
    heads = "".join(f'<th scope="col" title="{escape(m)}">{h}</th>' for h, m, _ in columns)
    rows = "".join(
        f"<tr>{_policy(i, policy, each)}{''.join(cells[i] for _, _, cells in columns)}</tr>\n"
        for i, (policy, each) in enumerate(outcomes.items())
    )
    return (
        f'<div class="wide"><table>\n<thead><tr><th scope="col">policy</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody></table></div>"
    )


def _policy(index: int, policy: str, each: Sequence[OutcomeLike]) -> str:
    left = sum(outcome.metrics.get("failed", 0) for outcome in each)
    jobs = sum(outcome.metrics.get("jobs", 0) for outcome in each)
    note = f'<small class="warn">{left:,.0f} of {jobs:,.0f} jobs unfinished</small>' if left else ""
    swatch = f'<i class="swatch" style="background:{line_of(index)["color"]}"></i>'
    return f'<th scope="row">{swatch}{_breakable(policy)}{note}</th>'


def _breakable(policy: str) -> str:
    """A long spec may wrap after its punctuation, and nowhere else."""
    return re.sub("([:,/=])", r"\1<wbr>", escape(policy))


def _column(column: Column, outcomes: Outcomes) -> tuple[str, str, list[str]]:
    """Heading, meaning and cells."""
    values = [[_value(column.key, outcome) for outcome in each] for each in outcomes.values()]
    means = [fmean(v) for v in values]
    factor, unit = _scale(column.scale, [m for m in means if not math.isnan(m)])
    shown = [[factor * x for x in v] for v in values]
    texts = [fixed(fmean(v)) for v in shown]
    known = [m for m in means if not math.isnan(m)]
    best = texts[means.index(column.good(known))] if known else ""
    tied = len(set(texts)) == 1  # nothing to tell apart
    head = escape(column.head) + (f" <small>({unit})</small>" if unit else "")
    cells = [
        _cell(text, v, best=text == best and not tied) for text, v in zip(texts, shown, strict=True)
    ]
    return head, column.means, cells


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


def _value(key: str, outcome: OutcomeLike) -> float:
    """NaN when nothing finished: the zeros in such an outcome are no measurements."""
    if not outcome.metrics.get("finished", 1):
        return math.nan
    value = outcome.metrics.get(key, outcome.decide_ms.get(key))
    return math.nan if value is None else float(value)


def _scale(scale: Scale, means: Sequence[float]) -> tuple[float, str]:
    """One unit a column, so that its cells compare at a glance."""
    if scale == "percent":
        return 100.0, "%"
    if scale != "hours" or not means:
        return 1.0, scale if scale == "ms" else ""
    unit = unit_for(HOUR.seconds * median(means))
    return HOUR.seconds / unit.seconds, unit.name


def _cell(text: str, values: Sequence[float], *, best: bool) -> str:
    star = '<span class="star" title="best of the column">★</span>' if best else ""
    spread = ""
    if len(values) > 1 and _all(values):
        spread = f'<small class="spread">± {fixed(stdev(values))}</small>'
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{star}{text}{spread}</td>"


def _all(values: Sequence[float]) -> bool:
    return bool(values) and not any(math.isnan(v) for v in values)
