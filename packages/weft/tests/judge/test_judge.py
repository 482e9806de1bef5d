"""The judge on small logs written by hand: an honest one, and one planted fault of each kind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from weft.core.codec.event_lines import event_line
from weft.core.errors import InvalidConfig
from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.model.cluster import Node
from weft.core.model.job import After, Allocation, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.judge.finding import Weight
from weft.judge.judge import Verdict, judge
from weft.judge.log_lines import is_log, make_log, read_log
from weft.judge.page import write_page
from weft.judge.words import as_values, describe

A, B, C = JobId("a"), JobId("b"), JobId("c")
N1, N2 = NodeId("n1"), NodeId("n2")
Timed = tuple[float, facts.Event]
FIFO = facts.PolicyChanged(PartSpec("fifo"), terms=facts.PolicyTerms())
NODES: list[Timed] = [
    (0.0, FIFO),
    (0.0, facts.NodeUp(Node(N1, "v100", 2))),
    (0.0, facts.NodeUp(Node(N2, "v100", 2))),
]


def on(*gpus: int, node: NodeId = N1, share: float = 1.0, gb: float | None = None) -> Allocation:
    return Allocation((Slice(node, gpus),), Sharing(share, gpu_mem_gb=gb))


def job(name: JobId, gpus: int = 1, **more: object) -> facts.Submitted:
    return facts.Submitted(Job(name, demand=Demand(gpus), **more))  # type: ignore[arg-type]


def give(number: int, **more: object) -> facts.Decided:
    return facts.Decided(number, **more)  # type: ignore[arg-type]


def judged(events: Sequence[Timed], before: Sequence[Timed] = NODES) -> Verdict:
    rows = [(i, at, event) for i, (at, event) in enumerate([*before, *events], 1)]
    return judge(make_log("here", rows))


def wrongs(events: Sequence[Timed]) -> set[tuple[str, str]]:
    return {(f.check, f.what) for f in judged(events).findings if f.weight is Weight.WRONG}


ALL_GPUS = Allocation((Slice(N1, (0, 1)), Slice(N2, (0, 1))))
HONEST: list[Timed] = [
    (0.0, job(A, tenant="red")),
    (0.0, give(1, changes={A: on(0)})),
    (1.0, facts.Started(A, 1)),
    (11.0, job(B, 4)),
    (11.0, give(2, changes={A: None, B: ALL_GPUS})),
    (12.0, facts.Stopped(A, 1)),
    (13.0, facts.Started(B, 1)),
    (23.0, facts.Finished(B, 1)),
    (23.0, give(3, changes={A: on(1, node=N2)})),
    (24.0, facts.Started(A, 2)),
    (34.0, facts.Finished(A, 2)),
]


def test_an_honest_log_has_no_fault_and_its_books_add_up() -> None:
    verdict = judged(HONEST)

    assert verdict.findings == ()
    a, b = verdict.books[A], verdict.books[B]
    assert (a.gpu_s, a.restarts, a.waited_s, a.ended) == (11.0 + 10.0, 1, 1.0, 34.0)
    assert (b.gpu_s, b.ran_s, b.waited_s) == (40.0, 10.0, 2.0)
    red, other = verdict.tenants["red"], verdict.tenants[""]
    assert (red.gpu_s, other.gpu_s) == (21.0, 40.0)
    # alone it may have the one GPU that it wants; beside four that are wanted, still that one
    assert (red.entitled_s, other.entitled_s) == (34.0, 3 * 12.0)
    assert (red.met_s, other.met_s) == (21.0, 30.0)


RUNS: list[Timed] = [(0.0, job(A)), (0.0, give(1, changes={A: on(0)})), (1.0, facts.Started(A, 1))]
UNLAWFUL: dict[str, list[Timed]] = {
    "over-claimed": [(0.0, job(A)), (0.0, job(B)), (0.0, give(1, changes={A: on(0), B: on(0)}))],
    "memory over-claimed": [
        (0.0, job(A)),
        (0.0, job(B)),
        (0.0, give(1, changes={A: on(0, share=0.5, gb=20), B: on(0, share=0.5, gb=20)})),
    ],
    "gang not whole": [(0.0, job(A, 2)), (0.0, give(1, changes={A: on(0)}))],
    "no such device": [(0.0, job(A)), (0.0, give(1, changes={A: on(2)}))],
    "no such node": [(0.0, job(A)), (0.0, facts.NodeDown(N1)), (0.0, give(1, changes={A: on(0)}))],
    "two on a device": [
        *RUNS,
        (5.0, job(B)),
        (5.0, give(2, changes={A: None, B: on(0)})),
        (6.0, facts.Started(B, 1)),
    ],
    "two attempts": [*RUNS, (5.0, give(2, changes={A: on(1)})), (6.0, facts.Started(A, 2))],
    "starts twice": [*RUNS, (2.0, facts.Started(A, 1))],
    "starts without devices": [(0.0, job(A)), (1.0, facts.Started(A, 1))],
    "stops by itself": [*RUNS, (2.0, facts.Stopped(A, 1))],
    "ends without an attempt": [(0.0, job(A)), (1.0, facts.Finished(A, 1))],
    "submitted twice": [(0.0, job(A)), (1.0, job(A))],
    "unknown job": [(1.0, facts.Started(A, 1))],
    "devices without a job": [
        *RUNS,
        (2.0, facts.Finished(A, 1)),
        (2.0, give(2, changes={A: on(0)})),
    ],
    "decisions out of order": [*RUNS, (2.0, give(1))],
    "time runs back": [*RUNS, (0.5, facts.Reported(A, 1))],
    "starts while suspended": [
        (0.0, job(A)),
        (0.0, facts.Suspended(A)),
        (0.0, give(1, changes={A: on(0)})),
    ],
    "starts before others": [
        (0.0, job(A)),
        (0.0, job(B, after=After(ok=(A,)))),
        (0.0, give(1, changes={A: on(0), B: on(1)})),
    ],
    "too many at once": [
        (0.0, job(A, app="x", max_parallel=1)),
        (0.0, job(B, app="x", max_parallel=1)),
        (0.0, give(1, changes={A: on(0), B: on(1)})),
    ],
    "shares its device": [
        (0.0, job(A, shareable=False)),
        (0.0, job(B)),
        (0.0, give(1, changes={A: on(0, share=0.5), B: on(0, share=0.5)})),
    ],
}


@pytest.mark.parametrize("what", UNLAWFUL)
def test_what_is_not_lawful_is_found(what: str) -> None:
    assert ("lawful", what) in wrongs(UNLAWFUL[what])


def test_a_missing_line_and_one_that_cannot_be_read_are_found(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [event_line(at, event) for at, event in [*NODES, *HONEST]]
    path.write_text("\n".join([*lines[:-1], '{"at":1,"event":"Nonsense"}', lines[-1]]))

    matches = {f.what: f.line for f in judge(read_log(path)).findings}
    gap = [(i, at, event) for i, (at, event) in enumerate([*NODES, *HONEST], 1) if i != 9]

    assert matches == {"unreadable": len(lines)}
    assert {f.what: f.line for f in judge(make_log("", gap)).findings}["missing lines"] == 9


# ---- idle devices and reasons

IDLE: list[Timed] = [*RUNS, (5.0, job(B)), (5.0, give(2))]
END: Timed = (500.0, facts.Finished(A, 1))


def test_a_job_that_waits_beside_idle_devices_without_a_reason_is_found() -> None:
    (finding,) = judged([*IDLE, END]).findings

    assert (finding.check, finding.what, finding.jobs, finding.at) == (
        "idle",
        "no reason",
        (B,),
        5.0,
    )
    assert "for 495 s" in finding.text


def test_a_policy_that_leaves_devices_idle_by_its_own_rule_says_so() -> None:
    idles = facts.PolicyChanged(PartSpec("gavel"), terms=facts.PolicyTerms(idles="by its rule"))
    verdict = judged([(0.0, idles), *IDLE, END])

    assert verdict.findings == ()
    assert verdict.numbers["idle"]["job-hours beside idle GPUs, by the policy's own rule"] > 0.1


def test_a_round_is_a_reason_until_it_is_over() -> None:
    rounds = facts.PolicyChanged(PartSpec("x"), terms=facts.PolicyTerms(every=60.0))
    late = [(0.0, rounds), *RUNS, (5.0, job(B))]

    assert wrongs([*late, (60.0, give(2, changes={B: on(1)}))]) == set()
    assert ("idle", "no reason") in wrongs([*late, END])


def reason(blocker: Blocker, **numbers: object) -> facts.Decided:
    return give(2, reasons={B: "why"}, blockers={B: blocker}, facts={B: numbers})


QUOTA = facts.PolicyChanged(
    PartSpec("fifo", wrappers=(PartSpec("quota", {"limits": {"red": 2.0}}),)),
    terms=facts.PolicyTerms(),
)
UNTRUE: dict[str, tuple[Blocker, dict[str, object]]] = {
    "devices": (Blocker.GPUS, {}),
    "quota": (Blocker.QUOTA, {"limit": 2.0}),
    "another quota": (Blocker.QUOTA, {"limit": 1.0}),
    "class": (Blocker.CLASS, {"job": "big"}),
    "depends": (Blocker.DEPENDENCY, {}),
    "suspended": (Blocker.SUSPENDED, {}),
    "parallel": (Blocker.PARALLEL, {}),
    "failed": (Blocker.FAILED, {}),
    "steady": (Blocker.STEADY, {"seconds": 10.0}),
    "share": (Blocker.SHARE, {}),
    "reserved": (Blocker.RESERVED, {}),
    "guarantee": (Blocker.GUARANTEE, {"quota": 4.0}),
    "spot": (Blocker.SPOT, {"quota": 4.0}),
    "too large": (Blocker.TOO_LARGE, {"limit": 3.0}),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_a_reason_that_is_not_true_is_found(name: str) -> None:
    blocker, numbers = UNTRUE[name]
    events: list[Timed] = [
        *RUNS,
        (0.0, QUOTA),
        (5.0, job(B, tenant="red")),
        (5.0, reason(blocker, **numbers)),
        (50.0, give(3)),
        END,
    ]
    events.sort(key=lambda timed: timed[0])

    assert ("reasons", "untrue reason") in wrongs(events)


def test_a_reason_that_is_true_is_no_finding() -> None:
    full: list[Timed] = [*RUNS, (5.0, job(B, 4)), (5.0, reason(Blocker.GPUS)), END]
    over: list[Timed] = [
        (0.0, QUOTA),
        (0.0, job(A, 2, tenant="red")),
        (0.0, give(1, changes={A: on(0, 1)})),
        (1.0, facts.Started(A, 1)),
        (5.0, job(B, tenant="red")),
        (5.0, reason(Blocker.QUOTA, limit=2.0)),
        END,
    ]

    assert wrongs(full) == wrongs(over) == set()


# ---- stops, promises and books


def test_a_stop_for_nothing_a_needless_one_and_a_swap_are_found() -> None:
    nothing = [*RUNS, (50.0, give(2, changes={A: None}, reasons={A: "why"}))]
    elsewhere = [*RUNS, (50.0, job(B)), (50.0, give(2, changes={A: None, B: on(0)}))]

    assert ("stops", "for nothing") in wrongs(nothing)
    assert ("stops", "needless") in wrongs(elsewhere)
    assert ("stops", "swap") in wrongs(swap({}, {}))


def swap(first: dict[str, float], second: dict[str, float]) -> list[Timed]:
    """A job that was just given its place loses it to a later one; their hints."""
    return [
        (0.0, job(A, hints=first)),
        (0.0, job(C, 3)),
        (0.0, give(1, changes={A: on(0), C: Allocation((Slice(N1, (1,)), Slice(N2, (0, 1))))})),
        (1.0, facts.Started(C, 1)),
        (50.0, job(B, hints=second)),
        (50.0, give(2, changes={A: None, B: on(0)})),
    ]


def test_a_job_that_says_that_it_is_shorter_may_take_the_place_of_its_equal() -> None:
    long, short = {"duration_s": 4000.0}, {"duration_s": 100.0}

    assert ("stops", "swap") not in wrongs(swap(long, short))
    assert ("stops", "swap") not in wrongs(swap({}, short))
    assert ("stops", "swap") in wrongs(swap(short, long))
    assert ("stops", "swap") in wrongs(swap(long, long))


def test_a_reclaim_whose_devices_an_equal_job_takes_is_found() -> None:
    taken: list[Timed] = [
        (0.0, job(A, 4, tenant="red")),
        (0.0, give(1, changes={A: ALL_GPUS})),
        (1.0, facts.Started(A, 1)),
        (50.0, job(B, 4, tenant="red")),
        (
            50.0,
            give(
                2,
                changes={A: None, B: ALL_GPUS},
                reasons={A: "gave way"},
                blockers={A: Blocker.RECLAIMED},
            ),
        ),
    ]

    assert ("stops", "swap") in wrongs(taken)


def test_a_job_that_is_stopped_again_and_again_is_in_doubt() -> None:
    events: list[Timed] = [(0.0, job(A, 4))]
    for i in range(4):
        at = 20.0 * i
        other = JobId(f"x{i}")
        events += [
            (at, give(2 * i + 1, changes={A: ALL_GPUS})),
            (at, facts.Started(A, i + 1)),
            (at + 10.0, job(other, 4, priority=1.0)),
            (at + 10.0, give(2 * i + 2, changes={A: None, other: ALL_GPUS})),
            (at + 10.0, facts.Stopped(A, i + 1)),
            (at + 10.0, facts.Started(other, 1)),
            (at + 20.0, facts.Finished(other, 1)),
        ]

    assert ("stops", "again") in {(f.check, f.what) for f in judged(events).findings}


def test_a_growth_that_made_a_job_slower_is_in_doubt() -> None:
    report = [Report(batch=64.0, step_s=step_s) for step_s in (1.0, 2.0)]
    events: list[Timed] = [
        (0.0, facts.Submitted(Job(A, demand=Demand(1, 1, 2)))),
        (0.0, give(1, changes={A: on(0)})),
        (1.0, facts.Started(A, 1)),
        *[(10.0 + i, facts.Reported(A, 1, report[0])) for i in range(3)],
        (20.0, facts.Resizable(A, 1)),
        (20.0, give(2, changes={A: on(0, 1)}, live=(A,))),
        (21.0, facts.Resized(A, 1, 1)),
        *[(30.0 + 400.0 * i, facts.Reported(A, 1, report[1])) for i in range(4)],
    ]

    (finding,) = judged(events).findings
    assert (finding.what, finding.weight) == ("slower", Weight.DOUBT)
    assert "50%" in finding.text


def test_promises_that_are_broken_are_found() -> None:
    late: list[Timed] = [
        (0.0, job(A, deadline=100.0)),
        (0.0, give(1, changes={A: on(0)}, promised=(A,))),
        (1.0, facts.Started(A, 1)),
        (150.0, facts.Finished(A, 1)),
    ]
    beyond: list[Timed] = [
        (0.0, QUOTA),
        (0.0, job(A, 4, tenant="red")),
        (0.0, give(1, changes={A: ALL_GPUS})),
    ]
    kept = facts.PolicyChanged(
        PartSpec("fifo", wrappers=(PartSpec("reserve", {"windows": {"night": "n1:0@-900=red"}}),)),
        terms=facts.PolicyTerms(),
    )
    reserved: list[Timed] = [(0.0, kept), *RUNS]
    slow: list[Timed] = [
        (0.0, job(A, slowdown=1.2)),
        (0.0, give(1, changes={A: on(0)})),
        (1.0, facts.Started(A, 1)),
        (9.0, facts.Observed(A, 1, broken_s=30.0)),
    ]

    matches = [
        {(f.check, f.what) for f in judged(e).findings} for e in (late, beyond, reserved, slow)
    ]
    words = ("deadline", "quota", "reservation", "slowdown")
    assert matches == [{("promises", word)} for word in words]


def test_records_that_differ_from_the_log_are_found(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    record = {
        "job": {"id": "a"},
        "submitted": 0.0,
        "outcome": "succeeded",
        "started": 1.0,
        "ended": 34.0,
        "starts": 2,
        "gpu_s": {"base": 21.0},
    }
    other = {**record, "gpu_s": {"base": 25.0}, "starts": 3}
    for shown, words in ((record, set()), (other, {"other gpu_s", "other starts"})):
        path.unlink(missing_ok=True)
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, json TEXT)")
        db.execute("CREATE TABLE ended_jobs (number INTEGER, data BLOB)")
        lines = [(at, event_line(at, event)) for at, event in [*NODES, *HONEST]]
        db.executemany("INSERT INTO events (at, json) VALUES (?, ?)", lines)
        db.execute("INSERT INTO ended_jobs VALUES (0, ?)", (json.dumps(shown).encode(),))
        db.commit()
        db.close()

        assert {f.what for f in judge(read_log(tmp_path)).findings} == words


def test_a_log_without_its_beginning_is_judged_from_there_on() -> None:
    rows = [(i, at, event) for i, (at, event) in enumerate([*NODES, *HONEST], 1)]

    verdict = judge(make_log("here", rows[7:]))

    assert not verdict.whole
    assert verdict.wrong == 0


def test_only_the_last_days_are_judged_after_all_of_it_was_played() -> None:
    day = 86_400.0
    before: list[Timed] = [(0.0, job(C)), (0.0, give(1)), (5.0, facts.Foretold(C, 0.0, 1.0, 2.0))]
    later: list[Timed] = [
        (9.0 * day, give(2, changes={C: on(0)})),
        (9.0 * day, facts.Started(C, 1)),
        (9.5 * day, job(A)),  # and this one waits beside idle devices for half a day
        (9.5 * day, give(3)),
        (10.0 * day, facts.Finished(C, 1)),
    ]
    rows = [(i, at, event) for i, (at, event) in enumerate([*NODES, *before, *later], 1)]

    last, whole = judge(make_log("", rows), 2.0), judge(make_log("", rows))

    assert [f.jobs for f in last.findings] == [(A,)]
    assert {f.jobs for f in whole.findings} == {(A,), (C,)}
    assert (last.promises, whole.promises) == (
        {},
        {("start in its range", "fifo, half empty"): (1, 0)},
    )
    assert (last.begin, last.lines, last.tenants[""].gpu_s) == (9.0 * day, 5, day)


def test_a_verdict_is_said_in_lines_and_in_values() -> None:
    verdict = judged([*IDLE, END])
    text = "\n".join(describe(verdict))

    assert "idle      1 wrong" in text
    assert "line 8: b: devices" in text
    assert json.loads(json.dumps(as_values(verdict)))["findings"][0]["line"] == 8
    page = write_page(verdict)
    assert page.count("<svg") == 2  # when it was wrong, and what the tenant had
    assert page.count("<rect") == 3
    assert "line 8: b: devices" in page


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"policies": []}')

    assert not is_log(path)
    with pytest.raises(InvalidConfig, match="holds no event"):
        read_log(path)
    with pytest.raises(InvalidConfig, match="there is no log"):
        read_log(tmp_path / "none")


def test_ranges_that_do_not_hold_are_found() -> None:
    events: list[Timed] = [(0.0, job(A, 4)), (0.0, give(1, changes={A: ALL_GPUS}))]
    events.append((1.0, facts.Started(A, 1)))
    for i in range(20):
        events += [
            (2.0, job(JobId(f"w{i}"), 4)),
            (2.0, facts.Foretold(JobId(f"w{i}"), 5.0, 8.0, 9.0)),
        ]
    verdict = judged([*events, (5000.0, facts.Reported(A, 1))])

    assert ("foretold", "ranges") in {(f.check, f.what) for f in verdict.findings}
    assert sum(f.what == "late" and f.weight is Weight.DOUBT for f in verdict.findings) == 20
    assert verdict.promises["start in its range", "fifo, full"] == (20, 0)


def test_a_range_that_holds_is_counted() -> None:
    waits: list[Timed] = [
        (0.0, job(A, 4)),
        (0.0, give(1)),
        (0.0, facts.Foretold(A, 50.0, 60.0, 100.0)),
        (1.0, give(2, changes={A: ALL_GPUS})),
        (70.0, facts.Started(A, 1)),
    ]

    verdict = judged(waits)

    assert verdict.promises == {("start in its range", "fifo, half empty"): (1, 1)}
    assert verdict.findings == ()
