"""The page of the league and its pictures, from the results alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path

from benchmarks.league.matches import MATCHES, entries
from benchmarks.league.picture import draw
from benchmarks.league.play import Results, Row
from benchmarks.league.ranks import Standing, standing
from weft.app.simulate.world import SHARED
from weft.core.spec.registry import build, names
from weft.formulas.statistics import mean_interval
from weft.report.units import duration, number

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "league.md"
RANKED = {
    "avg_jct_h": "average completion time",
    "avg_queue_h": "average wait",
    "slowdown_10min": "bounded slowdown, 10 min",
    "worst_ftf": "worst finish-time fairness",
}
COLUMNS = {
    "avg_jct_h": "avg JCT",
    "avg_queue_h": "avg wait",
    "p95_queue_h": "p95 wait",
    "short_queue_h": "short wait",
    "slowdown_10s": "slowdown 10 s",
    "slowdown_10min": "slowdown 10 min",
    "worst_ftf": "worst FTF",
    "gpu_hours_wasted": "GPU-h wasted",
    "restarts_per_job": "restarts",
}
MADE = "<!-- Made by benchmarks.league; run it again instead of editing. -->"


def write_page(results: Results) -> list[Path]:
    """Write the page and a picture per ranked measure."""
    ranks = {measure: rank(results, measure) for measure in RANKED}
    for path, (measure, title) in zip(pictures(), RANKED.items(), strict=True):
        path.write_text(draw(title[0].upper() + title[1:], ranks[measure]))
    PAGE.write_text("\n".join(page(results, ranks)) + "\n")
    return [PAGE, *pictures()]


def pictures() -> list[Path]:
    """A picture per ranked measure."""
    short = (measure.removesuffix("_h").replace("_", "-") for measure in RANKED)
    return [DOCS / "images" / f"league-{name}.svg" for name in short]


def print_standings(results: Results) -> None:
    """The table of ranks, for the terminal."""
    print("\n".join(_ranks_table({measure: rank(results, measure) for measure in RANKED})))


def rank(results: Results, measure: str) -> Standing:
    """Policies that ended all jobs of every workload that has been played, by one measure."""
    played = complete(results)
    values: dict[str, list[float]] = {}
    for name in sorted({name for at in played for name in results.rows[at]}):
        rows = [results.rows[at].get(name, {}) for at in played]
        if all(whole(row) for row in rows):
            values[name] = [value for row in rows for value in row[measure]]
    return standing(values)


def complete(results: Results) -> list[str]:
    """Workloads on which every entry has played."""
    last = entries()[-1].name
    return [m.workload for m in MATCHES if last in results.rows.get(m.workload, {})]


def whole(row: Row) -> bool:
    """Whether a policy could play and all jobs ended."""
    return "avg_jct_h" in row and not any(row["failed"])


def shares(name: str) -> bool:
    """Whether jobs may share GPUs under an entry, so that no bound holds for it."""
    policy = name.partition(",")[0]
    return policy in names("policy") and bool(build("policy", policy).about.controls & SHARED)


def page(results: Results, ranks: dict[str, Standing]) -> Iterator[str]:
    """Lines of the page."""
    played = complete(results)
    traces = sum(len(results.matches[name]["seeds"]) for name in played)
    ranked = next(iter(ranks.values())).ranks
    playing = {entry for name in played for entry in results.rows[name]}
    yield f"{MADE}\n# League\n"
    yield (
        f"{len(playing)} policies on {len(played)} built-in workloads, "
        f"{traces} traces: each workload drawn with several seeds. Every policy has its default "
        "parameters (a smaller search for `pollux`, longer rounds for `sia`, `slaq` and `smd`) and "
        "its own predictor, which for many is an oracle. `weft` also has history and estimates "
        "from jobs that are alike. Sizes are small, so that all of it runs on one core: "
        "look at differences, and run larger cases before you cite one.\n"
    )
    yield (
        "Bring it up to date, or add your own policy beside all others:\n\n"
        "```text\npython -m benchmarks.league\npython -m benchmarks.league mine.py:Mine\n```\n"
    )
    yield (
        "Only what changed runs again. A result is known by the policy's parameters and code (its "
        "modules and the pieces that they import, without comments), and by what `fifo` and `srtf` "
        "do on the same traces, which stands for the simulator and the workload. After a change of "
        "the simulator that neither would show, such as sharing, run it with `--fresh`. To have "
        "a policy on this page, register it as a plug-in or name it in "
        "`benchmarks/league/matches.py`.\n"
    )
    yield "## Ranks\n"
    yield (
        "On each trace the best policy has rank 1; values within 0.5 % share a rank. Bars are half "
        "of Nemenyi's critical difference to either side, at 5 % (Demšar 2006): two policies "
        "differ if their bars do not overlap. Blue policies do not differ from the first. "
        "This holds for new traces of these workloads, not for other workloads. "
        f"Ranked are the {len(ranked)} entries that ended all jobs of every workload.\n"
    )
    for path, title in zip(pictures(), RANKED.values(), strict=True):
        yield f"![Mean ranks by {title}](../images/{path.name})\n"
    yield from _ranks_table(ranks)
    yield "\n## Over the bound\n"
    yield from _over_bound(results)
    yield "\n## All numbers\n"
    yield (
        "Means over seeds, average completion times with half their 95 % interval; sorted by "
        "these. *Bound* is what [no schedule can beat](../explanation/bounds.md); it holds for "
        "policies that let no jobs share a GPU. *CPU* is of the whole simulation, as a "
        "multiple of that of `fifo`.\n"
    )
    for name in played:
        yield from _match(results, name)


def _ranks_table(ranks: dict[str, Standing]) -> Iterator[str]:
    first = next(iter(ranks.values()))
    yield f"| policy | {' | '.join(RANKED.values())} |"
    yield "|---" + "|--:" * len(RANKED) + "|"
    for name in first.ranks:
        yield f"| {name} | " + " | ".join(f"{of.ranks[name]:.1f}" for of in ranks.values()) + " |"
    yield (
        "| *critical difference* | "
        + " | ".join(f"{of.difference:.1f}" for of in ranks.values())
        + " |"
    )


def _over_bound(results: Results) -> Iterator[str]:
    """Best average completion times against the bound, with and without true lengths."""
    yield "The least average completion time of policies that ended all jobs and let none share.\n"
    yield "| workload | bound | best | over bound | best without an oracle | over bound | weft |"
    yield "|---|--:|---|--:|---|--:|--:|"
    for workload in complete(results):
        at = results.matches[workload]
        if not at["bounds"]:
            continue
        bound = statistics.fmean(at["bounds"]["avg_jct_h"])
        rows = {
            n: r for n, r in results.rows.get(workload, {}).items() if whole(r) and not shares(n)
        }
        if not rows:
            continue
        blind = {n: r for n, r in rows.items() if not r["predictor"].startswith("oracle")}
        cells = [workload, duration(bound)]
        for some in (rows, blind):
            best = min(some, key=lambda name: statistics.fmean(some[name]["avg_jct_h"]))
            cells += [best, f"{statistics.fmean(some[best]['avg_jct_h']) / bound:.3f}"]
        own = rows.get("weft")
        cells.append(f"{statistics.fmean(own['avg_jct_h']) / bound:.3f}" if own else "")
        yield f"| {' | '.join(cells)} |"


def _match(results: Results, workload: str) -> Iterator[str]:
    at, rows = results.matches[workload], results.rows[workload]
    yield (
        f"### {workload}\n\n{at['what'][0].upper()}{at['what'][1:]}: {at['jobs']} jobs on "
        f"`{at['cluster']}`, load {at['load']:g}, {len(at['seeds'])} seeds.\n"
    )
    yield f"| policy | {' | '.join(COLUMNS.values())} | CPU | predictor |"
    yield "|---" + "|--:" * (len(COLUMNS) + 1) + "|---|"
    if at["bounds"]:
        least = [_shown(name, at["bounds"].get(name, ())) for name in COLUMNS]
        yield f"| *bound* | {' | '.join(least)} | | |"
    played = [name for name in rows if "avg_jct_h" in rows[name]]
    for name in sorted(played, key=lambda n: statistics.fmean(rows[n]["avg_jct_h"])):
        row = rows[name]
        left = f" ({sum(row['failed']):g} jobs left out)" if any(row["failed"]) else ""
        cells = " | ".join(_shown(column, row[column]) for column in COLUMNS)
        yield f"| {name}{left} | {cells} | {row['cpu']:g} | {row['predictor']} |"
    yield ""
    for name in sorted(set(rows) - set(played)):
        yield f"`{name}` cannot play here: {rows[name]['cannot']}.\n"


def _shown(measure: str, values: Sequence[float]) -> str:
    """A mean; with its interval where the table is sorted by it."""
    if not values:
        return ""
    mean, half = mean_interval(list(values))
    if not isfinite(mean):
        return "—"
    half = half if measure == "avg_jct_h" else 0.0
    return duration(mean, half) if measure.endswith("_h") else number(mean, half)
