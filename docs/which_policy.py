"""The page that says which policy to use, made from what policies declare and from the league."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from statistics import fmean
from typing import Any

from pages import REFERENCE, link, page_of

from weft.app.catalogue import TaxonomyEntry, read_entries, stand_there
from weft.core.plan.taxonomy import QUESTIONS, Taxonomy, tags_of
from weft.core.spec.registry import ROLES, find
from weft.report.units import duration, number

LEAGUE = Path(__file__).resolve().parents[1] / "benchmarks" / "league" / "results.json"
NEEDS = (
    (
        "The lengths of jobs are unknown",
        "unknown-durations",
        "These policies read neither predictions nor user estimates; some need speeds or "
        "profiles instead, see the table.",
    ),
    (
        "How long jobs take is known or predicted",
        "known-durations",
        "A predictor is needed, see [choose a predictor](../how-to/choose-a-predictor.md).",
    ),
    (
        "Running jobs may not be stopped",
        "non-preemptive",
        "A job that has started runs to its end where it is.",
    ),
    (
        "No job may wait forever",
        "no-starvation",
        "Every job that fits runs in the end, however many others come.",
    ),
    (
        "Jobs can change their number of GPUs",
        "elastic",
        "They resize jobs between their minimum and maximum, or tune batch sizes.",
    ),
    (
        "GPUs of several kinds, or hosts that matter",
        "heterogeneous",
        "They choose kinds by how fast jobs are there, or divide cores and memory.",
    ),
    (
        "Jobs may share a GPU",
        "sharing",
        "Side by side, in turns, interleaved, or as guests that must not slow others.",
    ),
    (
        "Users or jobs must be treated alike",
        "fairness",
        "In GPU time, in finish time, or between tenants by weight.",
    ),
    (
        "Where a gang runs matters",
        "consolidated",
        "Gangs are kept on few nodes, all or those "
        "that need it. `links` and `network` take into account how devices are connected.",
    ),
    (
        "Results early, or better results",
        "quality",
        "These policies use losses or the worth of results.",
    ),
)
FELT = {
    "avg_jct_h": "average completion time",
    "avg_queue_h": "mean wait",
    "p95_queue_h": "p95 wait",
    "short_queue_h": "wait of short jobs",
    "slowdown_10s": "bounded slowdown, 10 s",
    "slowdown_10min": "bounded slowdown, 10 min",
    "worst_ftf": "worst finish-time fairness",
    "gpu_hours_wasted": "GPU-hours wasted",
}
KINDS_OF_JOBS = {
    "Gangs of a fixed size": (
        "venus",
        "earth",
        "saturn",
        "uranus",
        "philly",
        "pai",
        "itp",
        "seren",
        "kalos",
    ),
    "Jobs that change size and batch, three kinds of GPU": ("pollux",),
    "GPUs of different speed": ("gavel",),
    "Jobs that could share a GPU": ("colocated",),
}
BEST = 3  # policies per cell
LAST = "weft, alike"  # the last entry to play: a workload that has it is complete


def which_policy_page(made: str) -> str:
    """Sections by what people feel and by need, and the whole table."""
    lines = [
        made,
        "# Which policy should I use?\n",
        "Every policy declares where it stands in the field; this page is made from that. The same",
        "in a terminal: `weft list policy --where unknown-durations,no-starvation`. A table that",
        "filters as you click is [which-policy.html](which-policy.html).\n",
        "In short: on a service start with `weft`, its default, which handles plain, elastic and",
        "sharing jobs. In simulations of jobs about which nothing is known, `tiresias` is a strong",
        "published baseline; with predictions `srsf` or `shockwave`; for jobs that can change",
        "size `sia`; where jobs may share GPUs `lucid` or `muri`; where tenants must be treated",
        "alike `astraea` or `gandiva_fair`. Then compare on",
        "your own jobs: [compare policies](../how-to/compare-policies.md). What no policy does as",
        "a whole can be [composed](../how-to/compose-a-policy.md).\n",
    ]
    lines += [*_by_feeling(), "## By need\n"]
    for heading, tag, text in NEEDS:
        policies = stand_there(read_entries("policy"), (tag,))
        if policies:
            named = ", ".join(linked(policy.name) for policy in policies)
            lines += [f"### {heading}\n", f"{text} (`--where {tag}`)\n", f"{named}\n"]
    lines += ["## Properties of every policy\n", *_table(read_entries("policy"), link=True)]
    lines += [
        "\n## What wrappers add\n",
        "A wrapper works around any policy (`quota|tiresias`) and leaves the rest to it.\n",
        *_table(read_entries("wrapper")),
        "\n## Properties of parts\n",
        "Parts of [compositions](../how-to/compose-a-policy.md): `compose:order=las,size=sia`.\n",
    ]
    parts = [part for role in ROLES for part in read_entries(role)]
    lines += _table(parts, role=True)
    return "\n".join(lines).rstrip() + "\n"


def which_policy_html() -> str:
    """The table alone, with buttons that filter it; without a script all of it is there."""
    entries = [*read_entries("policy"), *read_entries("wrapper")]
    buttons = "".join(
        f"<div><span>{question}</span>"
        + "".join(
            f'<button type="button" data-tag="{tag}" aria-pressed="false">{tag}</button>'
            for tag in tags
        )
        + "</div>"
        for question, tags in _tags_by_question(entries).items()
    )
    head = "".join(f"<th>{word}</th>" for word in ("", *QUESTIONS, "may starve"))
    rows = "".join(
        f'<tr data-tags=" {" ".join(entry.tags)} "><th>{escape(entry.name)}'
        f"<small>{entry.kind}</small></th>"
        + "".join(f"<td>{escape(entry.answer_to(q))}</td>" for q in QUESTIONS)
        + f"<td>{escape(entry.starves or 'no') if entry.kind == 'policy' else ''}</td></tr>\n"
        for entry in entries
    )
    return (
        "<!doctype html>\n<!-- Made by docs/make_reference.py; edit the code instead. -->\n"
        '<html lang="en">\n<meta charset="utf-8">\n<title>Which policy should I use?</title>\n'
        f"<style>{STYLE}</style>\n<h1>Which policy should I use?</h1>\n"
        "<p>Choose what must hold; policies and wrappers that declare all of it stay.</p>\n"
        f'<div id="tags">{buttons}</div>\n<p id="count" aria-live="polite"></p>\n'
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
        '<script src="which-policy.js"></script>\n</html>\n'
    )


def _tags_by_question(entries: list[TaxonomyEntry]) -> dict[str, list[str]]:
    """The words that someone uses, under the question that they answer."""
    tags: dict[str, set[str]] = {question: set() for question in (*QUESTIONS, "starvation")}
    for entry in entries:
        for question, answer in entry.place.answers().items():
            *words, _ = tags_of(Taxonomy(**{question: answer}), "")  # type: ignore[arg-type]
            tags[question].update(words)
    tags["starvation"] = {"no-starvation", "may-starve"}
    return {question: sorted(words) for question, words in tags.items()}


def _table(entries: Any, *, link: bool = False, role: bool = False) -> Iterator[str]:
    yield "| | " + " | ".join(QUESTIONS) + " | may starve |"
    yield "|---" * (len(QUESTIONS) + 2) + "|"
    for entry in entries:
        yield (
            f"| {_name(entry, link, role)} | "
            + " | ".join((*(entry.answer_to(q) for q in QUESTIONS), entry.starves and "yes"))
            + " |"
        )


def _name(entry: TaxonomyEntry, link: bool, role: bool) -> str:
    if link:
        return linked(entry.name)
    return f"`{entry.kind}={entry.name}`" if role else f"`{entry.name}`"


def _by_feeling() -> Iterator[str]:
    """The best policies by each measure, for each kind of jobs that the league has."""
    results = json.loads(LEAGUE.read_text())
    yield "## By what people feel\n"
    yield (
        "Averages of completion times hide waits, since long jobs make up most of them. The best "
        "policies of [the league](league.md) by each measure, among those that know no true "
        "lengths and end all jobs, with means over its workloads and seeds; policies within "
        "0.5 % of each other share a place. *Bound* is what "
        "[no schedule can beat](../explanation/bounds.md) unless jobs share GPUs. *True lengths* "
        "is the best that any policy reaches that knows them.\n"
    )
    for kind, workloads in KINDS_OF_JOBS.items():
        played = [name for name in workloads if LAST in results["rows"].get(name, ())]
        if played:
            yield f"### {kind}\n\nWorkloads: {', '.join(played)}.\n"
            yield from _felt_table(results, played)
            yield ""


def _felt_table(results: dict[str, Any], played: list[str]) -> Iterator[str]:
    entries = set.intersection(*(set(results["rows"][name]) for name in played))
    rows = {e: [results["rows"][name][e] for name in played] for e in sorted(entries)}
    whole = {
        e: r for e, r in rows.items() if all("failed" in x and not any(x["failed"]) for x in r)
    }
    knowing = {e for e, r in whole.items() if r[0]["predictor"].startswith("oracle")}
    yield "| people feel | best policies | `weft` | true lengths | bound |"
    yield "|---|---|--:|--:|--:|"
    for measure, title in FELT.items():
        means = {e: fmean(v for x in r for v in x[measure]) for e, r in whole.items()}
        blind = {e: value for e, value in means.items() if e not in knowing}
        bounds = [results["matches"][name]["bounds"].get(measure) for name in played]
        known = [value for values in bounds for value in values or ()]
        bound = _written(measure, fmean(known)) if all(bounds) else ""
        cells = [_best(measure, blind), _written(measure, means["weft"])]
        cells.append(_written(measure, min(means[e] for e in knowing)) if knowing else "")
        yield f"| {title} | {' | '.join(cells)} | {bound} |"


def _best(measure: str, means: dict[str, float]) -> str:
    """The first few policies with their values; those that hardly differ stand together."""
    places: list[tuple[float, list[str]]] = []
    for name, value in sorted(means.items(), key=lambda item: (item[1], item[0])):
        if places and value <= places[-1][0] * 1.005:
            places[-1][1].append(name)
        else:
            places.append((value, [name]))
    return "; ".join(f"{_few(names)} {_written(measure, value)}" for value, names in places[:BEST])


def _few(names: list[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(f"`{name}`" for name in names[:BEST])
    return f"{shown} and {len(names) - BEST} more" if len(names) > BEST else shown


def _written(measure: str, value: float) -> str:
    return duration(value) if measure.endswith("_h") else number(value)


STYLE = """
body{margin:24px auto;max-width:1200px;padding:0 16px;font:14px/1.4 system-ui,sans-serif;
color-scheme:light dark}
table{border-collapse:collapse;font-size:13px}th,td{padding:5px 8px;border-bottom:1px solid #8884;
text-align:left;vertical-align:top}thead th{position:sticky;top:0;background:Canvas}
th small{display:block;font-weight:400;opacity:.7}
#tags div{display:flex;flex-wrap:wrap;gap:5px;margin:4px 0}#tags span{width:110px;opacity:.7}
button{padding:3px 9px;border:1px solid #8888;border-radius:12px;background:none;color:inherit;
cursor:pointer}button[aria-pressed=true]{background:#0072b2;color:#fff}tr[hidden]{display:none}
"""


def linked(name: str) -> str:
    """A policy with a link to its page."""
    page = page_of("policies", name, find("policy", name))
    return f"[{name}]({link(REFERENCE / 'which-policy.md', page)})"
