from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.report.figures import jct_by_size, jct_cdf, over_time
from weft.report.html import render, unpack, write_report
from weft.report.scores import against_first, headline, table
from weft.report.timeline import MOST_BARS, MOST_GPUS, timelines
from weft.sim.collect import TIMELINE_BARS, TIMELINE_GPUS
from weft.sim.result import (
    ClusterSeries,
    Outcome,
    PerJob,
    Result,
    TimelineBar,
    TimelineBars,
    UserShare,
)

HOUR = 3600.0
NEVER = float("nan")


def outcome(
    policy: str = "fifo",
    *ends_h: float,
    predictor: str = "none",
    bars: tuple[TimelineBar, ...] = (),
    **metrics: float,
) -> Outcome:
    """Jobs of 1, 2, 3, ... GPUs submitted at 0 that end at these hours."""
    end = HOUR * np.array(ends_h or (1.0, 2.0, 9.0))
    zero = np.zeros(len(end))
    done = end[~np.isnan(end)]
    known: dict[str, float] = {"jobs": len(end), "finished": len(done), **metrics}
    known["failed"] = len(end) - len(done)
    known.setdefault("avg_jct_h", float(done.mean()) / HOUR if len(done) else 0.0)
    names = tuple(f"job-{i}" for i in range(len(end)))
    gpus = np.arange(1.0, len(end) + 1)
    rows = PerJob(names, zero, zero, end, zero, zero, gpus, end / HOUR, end / HOUR)
    at = np.linspace(0.0, 9 * HOUR, 3 if len(done) else 0)
    timeline = TimelineBars.of((b.node, b.gpu, b.job, b.start_s, b.end_s) for b in bars)
    return Outcome(
        policy, predictor, known, {"p50": 0.5}, 1.0, rows, ClusterSeries(at, at, at), timeline
    )


def result(*outcomes: Outcome, workload: str = "tiny", seeds: tuple[int, ...] = (0,)) -> Result:
    """The outcomes of one policy are its seeds."""
    each: dict[str, tuple[Outcome, ...]] = {}
    for outcome in outcomes:
        each[outcome.policy] = (*each.get(outcome.policy, ()), outcome)
    return Result("1.2.3", workload, "1x8:v100", seeds, each, {"gpus": 8.0, "offered_load": 0.85})


def page(what: Result) -> str:
    return render(what, "/* library */")


def figures_in(text: str) -> dict[str, Any]:
    match = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    figures: dict[str, Any] = json.loads(match[1])
    return figures


def test_every_section_is_there_in_order() -> None:
    text = page(result(outcome(bars=(TimelineBar("v100-0", 0, "job-0", 0.0, HOUR),))))

    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "Policies",
        "Completion times",
        "Queue and GPUs over time",
        "Completion time by job size",
        "Waits",
        "Fairness",
        "Finish-time fairness of jobs",
        "Share received against entitlement",
        "GPU timeline",
        "How to read this",
    ]
    assert list(figures_in(text)) == [
        "jct-cdf",
        "over-time",
        "jct-by-size",
        "rho-cdf",
        "timeline-0",
    ]


def test_the_header_tells_what_ran() -> None:
    text = page(result(outcome(), workload="philly"))

    for fact in ("philly", "1x8:v100", ">8<", ">3<", "0.85", "1.2.3"):
        assert fact in text


def test_an_oracle_is_called_one() -> None:
    text = page(result(outcome(), outcome("srtf", predictor="oracle")))

    assert "<code>srtf</code>: predictor <b>oracle</b>, <strong>knows true remaining times" in text
    assert "<code>fifo</code>: predictor <b>none</b>" in text


def test_the_best_of_a_column_is_marked() -> None:
    each = result(
        outcome("slow", 4.0, utilization=0.9), outcome("fast", 2.0, utilization=0.4)
    ).outcomes

    slow, fast = re.findall(r"<tr>(<th scope=\"row\">.*?)</tr>", table(each))

    assert re.findall(r'class="best">.*?</span>([\d.]+)', fast) == ["2"]
    assert re.findall(r'class="best">.*?</span>([\d.]+)', slow) == ["90"]
    assert slow.count("★") == fast.count("★") == 1
    assert "<td>0.50&times;</td>" in fast


