"""Laws of traces: what is written reads back the same, and generators keep their promises."""

from __future__ import annotations

import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.model.job import BatchRange, Demand, Job, JobId, Tier
from weft.core.model.trace import Trace, Truth
from weft.traces.options import DrawRequest, Options
from weft.traces.read import find, load, workloads
from weft.traces.write import write

words = st.text(string.ascii_letters + string.digits + " -_,\"'", max_size=8).map(str.strip)
names = words.filter(lambda word: word.lower() not in {"none", "na", "nan", "null", "nat"})
numbers = st.floats(0, 1e7).map(lambda x: round(x, 3))
hints = st.dictionaries(st.sampled_from(["duration_s", "batch"]), numbers, max_size=2)
kinds = st.lists(st.sampled_from(["v100", "t4", "a100"]), unique=True).map(tuple)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    gpus, share = draw(st.integers(1, 64)), draw(st.sampled_from([1.0, 1.0, 0.5, 0.25, 0.1]))
    if share == 1.0 and draw(st.booleans()):
        return Demand(gpus, draw(st.integers(1, gpus)), gpus + draw(st.integers(0, 8)), draw(kinds))
    return Demand(gpus, kinds=draw(kinds), share=share)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Job, Truth]:
    batch = st.builds(BatchRange, st.integers(1, 99), st.integers(99, 999), st.integers(1, 99))
    job = Job(
        JobId(""),
        draw(numbers),
        draw(demands()),
        draw(names),
        draw(names),
        draw(names),
        draw(st.none() | batch),
        draw(numbers),
        draw(st.none() | numbers),
        draw(st.sampled_from(Tier)),
        draw(st.none() | numbers),
        draw(st.none() | numbers),
        draw(hints),
    )
    truth = Truth(
        draw(numbers) + 1,
        tuple(draw(st.lists(numbers, max_size=2))),
        draw(st.sampled_from(["completed", "failed"])),
        draw(st.booleans()),
    )
    return job, truth


def trace_of(rows: list[tuple[Job, Truth]]) -> Trace:
    from dataclasses import replace

    ordered = sorted(rows, key=lambda pair: pair[0].submitted)
    return Trace(
        "trace", tuple((replace(j, id=JobId(f"j{i}")), t) for i, (j, t) in enumerate(ordered))
    )


@examples(60)
@given(st.lists(pairs(), min_size=1, max_size=8), st.sampled_from(["trace.csv", "trace.csv.gz"]))
def test_what_is_written_reads_back_the_same(rows: list[tuple[Job, Truth]], name: str) -> None:
    trace = trace_of(rows)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(trace, path)
        back = load(path, Options(kinds=True))

    assert back.jobs == trace.jobs


SMALL = [name for name, _ in workloads() if name != "scale-1m"]
OVERLAID = {"spot-hp-syn"}


@pytest.mark.parametrize("name", SMALL)
@examples(8)
@given(
    seed=st.integers(0, 2**32),
    jobs=st.integers(2, 300),
    gpus=st.integers(16, 4096),
    load_=st.floats(0.1, 3.0),
)
def test_a_generator_keeps_its_promises(
    name: str, seed: int, jobs: int, gpus: int, load_: float
) -> None:
    jobs = min(jobs, 20) if name == "tiny-20" else jobs
    request = DrawRequest(seed=seed, jobs=jobs, load=load_, gpus=gpus, max_gpus=max(gpus // 2, 16))

    trace = find(name, request)

    times = [job.submitted for job, _ in trace]
    assert len(trace) == jobs
    assert times == sorted(times)
    assert times[0] >= 0
    assert all(1 <= job.demand.gpus <= max(gpus // 2, 16) for job, _ in trace)
    assert all(truth.length >= 1 for _, truth in trace)
    assert not any(job.demand.kinds for job, _ in trace)
    assert len({job.id for job, _ in trace}) == jobs
    if name not in OVERLAID and times[-1] > 0:
        assert trace.load(gpus) == pytest.approx(load_, rel=0.01)
    assert trace.jobs == find(name, request).jobs
