"""One simulation wired from a description: what is checked, chosen and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.app.catalogue import catalogue
from weft.app.simulate.run import check_fits, prepare, run_all, run_one
from weft.app.simulate.setup import Setup
from weft.core.codec.event_lines import read_event
from weft.core.errors import InvalidConfig, TraceError, UnknownName
from weft.core.events.event import Finished
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import names
from weft.core.state.state import State
from weft.policies.fifo import Fifo
from weft.policies.las import Las
from weft.sim.faults import Faults
from weft.traces.options import Options


def trace_of(*demands: Demand) -> Trace:
    jobs = [(Job(JobId(f"j{i}"), float(i), d), Truth(50.0)) for i, d in enumerate(demands)]
    return Trace("mine", tuple(jobs))


TWO = trace_of(Demand(1), Demand(1))
SETUP = Setup(TWO, "srtf", "1x1:v100", restart_cost=0.0)


# ---- what fits


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (
            Demand(9),
            "job 'j0' asks for 9 GPUs of one kind; cluster '2x4:t4.1x4:a100' has at most 8\n"
            "  hint: name a larger --cluster, or leave such jobs out with --max-gpus 8",
        ),
        (Demand(5, kinds=("a100",)), "job 'j0' asks for 5 GPUs of a100; .* has at most 4"),
        (Demand(1, kinds=("h100",)), "job 'j0' asks for 1 GPU of h100; .* has at most 0"),
    ],
)
def test_a_job_that_can_never_run_is_refused_before_anything_runs(
    demand: Demand, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        check_fits(trace_of(demand), parse_cluster("2x4:t4+1x4:a100"))


def test_an_elastic_job_fits_if_its_least_size_does() -> None:
    check_fits(trace_of(Demand(16, min=2, max=32)), parse_cluster("1x4:t4"))


def test_a_workload_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="mine: there are no jobs"):
        run_one(Setup(trace_of(), "fifo"))


# ---- one run


def test_the_cluster_is_the_users_else_a_default() -> None:
    assert prepare(Setup(TWO, "fifo"))[1].gpus == 512
    assert prepare(SETUP)[1] == parse_cluster("1x1:v100")


def test_a_policy_that_reads_remaining_times_gets_the_oracle() -> None:
    assert run_one(SETUP).predictor == "oracle"
    assert run_one(replace(SETUP, predictor="noisy:sigma=0.2")).predictor == "noisy(sigma=0.2)"
    assert run_one(replace(SETUP, policy="fifo")).predictor == "none"


def test_a_predictor_that_nobody_reads_is_not_printed() -> None:
    assert run_one(replace(SETUP, policy="fifo", predictor="oracle")).predictor == "none"


def test_an_own_policy_object_is_used_as_it_is() -> None:
    done = run_one(replace(SETUP, policy=Las(quantum=10.0)))

    assert done.policy == "las"
    assert done.metrics["preemptions"] > 0


def test_faults_and_restart_costs_reach_the_simulation() -> None:
    faults = Faults(job_mtbf_h=0.01)

    calm, rough = run_one(SETUP), run_one(replace(SETUP, faults=faults))

    assert calm.metrics["restarts_per_job"] == 0.0
    assert rough.metrics["restarts_per_job"] > 0.0
    dear = run_one(replace(SETUP, faults=faults, restart_cost=500.0))
    assert dear.metrics["makespan_h"] > rough.metrics["makespan_h"]


def test_the_same_setup_gives_the_same_result() -> None:
    setup = replace(SETUP, faults=Faults(node_mtbf_h=0.01, repair_h=0.01), seed=3)

    assert run_one(setup).as_dict(timing=False) == run_one(setup).as_dict(timing=False)


def test_the_log_of_events_is_written_whole_and_folds_into_an_empty_cluster(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    run_one(replace(SETUP, events=path))

    state = State(parse_cluster("1x1:v100"))
    events = [read_event(line) for line in path.read_text().splitlines()]
    for at, event in events:
        state.fold(at, event)
    assert sum(isinstance(event, Finished) for _, event in events) == 2
    assert (len(state.table), state.free.idle()) == (0, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot write events to .*: No such file"):
        run_one(replace(SETUP, events=tmp_path / "missing" / "events.jsonl"))


# ---- several


def test_several_policies_and_seeds_make_one_result() -> None:
    setups = [replace(SETUP, policy=p, seed=s) for p in ("fifo", "srtf") for s in (0, 1)]

    result = run_all(setups, processes=1)

    assert list(result.outcomes) == ["fifo", "srtf"]
    assert result.seeds == (0, 1)
    assert (result.workload, result.cluster) == ("mine", "1x1:v100")
    assert result.facts["gpus"] == 1


def test_a_misspelt_policy_is_answered_before_anything_runs() -> None:
    progress: list[object] = []

    with pytest.raises(UnknownName, match="did you mean 'srtf'"):
        run_all([SETUP, replace(SETUP, policy="strf")], processes=1, progress=progress.append)

    assert progress == []


def test_an_unknown_workload_is_answered_with_the_closest() -> None:
    with pytest.raises(TraceError, match=r"no workload or file named 'tiny-21'.*'tiny-20'"):
        run_one(Setup("tiny-21", "fifo"))


def test_built_in_workloads_take_size_and_load_and_files_do_not(tmp_path: Path) -> None:
    assert len(prepare(Setup("philly", "fifo", "8x8:v100", jobs=30))[0]) == 30
    path = tmp_path / "jobs.csv"
    path.write_text("x\n")

    with pytest.raises(InvalidConfig, match="--jobs and --load shape built-in workloads only"):
        run_one(Setup(str(path), "fifo", jobs=5))


def test_drawn_jobs_fit_the_cluster_that_was_named() -> None:
    trace, cluster = prepare(Setup("philly", "fifo", "2x2:t4+1x4:a100", jobs=50))

    assert max(job.demand.gpus for job, _ in trace) <= max(cluster.gpus_by_kind.values())
    small, _ = prepare(Setup("philly", "fifo", "8x8:v100", jobs=50, options=Options(max_gpus=2)))
    assert max(job.demand.gpus for job, _ in small) <= 2


# ---- the Python API


def test_the_package_offers_what_the_command_line_does() -> None:
    result = weft.simulate(TWO, Fifo(), "1x1:v100", restart_cost=0.0)
    both = weft.compare(TWO, ["fifo", "srtf"], "1x1:v100", processes=1, seeds=(0, 1))

    assert result["policies"]["fifo"]["finished"] == 2
    assert set(both["policies"]) == {"fifo", "srtf"}
    json.dumps(result.as_dict(per_job=True), allow_nan=False)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weft.nothing


# ---- catalogues


@pytest.mark.parametrize("kind", ["policy", "trace", "predictor", "cluster", "model", "engine"])
def test_every_catalogue_has_full_rows(kind: str) -> None:
    headings, rows = catalogue(kind)

    assert all(len(row) == len(headings) for row in rows)
    if kind in ("policy", "trace", "predictor", "engine"):
        assert sorted(row[0] for row in rows) == sorted(names(kind))


def test_policies_are_listed_with_their_parameters_as_one_types_them() -> None:
    _, rows = catalogue("policy")
    shown = {row[0]: row[3] for row in rows}

    assert shown["fifo"] == "backfill=false, place=packed"
    assert "thresholds=3250" in shown["tiresias"]
    assert "knob=none" in shown["tiresias"]


def test_weights_reach_the_policy_and_the_numbers() -> None:
    jobs = tuple(
        (Job(JobId(f"{user}-{i}"), 0.0, Demand(1), user=user), Truth(7200.0))
        for user in ("ada", "bob")
        for i in range(8)
    )
    trace = Trace("two users", jobs)
    window = slice(0, 30)  # while both have enough jobs to use their share

    outcome = weft.simulate(
        trace, "gandiva_fair:hand_over=0", "1x4:v100", weights={"ada": 3.0}
    ).outcomes["gandiva_fair:hand_over=0"][0]

    ada, bob = sorted(outcome.shares, key=lambda share: share.user)
    assert (ada.weight, bob.weight) == (3.0, 1.0)
    assert ada.entitled[window].mean() == pytest.approx(3.0)
    assert ada.received[window].mean() == pytest.approx(3.0, rel=0.02)
    assert bob.received[window].mean() == pytest.approx(1.0, rel=0.02)


def test_a_weight_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'ada' a weight of 0"):
        weft.simulate("tiny-20", "fifo", weights={"ada": 0.0})