def test_equal_values_and_lone_policies_have_no_best() -> None:
    assert "★" not in table(result(outcome("a"), outcome("b")).outcomes)
    assert "★" not in page(result(outcome()))


def test_seeds_become_a_mean_and_half_its_interval() -> None:
    text = page(result(outcome("fifo", 2.0), outcome("fifo", 4.0), seeds=(0, 1)))

    assert '3<small class="spread">± 12.7</small>' in text
    assert "over 2 seeds" in text


def test_unfinished_jobs_are_counted_beside_the_policy() -> None:
    text = page(result(outcome("fifo", 1.0, NEVER)))

    assert "1 of 2 jobs unfinished" in text
    assert figures_in(text)["jct-cdf"]["data"][0]["y"] == [50.0]


def test_a_run_where_nothing_finished_says_so() -> None:
    text = page(result(outcome("fifo", NEVER, NEVER)))

    assert "No job finished" in text
    assert "No job ran." in text
    assert figures_in(text) == {}


def test_a_timeline_that_is_too_large_is_explained() -> None:
    text = page(result(outcome()))

    assert "at most 128 GPUs and 4,000 bars" in text
    assert (MOST_GPUS, MOST_BARS) == (TIMELINE_GPUS, TIMELINE_BARS)


def test_what_users_typed_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    bars = (TimelineBar(evil, 0, evil, 0.0, HOUR),)

    text = page(result(outcome(evil, bars=bars, predictor=evil), workload=evil))

    assert "<script>alert" not in text
    assert text.count("</script>") == 3
    assert figures_in(text)["jct-cdf"]["data"][0]["name"].startswith("&lt;script&gt;")


def test_files_are_called_by_their_name() -> None:
    text = page(result(outcome(), workload="/somewhere/private/trace.csv"))

    assert "trace.csv on 1x8:v100" in text
    assert "private" not in text


