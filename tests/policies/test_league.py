"""The league: ranks, what runs again, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.league import digests
from benchmarks.league.matches import Entry, Match
from benchmarks.league.page import PAGE, RANKED, complete, page, pictures, rank, shares
from benchmarks.league.play import Results, play
from benchmarks.league.ranks import critical_difference, standing

TINY = Match("tiny-20", "2x4:v100", "20 jobs")
SECONDS = 60.0


def test_the_critical_difference_is_that_of_the_published_example() -> None:
    # Demsar 2006: four classifiers on 14 data sets, 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_ranks_are_means_over_traces_and_near_values_share_one() -> None:
    standings = standing({"a": [1.0, 10.0, 0.0], "b": [1.001, 5.0, 0.0], "c": [3.0, 20.0, 7.0]})

    assert standings.ranks == {"b": (1.5 + 1 + 1.5) / 3, "a": (1.5 + 2 + 1.5) / 3, "c": 3.0}
    assert list(standings.ranks) == ["b", "a", "c"]


def test_wording_changes_no_digest_and_code_does(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    seen = []
    for text in ('"""Mine."""\nA = 1\n', '"""My own."""\nA = 1  # one\n', "A = 2\n"):
        own.write_text(text)
        seen.append(digests.of_entry(Entry(f"{own}:Mine")))

    assert seen[0] == seen[1] != seen[2]


def test_a_policy_is_known_by_the_pieces_that_it_imports() -> None:
    modules = digests.imported("weft.policies.weft.policy")

    assert {"weft.policies.weft.plain", "weft.pieces.pack"} <= modules
    assert not any(name.startswith(("weft.sim", "weft.service")) for name in modules)


def test_only_what_changed_runs_again(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    code = {Entry("fifo"): "1", Entry("srtf"): "1"}

    first = list(play(TINY, code, Results(path), (1, 2), SECONDS))
    again = list(play(TINY, code, Results(path), (1, 2), SECONDS, processes=2))
    changed = list(play(TINY, {**code, Entry("srtf"): "2"}, Results(path), (1, 2), SECONDS))
    other_seeds = list(play(TINY, code, Results(path), (1, 3), SECONDS, processes=2))

    assert [len(some) for some in (first, again, changed, other_seeds)] == [2, 0, 1, 2]
    assert Results(path).matches["tiny-20"]["bounds"]["avg_jct_h"]


def test_a_policy_that_takes_too_long_is_left_out(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.json")

    list(play(TINY, {Entry("weft"): "1"}, results, (1,), 0.001))

    assert "CPU time" in results.rows["tiny-20"]["weft"]["cannot"]


def test_the_page_is_made_from_the_results() -> None:
    results = Results()
    ranks = {measure: rank(results, measure) for measure in RANKED}

    made = "\n".join(page(results, ranks)) + "\n"

    assert PAGE.read_text() == made, "run `python -m benchmarks.league --page`"
    assert all(path.is_file() for path in pictures())


def test_no_policy_is_better_than_a_bound() -> None:
    results = Results()
    for name in complete(results):
        for measure, bounds in results.matches[name]["bounds"].items():
            for policy, row in results.rows[name].items():
                if measure in row and not any(row["failed"]) and not shares(policy):
                    for value, bound in zip(row[measure], bounds, strict=True):
                        assert value >= bound * 0.9999, (name, measure, policy)
