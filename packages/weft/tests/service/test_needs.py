"""What needs a person: drawn states against a plain model, and the words of each kind."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.core.plan.reasons import Blocker
from weft.runtime.records.cluster_history import Mark
from weft.runtime.records.job_records import JobRecord
from weft.service.needs import KINDS, PER_KIND, Sight, choose, count_needs, find_needs
from weft.service.responses.answers import Need, NodeAnswer
from weft.service.responses.job_row import GpuHealth
from weft.service.watchdog import PartCheck


def record(job: str, tenant: str = "nlp", app: str = "", **fields: Any) -> JobRecord:
    return JobRecord(Job(JobId(job), tenant=tenant, app=app), 0.0, **fields)


def node(name: str, state: Any = "up", **fields: Any) -> NodeAnswer:
    plain = {"kind": "a100", "gpus": 4, "held": 0, "cpus": 8, "mem_gb": 64.0, "rack": ""}
    more = {"held_gpus": [], "drained_gpus": [], "links": ""}
    return NodeAnswer(id=name, state=state, **{**plain, **more, **fields})


def only(sight: Sight) -> Need:
    (need,) = find_needs(sight)
    return need


TROUBLES: dict[str, dict[str, Any]] = {
    "deadline": {"missed": True},
    "failing": {"failures": 2, "reason": "exit code 1"},
    "quota": {"said": "over quota", "blocker": Blocker.QUOTA},
    "": {"failures": 1},
}
GRAVEST = ("deadline", "slowdown", "failing", "memory", "idle", "quota", "")
drawn = st.lists(
    st.tuples(
        st.sampled_from(("nlp", "vision")),
        st.sampled_from(("", "sweep")),
        st.sets(st.sampled_from(GRAVEST), max_size=3),
    ),
    max_size=12,
)


@given(drawn, st.integers(0, 20))
def test_every_job_in_trouble_is_in_one_entry_of_its_gravest_kind(
    rows: list[tuple[str, str, set[str]]], failed: int
) -> None:
    jobs, texts = [], {kind: dict[JobId, str]() for kind in ("idle", "memory", "slowdown")}
    for number, (tenant, app, kinds) in enumerate(rows):
        fields: dict[str, Any] = {}
        for kind in kinds:
            fields |= TROUBLES.get(kind, {})
            if kind in texts:
                texts[kind][JobId(f"j{number}")] = "is so"
        if "failing" in kinds:
            fields["failures"] = 2
        jobs.append(record(f"j{number}", tenant, app, **fields))
    ended = [record(f"f{n}", outcome="failed", ended=float(n)) for n in range(failed)]
    idle, memory, slow = texts["idle"], texts["memory"], texts["slowdown"]
    sight = Sight(99.0, jobs, ended, idle, memory, slow, {"nlp": 8.0})

    needs = find_needs(sight)

    gravest = [min(kinds or {""}, key=GRAVEST.index) for _, _, kinds in rows]
    expected = Counter(kind for kind in gravest if kind) + Counter(failed=failed)
    assert {kind: count for kind, count in count_needs(needs).items() if count} == expected
    for tenant in ("nlp", "vision"):
        pairs = zip(rows, gravest, strict=True)
        theirs = Counter(kind for (whose, _, _), kind in pairs if kind and whose == tenant)
        theirs["failed"] += failed * (tenant == "nlp")
        own = [need for need in needs if need.tenant == tenant]
        assert {kind: n for kind, n in count_needs(own).items() if n} == +theirs
    assert [need.kind for need in needs] == sorted((n.kind for n in needs), key=KINDS.index)
    shown = choose(needs, None)
    assert len(shown.needs) + shown.more == len(needs)
    assert max(Counter(need.kind for need in shown.needs).values(), default=0) <= PER_KIND
    assert all(need.tenant == "vision" for need in choose(needs, "vision").needs)
    assert all(len(need.jobs) <= 3 and need.text and need.step for need in needs)


def test_jobs_that_failed_say_why_and_those_of_one_sweep_are_one_entry() -> None:
    reason = "exit code 1: CUDA out of memory\nand a long trace"
    single = record("a", outcome="failed", ended=40.0, reason=reason)
    sweep = [replace(record(f"s{n}", app="lr", reason="killed"), ended=50.0 + n) for n in range(3)]

    needs = find_needs(Sight(100.0, failed=[single, *sweep]))

    assert [need.text for need in needs] == [
        "3 jobs of lr (nlp) failed, the last 48 s ago: killed",
        "a (nlp) failed 60 s ago: exit code 1: CUDA out of memory",
    ]
    assert needs[1].step == "Read the end of its output, `weft logs a`, then submit it again"
    assert [job.id for job in needs[0].jobs] == ["s2", "s1", "s0"]


def test_a_quota_that_is_used_up_names_who_does_what() -> None:
    fields = {"said": "over quota", "blocker": Blocker.QUOTA}
    waiting = [record(f"j{n}", **fields) for n in range(3)]
    limits = {"nlp": 16.0, "nlp@h100": 1.0, "vision": 8.0}

    need = only(Sight(0.0, waiting, limits=limits))

    assert need.text == "3 jobs of nlp wait: its quota of 16 GPUs and 1 h100 GPU is used up"
    assert need.step.endswith("ask an admin for more: `weft quota set nlp --gpus N`")
    huge = [replace(job, blocker=Blocker.TOO_LARGE) for job in waiting[:1]]
    assert only(Sight(0.0, huge, limits={"nlp": 1.0})).text == (
        "1 job of nlp can never start: its quota of 1 GPU is smaller than what each asks for"
    )


def test_nodes_out_of_use_say_why_and_those_kept_on_purpose_are_left_out() -> None:
    fault = [GpuHealth(gpu=2, fault="Xid 79: it has fallen off the bus", notes=[], aside=True)]
    nodes = [
        node("down-1", "down", reason="no word for 90 s"),
        node("down-2", "down", reason="no word for 90 s"),
        node("aside", "set aside"),
        node("part", health=fault),
        node("drained", "drained"),
        node("by-ann", "drained"),
        node("reserved", "drained"),
        node("sleeps", "drained"),
        node("well"),
    ]

    drained = {"drained", "by-ann", "sleeps"}
    marks = {"by-ann": Mark(9.0, "drained", "by-ann", "ann", "new disk")}
    needs = find_needs(Sight(0.0, nodes=nodes, drained=drained, asleep={"sleeps"}, marks=marks))

    assert [(need.text, need.count) for need in needs] == [
        ("down-1 and down-2 are down: no word for 90 s", 2),
        ("aside is set aside: one job after the other failed at its start there", 1),
        ("part is used without GPU 2: Xid 79: it has fallen off the bus", 1),
        ("drained is drained", 1),
        ("by-ann is drained by ann: new disk", 1),
    ]
    assert needs[-1].step == "Put it to use again once that is done: `weft undrain by-ann`"
    assert needs[1].step == "Find out why, then put it to use again: `weft undrain aside`"


def test_findings_and_parts_that_fail_come_first() -> None:
    checks = {"loop": PartCheck(ok=True), "engine": PartCheck(False, "no answer\nsince noon")}
    sight = Sight(0.0, [record("a", missed=True)], verdict={"wrong": 2}, checks=checks)

    assert [need.text for need in find_needs(sight)] == [
        "The service is not well: engine: no answer",
        "The judge found 2 things wrong in the last month's log",
        "a (nlp) has missed its deadline and has not ended",
    ]


def test_secrets_and_long_texts_are_left_out() -> None:
    env = {"TOKEN": "hunter22"}
    launch = Launch(("true",), name="x" * 128, env=env, secrets=("TOKEN",))
    job = Job(JobId("a"), tenant="nlp", launch=launch)
    why = f"refused hunter22 {'y' * 400}"

    text = only(Sight(0.0, failed=[JobRecord(job, 0.0, "failed", why, ended=0.0)])).text

    assert "hunter22" not in text
    assert re.fullmatch(r"x+…x+ \(nlp\) failed 0 s ago: refused \*\*\* y+…y+", text)
    assert len(text) < 300


def test_a_job_that_waits_within_its_quota_or_failed_once_needs_no_one() -> None:
    waits = record("a", said="waits for 4 GPUs", blocker=Blocker.GPUS)
    suspended = record("b", said="over", blocker=Blocker.QUOTA, suspended="ann")

    assert find_needs(Sight(0.0, [waits, suspended, record("c", failures=1)])) == []


def test_a_failure_is_let_go_when_a_job_of_that_name_runs_again_or_has_succeeded() -> None:
    failed = replace(record("a"), outcome="failed", ended=50.0, reason="exit code 1")
    again = replace(record("a"), submitted=60.0)
    waits, runs = again, replace(again, running=1)
    well = replace(again, outcome="succeeded", ended=70.0)
    earlier = replace(runs, submitted=40.0)  # beside it, and not after it

    def listed(**more: Any) -> list[str]:
        return [need.kind for need in find_needs(Sight(100.0, failed=[failed], **more))]

    assert listed() == listed(active=[waits]) == listed(active=[earlier]) == ["failed"]
    assert listed(active=[runs]) == listed(succeeded=[well]) == []
    assert listed(active=[replace(runs, job=replace(runs.job, tenant="vision"))]) == ["failed"]