def test_a_missing_plotly_is_answered_with_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("plotly", "plotly.offline"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(InvalidConfig, match="needs plotly") as caught:
        write_report(result(outcome()), tmp_path / "report.html")

    assert caught.value.hint == "pip install 'weft[report]'"


def test_a_policy_keeps_its_colour() -> None:
    each = result(outcome("a", NEVER), outcome("b")).outcomes

    charts = [jct_cdf(each), over_time(each, 8.0), jct_by_size(each)]

    colours = set()
    for chart in charts:
        assert chart is not None
        last = chart["data"][-1]
        assert last["name"] == "b"
        colours.add(last.get("line", last.get("marker"))["color"])
    assert colours == {"#D55E00"}


def test_a_long_curve_is_thinned_but_keeps_its_ends() -> None:
    ends = np.linspace(1.0, 9.0, 20_000).tolist()

    chart = jct_cdf(result(outcome("fifo", *ends)).outcomes)

    assert chart is not None
    x, y = chart["data"][0]["x"], chart["data"][0]["y"]
    assert len(x) <= 600
    assert (x[0], x[-1], y[-1]) == (HOUR, 9 * HOUR, 100.0)


def test_sizes_fall_into_their_classes() -> None:
    chart = jct_by_size(result(outcome("fifo", 1.0, 2.0, 4.0)).outcomes)

    assert chart is not None
    assert chart["data"][0]["x"] == ["1 GPU<br>1 job", "2-4 GPUs<br>2 jobs"]
    assert chart["data"][0]["y"] == [HOUR, 3 * HOUR]


def test_timeline_rows_follow_nodes_and_sharers_lie_side_by_side() -> None:
    bars = (
        TimelineBar("n-10", 0, "job-0", 0.0, HOUR),
        TimelineBar("n-2", 1, "job-0", 0.0, 2 * HOUR),
        TimelineBar("n-2", 1, "job-1", HOUR, 3 * HOUR),
        TimelineBar("n-2", 1, "job-2", 3 * HOUR, 4 * HOUR),
    )

    chart = timelines(result(outcome(bars=bars)).outcomes)["fifo"]

    trace, *_ = chart["data"]
    assert chart["layout"]["yaxis"]["ticktext"] == ["n-2", "n-10"]
    assert trace["y"] == [2.0, 0.77, 1.23, 1.0]
    assert trace["width"] == [0.92, 0.46, 0.46, 0.92]
    assert trace["customdata"][2] == ["job-1", "n-2 GPU 1", "60 min", "3 h", "2 h"]


def test_the_reader_chooses_between_timelines() -> None:
    bars = (TimelineBar("v100-0", 0, "job-0", 0.0, HOUR),)

    text = page(result(outcome("a", bars=bars), outcome("b", bars=bars), outcome("c")))

    buttons = re.findall(r'data-plot="(.*?)" aria-pressed="(.*?)">(.*?)<', text)
    assert buttons == [("timeline-0", "true", "a"), ("timeline-1", "false", "b")]
    assert "Too large to draw: c." in text


def test_the_charts_of_fairness_show_every_user_and_policy() -> None:
    at = np.linspace(0.0, HOUR, 4)
    shares = tuple(UserShare(f"user-{i}", 1.0 + i, at, at, at) for i in range(3))
    fifo, srtf = (replace(outcome(name), shares=shares) for name in ("fifo", "srtf"))

    drawn = figures_in(page(result(fifo, srtf)))

    assert [trace["name"] for trace in drawn["rho-cdf"]["data"]] == ["fifo", "srtf"]
    assert drawn["rho-cdf"]["data"][0]["x"] == [1.0, 2.0, 9.0]
    lines = drawn["user-shares"]["data"]
    assert [trace["name"] for trace in lines] == ["entitled", "fifo", "srtf"] * 3
    assert len({trace["yaxis"] for trace in lines}) == 3
    titles = [note["text"] for note in drawn["user-shares"]["layout"]["annotations"]]
    assert titles == ["user-0", "user-1, weight 2", "user-2, weight 3"]


def test_the_headline_says_who_is_fastest_and_whether_that_holds() -> None:
    slow, fast = outcome("fifo", 4.0, 8.0), outcome("srtf", 1.0, 2.0)
    times = {"finished": 2.0, "avg_jct_h": 4.0}

    def outcomes_of(*hours: float) -> tuple[Outcome, ...]:
        return tuple(replace(fast, metrics={**times, "avg_jct_h": h}) for h in hours)

    base = (replace(slow, metrics=times),) * 3
    sure = headline({"fifo": base, "srtf": outcomes_of(1.0, 1.1, 0.9)})
    chance = headline({"fifo": base, "srtf": outcomes_of(1.0, 9.0, 1.0)})

    assert "<b>srtf</b> finishes jobs fastest: 60 min on average, 75 % less" in sure
    assert sure.endswith("That holds over 3 seeds.")
    assert chance.endswith("may be chance.")
    assert "\u2605 -75.0 %" in against_first({"fifo": base, "srtf": outcomes_of(1.0, 1.1, 0.9)})
    assert "\u2605" not in against_first({"fifo": base, "srtf": outcomes_of(1.0, 9.0, 1.0)})


def test_the_page_says_how_it_was_made_and_many_figures_are_packed() -> None:
    many = result(*(outcome(f"p{i}", *map(float, range(1, 1500))) for i in range(4)))

    text = render(many, "/* library */", command="weft compare tiny-20 <x>")

    assert "weft compare tiny-20 &lt;x&gt;" in text
    packed = re.search(r'id="packed-figures">(.*?)</script>', text, re.DOTALL)
    assert packed is not None
    assert "jct-cdf" in json.loads(unpack(packed[1]))
