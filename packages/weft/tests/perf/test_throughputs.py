"""Tables of steps per second: reading them, running by them, believing them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Config, Demand, Job, JobId, NodeId, Sharing, Slice
from weft.core.model.trace import Trace, Truth
from weft.perf.throughputs import ThroughputBeliefs, load_published, read_throughputs
from weft.testing import view_of

BIG = "LM (batch size 5)"
A3C, LM = "('A3C', 1)", f"('{BIG}', 2)"
TABLE = {
    "v100": {
        A3C: {"null": 4.0, A3C: [3.0, 3.5], LM: [0.0, 0.0]},
        LM: {"null": 100.0, A3C: [0.0, 0.0]},
    },
    "k80": {A3C: {"null": 1.0}, LM: {"null": 0.0}},
}


def file_of(folder: Path, content: object) -> Path:
    path = folder / "throughputs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def on(gpus: int, share: float = 1.0) -> Allocation:
    return Allocation((Slice(NodeId("n"), tuple(range(gpus))),), Sharing(share=share))


def test_a_job_makes_its_steps_at_the_speed_of_the_kind(tmp_path: Path) -> None:
    table = read_throughputs(file_of(tmp_path, TABLE))
    job = Job(JobId("a"), model="A3C", hints={"steps": 400.0})
    agent = table.simulate_job(job, Truth(50.0))

    paces = []
    for kind in ("v100", "k80"):
        agent.begin(on(1), kind)
        paces.append(50.0 / agent.pace(0.0, 60.0).rate)

    assert paces == [100.0, 400.0]  # seconds for 400 steps


def test_without_steps_the_length_is_on_the_reference_kind(tmp_path: Path) -> None:
    table = read_throughputs(file_of(tmp_path, TABLE))
    agent = table.simulate_job(Job(JobId("a"), model="A3C"), Truth(50.0))

    agent.begin(on(1), "k80")

    assert agent.pace(0.0, 60.0).rate == 0.25


def test_what_is_believed_is_the_table(tmp_path: Path) -> None:
    beliefs = ThroughputBeliefs(read_throughputs(file_of(tmp_path, TABLE), restart_cost=7.0))
    jobs = [Job(JobId("a"), model="A3C"), Job(JobId("b"), demand=Demand(2), model=BIG)]
    table = view_of(8, *jobs).table
    first, second = np.array([0, 0]), np.array([0, 1])

    assert beliefs.rates(table, ("k80", "v100")).tolist() == [[1.0, 4.0], [0.0, 100.0]]
    assert beliefs.goodputs(table, [Config("v100", 1, 2)]).tolist() == [[4.0], [100.0]]
    assert beliefs.pairs(table, ("v100",), first, second).tolist() == [[[3, 3.5]], [[0, 0]]]
    assert beliefs.restart_s(table).tolist() == [7.0, 7.0]


def test_jobs_may_say_where_they_fit(tmp_path: Path) -> None:
    table = read_throughputs(file_of(tmp_path, TABLE))
    jobs = (Job(JobId("a"), model="A3C"), Job(JobId("b"), demand=Demand(2), model=BIG))
    trace = Trace("two", tuple((job, Truth(9.0)) for job in jobs))

    admitted = table.with_fitting_kinds(trace, ("v100", "k80"))

    assert [job.demand.kinds for job, _ in admitted] == [(), ("v100",)]
    assert table.covers(trace, ("v100", "k80"))
    assert not table.covers(trace, ("v100", "h200"))
    assert not load_published().covers(Trace("x", ((Job(JobId("x")), Truth(1.0)),)), ("v100",))


def test_blind_to_kinds_the_mean_is_believed(tmp_path: Path) -> None:
    beliefs = ThroughputBeliefs(read_throughputs(file_of(tmp_path, TABLE)))
    table = view_of(8, Job(JobId("a"), model="A3C")).table
    ones = np.ones(1)

    assert beliefs.blind_goodputs(table, ("v100", "k80"), ones, ones).tolist() == [[2.5]]
    assert beliefs.most_run(table).tolist() == [1.0]


def test_the_published_tables_are_shipped() -> None:
    simulation, physical = load_published(), load_published("physical")

    assert simulation.rate("Recommendation (batch size 512)", 1, "v100") == 23.3176
    assert physical.rate("Recommendation (batch size 512)", 1, "v100") == pytest.approx(253.6, 1e-3)
    assert physical.rate("ResNet-50 (batch size 128)", 1, "k80") == 0.0
    assert len(simulation.alone["k80"]) == len(physical.alone["p100"]) == 83


def test_unknown_job_types_and_kinds_are_named() -> None:
    with pytest.raises(InvalidConfig, match=r"no throughputs of job type 'A3D'.*'A3C'\?"):
        load_published().rate("A3D", 1, "v100")
    with pytest.raises(InvalidConfig, match="no throughputs on GPU kind 'h200'"):
        load_published().rate("A3C", 1, "h200")
    with pytest.raises(InvalidConfig, match="no table 'real'"):
        load_published("real")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ([], "expected a mapping, found '\\[\\]'"),
        ({"v100": {}}, "v100: expected a mapping"),
        ({"v100": {A3C: 3}}, r"v100, \('A3C', 1\): expected a mapping"),
        ({"v100": {"A3C": {"null": 1}}}, "'A3C' is not a job type and a number of GPUs"),
        ({"v100": {"(1, 2)": {"null": 1}}}, "is not a job type"),
        ({"v100": {A3C: {"null": "fast"}}}, "null: 'fast' is not a number of steps"),
        ({"v100": {A3C: {"null": -1}}}, "null: -1 is not a number of steps"),
        ({"v100": {A3C: {A3C: [1.0]}}}, r"\[1.0\] is not the speeds of two jobs"),
    ],
)
def test_a_broken_table_is_answered_with_file_and_key(
    tmp_path: Path, content: object, message: str
) -> None:
    path = file_of(tmp_path, content)

    with pytest.raises(InvalidConfig, match=message) as caught:
        read_throughputs(path)
    assert str(path) in caught.value.what


def test_a_missing_table_of_throughputs_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*nowhere\.json"):
        read_throughputs(tmp_path / "nowhere.json")


OWN = "model,kind,gpus,steps_per_s\nmine,h200,1,8\nmine,h200,4,30\nmine,a100,1,4\n"


def own(folder: Path, text: str = OWN) -> Path:
    path = folder / "speeds.csv"
    path.write_text(text)
    return path


def test_a_table_of_ones_own_is_a_line_for_each_speed(tmp_path: Path) -> None:
    table = read_throughputs(own(tmp_path))

    assert table.rate("mine", 4, "h200") == 30.0
    assert table.rate("mine", 2, "h200") == 8.0
    assert table.rate("mine", 1, "a100") == 4.0
    assert table.reference == "h200"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a table of speeds"),
        ("model,kind\nmine,h200\n", "is not a table of speeds"),
        (OWN + "mine,h200,no,8\n", "line 5: 'mine,h200,no,8' is not a model"),
        (OWN + "mine,h200,2,inf\n", "line 5"),
        (OWN + "mine,h200\n", "line 5"),
        (OWN + '"mine', "is not CSV"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        read_throughputs(own(tmp_path, text))
