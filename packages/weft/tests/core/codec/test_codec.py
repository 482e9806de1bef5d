"""Values to JSON and back: what was written is what is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import pytest

from weft.core.codec.event_lines import event_line, read_event
from weft.core.codec.plain_values import decode, encode
from weft.core.errors import NewerEvent
from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.knowledge.traffic import Pattern, Traffic, TrafficPhase
from weft.core.model.cluster import Node, parse_cluster
from weft.core.model.execution import Execution
from weft.core.model.job import (
    After,
    Allocation,
    Batch,
    BatchRange,
    Demand,
    Discipline,
    Job,
    JobId,
    NodeId,
    Or,
    Sharing,
    Slice,
    Tier,
    TimeShift,
)
from weft.core.model.launch import Launch, Software, SoftwareKind
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.core.state.cells import Floats
from weft.core.stops import Rung
from weft.run_terms import Processes

A = JobId("a")
FULL_JOB = Job(
    A,
    app="search",
    max_parallel=4,
    after=After((JobId("x"),), (JobId("y"),), (JobId("z"),)),
    submitted=3.5,
    demand=Demand(4, 2, 8, ("t4", "a100"), share=1.0),
    tenant="vision",
    user="u",
    model="bert",
    batch=BatchRange(128, 4096, 1024),
    priority=2.0,
    deadline=99.0,
    deadline_or=Or.WARN,
    tier=Tier.OPPORTUNISTIC,
    preemptible=False,
    shareable=False,
    slowdown=1.3,
    gpu_mem_gb=20.0,
    cpus=4.0,
    mem_gb=16.0,
    hints={"duration_s": 60.0, "skew": 4.5},
    traffic=Traffic(0.5, 0.4, 8.0, Pattern.STAR, (TrafficPhase(0.1, 0.2, 40.0),)),
    plans=(Execution(), Execution(2, 2, 1, 1, True, 4, True)),
    launch=Launch(
        ("python", "train.py", "--name", "a b\n"),
        workdir="/tmp/w",
        env={"DATA": "/data"},
        name="resnet",
        checkpoint="ckpt",
        grace_s=5.0,
        retries=1,
        backoff_s=0.5,
        account="ada",
        processes=Processes.PER_GPU,
        setup="make\n",
        parameters={"lr": "0.1"},
        software=Software(SoftwareKind.UV, "req.txt"),
        secrets=("DATA",),
        pty=True,
        idle_s=60.0,
        time_limit_s=60.0,
        warn_s=5.0,
        retry_on=(75, -9),
    ),
)
FULL_ALLOCATION = Allocation(
    (Slice(NodeId("n0"), (0, 3), 8.0, 64.0), Slice(NodeId("n1"), (1,), 4.0, 32.0)),
    Sharing(0.5, Tier.OPPORTUNISTIC, 0.25, 12.0, Discipline.PACED),
    Batch(32, 4),
    TimeShift(0.25, 0.1),
    Execution(2, 2, 1, 1, True, 4, True),
)
SAMPLES: tuple[facts.Event, ...] = (
    facts.Submitted(FULL_JOB),
    facts.Submitted(Job(JobId("plain"))),
    facts.Cancelled(A),
    facts.Cancelled(A, "it waits in vain"),
    facts.Suspended(A, "admin 'ops'"),
    facts.Suspended(A, "its owner", Rung.SUSPEND),
    facts.StartedAhead(
        A, 2, Allocation((Slice(NodeId("n0"), (1,), 4.0, 8.0),), Sharing(gpu_mem_gb=20.0))
    ),
    facts.Slept(A, 2, Rung.SUSPEND, 0.75, 12.5),
    facts.SleepFailed(A, 2, "CUDA_ERROR_NOT_SUPPORTED"),
    facts.Awoke(A, 2, 0.25),
    facts.Resumed(A),
    facts.PriorityChanged(A, -1.0, Tier.OPPORTUNISTIC),
    facts.Started(A, 2),
    facts.DeadlineMissed(A),
    facts.StartFailed(A, 2, "no image"),
    facts.Stopped(A, 2),
    facts.Finished(A, 2),
    facts.Failed(A, 2, "out of memory", retry=True),
    facts.Failed(A, 2, "too long", lost=True, code=-9, final=True),
    facts.Failed(A, 2, "CUDA out of memory", retry=True, lost=True, code=1, out_of_memory=True),
    facts.Failed(A, 2),
    facts.Reported(A, 2, Report(loss=0.5, updates_per_s=3.0, user={"accuracy": 0.25})),
    facts.NodeUp(Node(NodeId("n0"), "a100", 8, 64.0, 512.0, "r1")),
    facts.NodeUp(parse_cluster("1x8:v100@dgx-1v/nic=50").nodes[0]),
    facts.NodeDown(NodeId("n0")),
    facts.NodeDown(NodeId("n0"), drained=True),
    facts.LoanRecalled(2),
    facts.Foretold(JobId("a"), 1.5, 2.0, 60.0),
    facts.Refitted(120, {"ends": 120, "tree": [0, 1.5, 2.0, [1, 0.25, 3.0, 4.0]]}),
    facts.Observed(A, 2, 12.5, 0.75, (JobId("b"), JobId("c")), 1.5),
    facts.Saved(A, 2, 1200),
    facts.Resizable(A, 2, 0.5),
    facts.Resized(A, 2, 1, 0.05, 1.5),
    facts.ResizeFailed(A, 2, 2, "a new rank died"),
    facts.Measured(A, 2, 7.5, ("loss", "val"), (1.0, 1.0), (0.5, None)),
    facts.Noticed(A, 2, "warning", "the newest checkpoint is damaged"),
    facts.PolicyChanged(
        PartSpec("las", {"by": "time", "thresholds": (1.0, 2.0)}, (PartSpec("no_preempt"),))
    ),
    facts.PolicyChanged(PartSpec("fifo"), PartSpec("las"), "it took too long"),
    facts.Woken(),
    facts.Decided(1),
    facts.Decided(
        7,
        {A: FULL_ALLOCATION, JobId("b"): None},
        {JobId("c"): "too large"},
        wake_at=12.5,
        reasons={A: "first in line"},
        blockers={A: Blocker.TURN},
        by=PartSpec("fifo", {"backfill": True}),
        live=(A,),
        sleeps={A: Rung.FREEZE},
        promised=(A,),
        memory_order={A: (0.0, 1.0)},
        facts={A: {"limit": 2.0, "tenant": "red"}},
    ),
)


@dataclass(frozen=True)
class Inner:
    name: str
    weight: float = 1.0


@dataclass(frozen=True)
class Memory:
    numbers: Floats
    nested: tuple[Inner, ...] = ()
    pair: tuple[str, float] = ("", 0.0)
    listed: list[Inner] = field(default_factory=list)
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    by_number: dict[int, float] = field(default_factory=dict)
    places: set[tuple[str, int]] = field(default_factory=set)
    jobs: frozenset[JobId] = frozenset()
    count: int = 0
    limit: float | None = None
    spare: Floats = field(default_factory=lambda: np.zeros(2))


def through_json(memory: Memory) -> Memory:
    back: Memory = decode(Memory, json.loads(json.dumps(encode(memory), allow_nan=False)))
    return back


def test_the_samples_cover_every_event_and_every_field() -> None:
    assert {type(sample) for sample in SAMPLES} == set(facts.EVENTS)
    for value in (FULL_JOB, FULL_ALLOCATION, FULL_ALLOCATION.sharing, SAMPLES[-1]):
        assert set(encode(value)) >= {f.name for f in fields(value)} - {"share"}


@pytest.mark.parametrize("event", SAMPLES, ids=lambda e: type(e).__name__)
def test_every_event_survives_its_line(event: facts.Event) -> None:
    line = event_line(12.25, event)

    assert "\n" not in line
    assert read_event(line) == (12.25, event)


def test_an_event_read_back_has_the_types_it_was_written_with() -> None:
    _, event = read_event(event_line(0.0, facts.Submitted(FULL_JOB)))

    assert isinstance(event, facts.Submitted)
    assert event.job.tier is Tier.OPPORTUNISTIC
    assert isinstance(event.job.demand.kinds, tuple)
    assert isinstance(event.job.batch, BatchRange)


def test_fields_at_their_default_are_left_out() -> None:
    assert event_line(1.0, facts.Submitted(Job(A, demand=Demand(2)))) == (
        '{"at":1.0,"event":"Submitted","job":{"id":"a","demand":{"gpus":2,"min":2,"max":2}}}'
    )
    assert event_line(0.0, facts.Woken()) == '{"at":0.0,"event":"Woken"}'
    assert encode(Allocation((Slice(NodeId("n"), (0,)),))) == {
        "slices": [{"node": "n", "gpus": [0]}]
    }


def test_taking_away_is_not_the_same_as_leaving_out() -> None:
    _, event = read_event(event_line(0.0, facts.Decided(1, {A: None})))

    assert isinstance(event, facts.Decided)
    assert event.changes == {A: None}


def test_numpy_numbers_are_written_as_plain_ones() -> None:
    event = facts.Reported(
        A, int(np.int64(2)), Report(loss=float(np.float64(1.5)), user={"n": float(np.float32(2.0))})
    )

    line = event_line(float(np.float64(3.0)), event)

    assert (
        line
        == '{"at":3.0,"event":"Reported","job":"a","attempt":2,"report":{"loss":1.5,"user.n":2.0}}'
    )


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinities_survive_without_leaving_the_json_standard(value: float) -> None:
    line = event_line(0.0, facts.Decided(1, wake_at=value))

    json.loads(line, parse_constant=pytest.fail)
    _, event = read_event(line)
    assert isinstance(event, facts.Decided)
    assert event.wake_at is not None
    assert np.array_equal(event.wake_at, value, equal_nan=True)


def test_reports_of_earlier_versions_are_read_by_their_new_names() -> None:
    line = (
        '{"at":1.0,"event":"Reported","job":"a","attempt":2,"values":'
        '{"local":32,"sqr":0.5,"var":2.0,"accumulate":0.0,"speed":"inf","gone":1.0,"user.x":3.0}}'
    )

    _, event = read_event(line)

    report = Report(per_gpu=32.0, grad_sqr=0.5, grad_var=2.0, accumulate=1.0, user={"x": 3.0})
    assert event == facts.Reported(A, 2, report)


def test_what_a_newer_version_reports_is_left_out() -> None:
    line = '{"at":1.0,"event":"Reported","job":"a","attempt":2,"report":{"loss":2.0,"karma":1.0}}'

    assert read_event(line) == (1.0, facts.Reported(A, 2, Report(loss=2.0)))


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(NewerEvent, match="has Exploded, which this version does not know"):
        read_event('{"at":0,"event":"Exploded"}')


def test_a_field_of_a_newer_version_is_named() -> None:
    held = '{"slices":[{"node":"n","gpus":[0],"way":"new"}]}'

    with pytest.raises(NewerEvent, match=r"Decided\.changes\{\}\.slices\[\]\.way"):
        read_event(f'{{"at":0,"event":"Decided","number":1,"changes":{{"a":{held}}}}}')


def test_arrays_survive_with_infinities() -> None:
    numbers = np.array([1.0, math.inf, -0.5])

    back = through_json(Memory(numbers))

    assert back.numbers.dtype == np.float64
    assert np.array_equal(back.numbers, numbers)


def test_arrays_of_two_dimensions_survive() -> None:
    numbers = np.array([[1.0, math.inf], [3.0, 4.0]])

    assert np.array_equal(through_json(Memory(numbers)).numbers, numbers)


def test_an_array_with_a_default_is_written_when_it_differs() -> None:
    same, other = Memory(np.zeros(1)), Memory(np.zeros(1), spare=np.ones(3))

    assert "spare" not in encode(same)
    assert np.array_equal(through_json(other).spare, np.ones(3))


def test_nested_values_survive_with_their_types() -> None:
    memory = Memory(
        np.zeros(1),
        nested=(Inner("a"), Inner("b", 2.0)),
        pair=("x", 1.5),
        listed=[Inner("c")],
        by_name={"d": Inner("d")},
        by_number={3: 0.5},
        places={("n0", 1), ("n1", 0)},
        jobs=frozenset({A}),
        count=4,
        limit=math.inf,
    )

    back = through_json(memory)

    for f in fields(Memory):
        if f.name not in ("numbers", "spare"):
            assert getattr(back, f.name) == getattr(memory, f.name), f.name


def test_a_log_with_fields_that_nothing_reads_any_more_is_still_read() -> None:
    line = '{"at":3.0,"event":"Decided","number":7,"asleep":["n0","n1"],"wake_at":12.5}'

    assert read_event(line) == (3.0, facts.Decided(7, wake_at=12.5))


class Pair(NamedTuple):
    left: int
    right: float = 0.0


@dataclass
class Square:
    side: float


@dataclass
class Circle:
    radius: float
    area: float = field(default=0.0, init=False)
    shown: bool = field(default=False, metadata={"kept": False})


@dataclass
class Drawing:
    shapes: dict[tuple[str, int], Square | Circle | None]
    pairs: list[Pair]


def test_named_tuples_tables_by_tuples_and_choices_of_dataclasses_are_read_as_written() -> None:
    shapes: dict[tuple[str, int], Square | Circle | None] = {
        ("a", 1): Square(2.0),
        ("b", 2): Circle(1.0),
        ("c", 3): None,
    }
    drawing = Drawing(shapes, [Pair(1), Pair(2, 3.0)])

    written = json.loads(json.dumps(encode(drawing)))

    assert decode(Drawing, written) == drawing
    assert decode(Drawing, {"shapes": {}, "pairs": []}) == Drawing({}, [])


def test_fields_that_are_not_kept_are_not_written() -> None:
    circle = Circle(1.0, shown=True)
    circle.area = 3.0

    assert encode(circle) == {"radius": 1.0}
