"""One self-contained HTML page that compares policies: opens from a file, needs no network."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path

from weft.core.errors import InvalidConfig, needs
from weft.plural import say_gpus
from weft.report.figures import (
    MOST_USERS,
    Figure,
    heat_maps,
    jct_by_size,
    jct_cdf,
    over_time,
    rho_cdf,
    share_rows,
    user_shares,
)
from weft.report.scores import against_first, headline, table
from weft.report.timeline import MOST_BARS, MOST_GPUS, timelines
from weft.report.units import fix_digits, human
from weft.sim.result import Outcomes, Result

Figures = dict[str, Figure]
PLAIN_MOST = 60_000  # characters of figures that need no packing
MOST_NAMED = 8  # policies that are named one by one
LEGEND_PX = 7  # what one more name adds to a legend of three or more in a row

PREDICTORS = {
    "none": "reads no remaining times",
    "oracle": "<strong>knows true remaining times</strong>, which no real cluster does",
    "noisy": "true times, blurred",
    "hinted": "what submitters said",
    "history": "what similar jobs took before",
}
FOOTNOTE = """
<dl>
<dt>JCT</dt><dd>job completion time, from submission to end. Averages and percentiles are over the
jobs that finished; the curve is over all jobs.</dd>
<dt>bound</dt><dd>an average completion time, wait or slowdown that no schedule can beat, unless
jobs share GPUs; <em>over bound</em> is how many times as long it took. 1 cannot be better.</dd>
<dt>wait</dt><dd>the part of JCT in which the job was not running, preempted time included.</dd>
<dt>slowdown</dt><dd>bounded slowdown: completion time over length, at least 1, lengths below 10 s
(or 10 min) taken as that. <em>Short</em> jobs are those below the median length.</dd>
<dt>FTF</dt><dd>finish-time fairness: completion time over what the job would take alone on an equal
part of the cluster. Above 1, the job did worse than under equal division; <em>unfair</em> is the
share of such jobs. <em>Static</em> FTF, as Shockwave counts it, stretches the time alone by all
jobs of the workload to a GPU instead.</dd>
<dt>Jain</dt><dd>Jain's index over users of GPU time received over entitlement; 1 is equal
treatment. <em>Shortfall</em> is the part of entitlements not received within the hour;
<em>envy</em> how much less than in another user's place a user had, at most.</dd>
<dt>LTGF</dt><dd>long-term GPU-time fairness: GPU time used over GPU time deserved, the least of a
job and of a tenant. <em>At loss</em> is the share of jobs below 0.95.</dd>
<dt>utilisation</dt><dd>GPU time held by jobs over all GPU time from the first submission to the
last end. It falls when a few long jobs run on alone at the end.</dd>
</dl>
"""


def write_report(
    result: Result, path: Path, *, title: str | None = None, command: str = ""
) -> None:
    """Write the comparison of `result` to `path`; the same result gives the same bytes.

    `command` is what made it, so that it can be repeated.
    """
    page = render(result, _plotly(), title=title, command=command)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"cannot write the report to {path}: {error.strerror}") from error


def render(result: Result, library: str, *, title: str | None = None, command: str = "") -> str:
    """The page as text, with `library` (plotly.js) inside."""
    outcomes = result.outcomes
    name = escape(title or f"{_short(result.workload)} on {_short(result.cluster)}")
    drawn: Figures = {}
    body = "\n".join(
        (
            f'<header><h1>{name}</h1><p class="headline">{headline(outcomes)}</p>'
            f"{_header(result)}{_made_by(command)}</header>",
            *_grid(result),
            _section("Policies", table(outcomes, "main", result.least), _table_note(result)),
            *_against(result),
            *_charts(result, drawn),
            _section("Waits", table(outcomes, "waits", result.least), _table_note(result)),
            _section("Fairness", table(outcomes, "fairness"), _table_note(result)),
            *_fairness_charts(result, drawn),
            _timeline_section(result, drawn),
            f"<footer><h2>How to read this</h2>{FOOTNOTE}</footer>",
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>\n{_part('page.css')}</style>\n</head>\n<body>\n"
        f"{body}\n<noscript>The charts need JavaScript.</noscript>\n"
        f"{_figures(drawn)}\n"
        f'<script type="text/plain" id="plotly">{pack(library)}</script>\n'
        f"<script>\n{_part('page.js')}</script>\n"
        "</body>\n</html>\n"
    )


def _made_by(command: str) -> str:
    return f'<p class="note">Made by <code>{escape(command)}</code></p>' if command else ""


def _against(result: Result) -> Iterable[str]:
    first = escape(next(iter(result.outcomes), ""))
    if rows := against_first(result.outcomes):
        several = len(result.seeds) > 1
        note = f"Difference from <b>{first}</b> in per cent of its mean" + (
            ", with 95 % intervals of differences seed by seed. ★ better, and not by chance."
            if several
            else ". ★ better. One seed: the effect of chance is unknown."
        )
        yield _section(f"Against {first}", rows, note)


def _grid(result: Result) -> Iterable[str]:
    if maps := heat_maps(result.outcomes):
        yield _section(
            "Combinations",
            maps,
            "★ the best; others as a multiple of it, and deeper the further away."
            + " Means over the seeds." * (len(result.seeds) > 1),
        )


def _figures(drawn: Figures) -> str:
    """As they are, or packed where they are many."""
    text = _json(drawn)
    if len(text) <= PLAIN_MOST:
        return f'<script type="application/json" id="figures">{text}</script>'
    return f'<script type="text/plain" id="packed-figures">{pack(text)}</script>'


def _plotly() -> str:
    with needs("an HTML report needs plotly", hint="pip install 'weft[report]'"):
        from plotly.offline import get_plotlyjs
    return str(get_plotlyjs())


def _header(result: Result) -> str:
    facts = result.facts
    jobs = {int(o.metrics.get("jobs", 0)) for each in result.outcomes.values() for o in each}
    known = [
        ("workload", escape(_short(result.workload))),
        ("cluster", escape(_short(result.cluster))),
        ("GPUs", f"{facts['gpus']:,.0f}" if "gpus" in facts else ""),
        ("jobs", " to ".join(f"{n:,}" for n in sorted({min(jobs), max(jobs)})) if jobs else ""),
        ("offered load", fix_digits(facts["offered_load"]) if "offered_load" in facts else ""),
        ("bound on avg JCT", human(3600.0 * result.bound()) if result.bounds else ""),
        ("seeds" if len(result.seeds) > 1 else "seed", ", ".join(map(str, result.seeds))),
        ("Weft", escape(result.weft)),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in known if text)
    none = f'<p class="note">{escape(result.no_bound)}</p>' if result.no_bound else ""
    return f'<dl class="facts">{items}</dl>{none}{_predictors(result.outcomes)}'


def _predictors(outcomes: Outcomes) -> str:
    """Policies under the predictor they read."""
    users: dict[str, list[str]] = {}
    for policy, each in outcomes.items():
        for label in dict.fromkeys(outcome.predictor for outcome in each):
            users.setdefault(label, []).append(f"<code>{escape(policy)}</code>")
    lines = "".join(
        f"<li>{_name_some(policies)}: {_describe_predictor(label)}</li>"
        for label, policies in users.items()
    )
    return f'<ul class="predictors" aria-label="predictors">{lines}</ul>'


def _name_some(policies: list[str]) -> str:
    """All of a few; of many the first, and how many more."""
    if len(policies) <= MOST_NAMED:
        return ", ".join(policies)
    return f"{policies[0]} and {len(policies) - 1} others"


def _describe_predictor(label: str) -> str:
    means = PREDICTORS.get(label.partition("(")[0])
    return f"predictor <b>{escape(label)}</b>" + (f", {means}" if means else "")


def _table_note(result: Result) -> str:
    spread = ""
    if len(result.seeds) > 1:
        spread = f" Mean ± half its 95 % interval over {len(result.seeds)} seeds."
    sure = ", if that holds seed by seed" * (len(result.seeds) > 1)
    star = f"★ best of its column{sure}; less is better, except utilisation."
    star *= len(result.outcomes) > 1
    return f"{star}{spread} Point at a heading for its meaning."


def _charts(result: Result, drawn: Figures) -> Iterable[str]:
    outcomes = result.outcomes
    several = len(result.seeds) > 1
    legend = LEGEND_PX * max(len(outcomes) - 4, 0)
    none = "No job finished, so there is no completion time to show."
    yield _chart(
        ("jct-cdf", "Completion times", 380 + legend),
        jct_cdf(outcomes),
        "Share of all jobs that finished within a time; further left is better."
        + " All seeds together." * several,
        none,
        drawn,
    )
    yield _chart(
        ("over-time", "Queue and GPUs over time", 460 + legend),
        over_time(outcomes, result.facts.get("gpus")),
        "Dotted: all GPUs of the cluster, and the last arrival: what follows is the end of the "
        "workload, not its usual state." * ("gpus" in result.facts) + _first_seed(result),
        "No job ran.",
        drawn,
    )
    yield _chart(
        ("jct-by-size", "Completion time by job size", 380 + legend),
        jct_by_size(outcomes),
        "Mean over the jobs that finished, on a logarithmic scale." + " All seeds." * several,
        none,
        drawn,
    )


def _fairness_charts(result: Result, drawn: Figures) -> Iterable[str]:
    outcomes = result.outcomes
    legend = LEGEND_PX * max(len(outcomes) - 4, 0)
    yield _chart(
        ("rho-cdf", "Finish-time fairness of jobs", 380 + legend),
        rho_cdf(outcomes),
        "Share of finished jobs with a finish-time fairness up to a value; left of the dotted line "
        "a job did no worse than under equal division." + " All seeds." * (len(result.seeds) > 1),
        "No job finished, so there is no fairness to show.",
        drawn,
    )
    yield _chart(
        ("user-shares", "Share received against entitlement", 90 + 150 * share_rows(outcomes)),
        user_shares(outcomes),
        f"GPUs of the {MOST_USERS} users whose jobs asked for most. Lines: what they held under "
        "each policy. Shaded: what they were entitled to under the first policy, a weighted equal "
        "part or what their jobs could use." + _first_seed(result),
        "No job ran, so there are no shares to show.",
        drawn,
    )


def _first_seed(result: Result) -> str:
    return f" Seed {result.seeds[0]}." if len(result.seeds) > 1 else ""


def _chart(
    what: tuple[str, str, int], figure: Figure | None, note: str, empty: str, drawn: Figures
) -> str:
    """A section with a chart, or with the reason why there is none."""
    name, heading, height = what
    if figure is None:
        return _section(heading, f'<p class="empty">{empty}</p>')
    drawn[name] = figure
    return _section(heading, _plot(name, height, heading), note)


def _timeline_section(result: Result, drawn: Figures) -> str:
    outcomes, heading = result.outcomes, "GPU timeline"
    figures = timelines(outcomes)
    missing = [policy for policy in outcomes if policy not in figures]
    if not figures:
        return _section(heading, f'<p class="empty">{_why_missing(outcomes)}</p>')
    names = {policy: f"timeline-{i}" for i, policy in enumerate(figures)}
    drawn.update((names[policy], figure) for policy, figure in figures.items())
    plots = "".join(
        _plot(names[policy], figure["layout"]["height"], f"{heading}, {policy}", hidden=i > 0)
        for i, (policy, figure) in enumerate(figures.items())
    )
    buttons = "".join(
        f'<button type="button" data-plot="{name}" aria-pressed="{str(not i).lower()}">'
        f"{escape(policy)}</button>"
        for i, (policy, name) in enumerate(names.items())
    )
    tabs = f'<div class="tabs" role="group" aria-label="policy">{buttons}</div>'
    left_out = f" Too large to draw: {escape(', '.join(missing))}." if missing else ""
    note = (
        "Why did a job wait, and which job was stopped for which? Above: jobs waiting. Below: "
        "one row per GPU, one colour per job, ✕ where a job continues after a stop. Drag to "
        "zoom, double-click to go back."
    )
    return _section(heading, tabs + plots, note + _first_seed(result) + left_out)


def _why_missing(outcomes: Outcomes) -> str:
    if not any(len(o.series.time_s) for each in outcomes.values() for o in each):
        return "No job ran."
    return (
        f"Left out: a timeline is kept for runs of at most {say_gpus(MOST_GPUS)} and {MOST_BARS:,} "
        "bars (a job on a GPU for a while); this one is larger."
    )


def _section(heading: str, content: str, note: str = "") -> str:
    caption = f'<p class="note">{note.strip()}</p>' if note.strip() else ""
    return f"<section>\n<h2>{heading}</h2>{caption}\n{content}\n</section>"


def _plot(name: str, height: int, label: str, *, hidden: bool = False) -> str:
    return (
        f'<div id="{name}" class="plot" style="height:{height}px" role="img" '
        f'aria-label="{escape(label)}"{" hidden" * hidden}></div>'
    )


def _short(name: str) -> str:
    """A file by its name alone: its folder is private."""
    return Path(name).name if Path(name).is_absolute() else name


def _json(figures: Figures) -> str:
    """Safe inside a script element: no `<` is left that could end it."""
    text = json.dumps(figures, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def _part(name: str) -> str:
    return files("weft.report").joinpath(name).read_text(encoding="utf-8")


@lru_cache(maxsize=4)  # the library of charts is large, and the same in every report
def pack(text: str) -> str:
    """Text in few characters, for `unpack` in `page.js`: deflated, in base 85 without a `<`.

    In front of it stands how many bytes it is; the last group is filled with zeros.
    """
    raw = zlib.compress(text.encode(), 9)
    return f"{len(raw)}." + base64.b85encode(raw, pad=True).decode().replace("<", ",")


def unpack(packed: str) -> str:
    """The text again."""
    count, _, digits = packed.partition(".")
    raw = base64.b85decode(digits.replace(",", "<"))
    return zlib.decompress(raw[: int(count)]).decode()
