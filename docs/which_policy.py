"""The page that says which policy to use, made from what policies declare and from the league."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from pages import REFERENCE, link, page_of

from weft.app.catalogue import TaxonomyEntry, read_entries, stand_there
from weft.core.plan.taxonomy import QUESTIONS, Taxonomy, tags_of
from weft.core.spec.registry import ROLES, find

LEAGUE = Path(__file__).resolve().parents[1] / "benchmarks" / "league.json"
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
COLUMNS = (
    ("avg_jct_h", "avg JCT (h)"),
    ("p99_jct_h", "p99 (h)"),
    ("makespan_h", "makespan (h)"),
    ("worst_ftf", "worst FTF"),
    ("restarts_per_job", "restarts"),
    ("decide", "decision (x fifo)"),
)


def which_policy_page(made: str) -> str:
    """Sections by need, the whole table, and the league."""
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
        "## By need\n",
    ]
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
    lines += [*_table(parts, role=True), *_league()]
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
        + "".join(f"<td>{escape(entry.words(q))}</td>" for q in QUESTIONS)
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
            + " | ".join((*(entry.words(q) for q in QUESTIONS), entry.starves and "yes"))
            + " |"
        )


def _name(entry: TaxonomyEntry, link: bool, role: bool) -> str:
    if link:
        return linked(entry.name)
    return f"`{entry.kind}={entry.name}`" if role else f"`{entry.name}`"


def _league() -> Iterator[str]:
    if not LEAGUE.is_file():
        return
    yield "\n## League\n"
    yield (
        "All policies with their defaults on four workloads (a smaller search for `pollux`, longer "
        "rounds for `pollux`, `sia`, `slaq` and `smd`), by "
        "average completion time. Decision times are medians over those of `fifo` in the same run. "
        "What it had to know is what it reads beyond what every scheduler sees; `oracle` means "
        "that the policy knew true remaining times. No policy is best everywhere, and a "
        "workload says "
        "little about a policy that it was not made for.\n"
    )
    yield "```console\npython -m benchmarks.league\n```\n"
    known = {entry.name: entry.words("knowledge") for entry in read_entries("policy")}
    for match in json.loads(LEAGUE.read_text()):
        load = f", load {match['load']:g}" if match["load"] else ""
        yield (
            f"### {match['workload']}: {match['what']}\n\n{match['jobs']} jobs on "
            f"`{match['cluster']}`{load}.\n"
        )
        yield "| policy | " + " | ".join(title for _, title in COLUMNS) + " | had to know |"
        yield "|---" + "|---:" * len(COLUMNS) + "|---|"
        rows = match["rows"]
        played = sorted((n for n in rows if "cannot" not in rows[n]), key=lambda n: _jct(rows[n]))
        for spec in played:
            row, name = rows[spec], spec.partition(":")[0]
            cells = " | ".join(f"{row[key]:g}" if key in row else "" for key, _ in COLUMNS)
            predictor = f" ({row['predictor']})" if row["predictor"] != "none" else ""
            yield f"| {linked(name)} | {cells} | {known.get(name, '')}{predictor} |"
        for spec in (n for n in rows if "cannot" in rows[n]):
            yield f"\n`{spec}` cannot play here: {rows[spec]['cannot']}."
        yield ""


def _jct(row: dict[str, Any]) -> float:
    return float(row["avg_jct_h"])


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
