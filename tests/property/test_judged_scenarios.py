"""Every policy and stack of rules on drawn scenarios of a live service, before the judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cheap import every_policy
from tests.examples import some
from tests.scenarios.drawn import WRAPPERS, draw
from tests.scenarios.judged import judge_scenario
from tests.scenarios.live import play
from tests.seeds import seeds

import weft
from weft.core.spec.registry import build
from weft.judge.finding import Weight
from weft.judge.judge import Verdict, judge
from weft.judge.log_lines import make_log, read_log
from weft.judge.words import say_finding
from weft.store.sqlite import SqliteStore

POLICIES = every_policy()


def wrong_in(verdict: Verdict) -> list[str]:
    return [say_finding(f) for f in verdict.findings if f.weight is Weight.WRONG]


CASES = [
    (policy, wrapper, seed)
    for turn, policy in enumerate(some(POLICIES, 1, 18))
    for wrapper in some(WRAPPERS, turn, 1)
    for seed in seeds(1)
]


@pytest.mark.parametrize(("policy", "wrapper", "seed"), CASES)
def test_a_drawn_scenario_stands_before_the_judge(policy: str, wrapper: str, seed: int) -> None:
    assert wrong_in(judge_scenario(policy, wrapper, seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_many_drawn_scenarios_stand_before_the_judge(wrapper: str, seed: int) -> None:
    policy = POLICIES[seed % len(POLICIES)]

    assert wrong_in(judge_scenario(policy, wrapper, seed)) == []


@pytest.mark.parametrize("policy", some(POLICIES, 0, 6))
def test_a_simulation_stands_before_the_judge(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    result = weft.simulate("tiny-20", policy, "2x4:v100+1x4:t4", events=path)

    verdict = judge(read_log(path))

    assert wrong_in(verdict) == []
    rows = next(iter(result.outcomes.values()))[0].per_job
    books = [verdict.books[job] for job in rows.id]
    assert rows.restarts.tolist() == [account.restarts for account in books]
    assert rows.start_s.tolist() == pytest.approx([account.started for account in books])
    assert rows.end_s.tolist() == pytest.approx([account.ended for account in books])


def test_the_judge_reads_what_a_store_on_disk_holds(tmp_path: Path) -> None:
    rows: list[tuple[int, float, weft.core.events.event.Event]] = []
    play(draw(3, ["las"], [""]), lambda driver: rows.extend(driver.store.since(0)))
    store = SqliteStore(tmp_path / "events.db")
    store.append([(at, event) for _, at, event in rows])
    store.close()

    assert judge(read_log(tmp_path)).findings == judge(make_log("", rows)).findings


def test_policies_say_in_the_log_whether_they_leave_devices_idle(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for policy in ("gavel", "fifo"):
        weft.simulate("tiny-20", policy, "2x4:v100", events=path)
        (line, *_) = read_log(path)

        assert line.event.terms.idles == build("policy", policy).about.idles  # type: ignore[union-attr]
