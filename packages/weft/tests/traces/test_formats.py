"""One tiny file of every format: recognised by content alone, and read right."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.errors import TraceError
from weft.core.model.job import Demand, Tier
from weft.core.model.trace import Detail
from weft.formulas.training.regimes import Regimes, regimes_of
from weft.traces.options import Options
from weft.traces.read import formats, load, recognise
from weft.traces.source import members

GAVEL = "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t8165.16\t1\t1\t{slo}\t30\n"
FILES = {
    "acme-csv": (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
        "duration,queue,gpu_time\n"
        "1,u,2,16,64,Pretrain,CANCELLED,2023-03-02 00:00:00+08:00,2023-03-02 00:01:00+08:00,"
        "2023-03-02 00:03:00+08:00,180,60,0\n"
    ),
    "chronus-csv": (
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
        "expect_time_list,expect_value_list,best_effort,job_type\n"
        "0,vc,1,100,5,vgg16,50,5,159-189,10-8,0,soft\n1,vc,1,200,5,vgg16,50,5,70,10,1,best\n"
    ),
    "elasticflow-csv": (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "a,10,5,inception3,99,64,8,60\n"
    ),
    "gavel-trace": GAVEL.format(slo="-1.000000"),
    "helios-csv": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,"
        "duration,queue\n"
        "0,u,v,8,32,1,COMPLETED,2020-03-30 00:00:00,2020-03-30 00:00:00,2020-03-30 00:01:00,60,0\n"
        "1,u,v,16,64,2,CANCELLED,2020-04-02 00:00:00,2020-04-02 00:00:05,2020-04-02 00:01:05,60,5\n"
        "2,u,v,0,4,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:00:05,2020-04-02 00:01:05,60,5\n"
    ),
    "itp-csv": "cluster,job_id,submission_time,duration,num_gpu\n1,a,5,60,64\n10,b,6,60,1\n",
    "muri-csv": (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
        "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
        "0,8,1534000,10,gpt2,4,5095000,91000,437,0.6,419,49,1\n"
    ),
    "openb-csv": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "p0,6000,12288,1,460,V100M16|V100M32|V100M32,LS,Running,10,110,20\n"
        "p1,12000,2048,8,1000,,BE,Failed,20,120,\n"
        "p2,1000,1024,0,0,,LS,Succeeded,30,40,30\n"
    ),
    "pai-sample": (
        "job_id,user,num_gpu,num_cpu,num_inst,submit_time,duration,user_dur\na,u,50,600,3,7,0,40\n"
    ),
    "pai-tables": "a,worker,2.0,Terminated,1012.0,4990.0,400.0,29.3,50.0,MISC\n",
    "philly-csv": "timestamp,duration,num_gpus,gpu_time\n2017-09-04 00:00:10,60,2,120\n",
    "rubick-csv": (
        "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,"
        "is_sla\nllama-1,5,60.5,llama,48,384,1.25,344,64,1\n"
    ),
    "shockwave-profile": (
        '{"jobs": [{"job": 0, "arrival_s": 5.0, "model": "LM", "mode": "gns", "scale_factor": 2,'
        ' "initial_batch_size": 10, "num_epochs": 3, "samples_per_epoch": 100,'
        ' "batch_size_runs": [[10, 2], [20, 1]],'
        ' "epoch_seconds_by_batch_size": {"10": 60.0, "20": 40.0}}]}'
    ),
    "shockwave-trace": (
        "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t99\t2\tgns\t1\t-1.0\t1418\t55\n"
    ),
    "sia-csv": "name,time,application,num_replicas,batch_size\nbert-0,5.5,bert,8,384\n",
    "spot-csv": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
        "duration,job_type\nj,org,A100-SXM4-80GB,8,8,4,5.0,60.0,Spot\n"
    ),
    "tiresias-csv": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "0,2,30,606,vgg19,164,30\n"
    ),
    "weft-csv": "id,submit_s,num_gpus,duration_s\na,0,1,9\n",
}


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "anything.dat"
    path.write_text(FILES[request.param])
    return path


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", [name], indirect=True)


@pytest.mark.parametrize("name", FILES)
def test_exactly_one_format_claims_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / "anything.dat"
    path.write_text(FILES[name])
    sample = members(path)[0].sample()

    claims = [form.name for form in formats() if form.sniff(sample)]

    assert claims == [name]
    assert recognise(path).name == name


def test_every_format_says_where_it_comes_from() -> None:
    names = {form.name for form in formats()}

    assert names == set(FILES) | {"philly-json", "topology-csv", "weft-events"}
    assert all(form.about and "\n" not in form.about for form in formats())


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_in_its_last_line_is_answered(tmp_path: Path, name: str) -> None:
    path = tmp_path / "cut"
    whole = FILES[name].rstrip("\n")
    separator = "\t" if "\t" in whole else ","
    first, _, _ = whole.rpartition("\n")
    row = whole.rsplit("\n", 1)[-1]
    path.write_text(f"{first}\n{row}\n{row.rsplit(separator, 1)[0]}\n".lstrip("\n"))

    with pytest.raises(TraceError, match="is the file complete"):
        load(path)


@examples(200)
@given(
    name=st.sampled_from(sorted(FILES)),
    at=st.integers(0, 400),
    cut=st.integers(0, 30),
    put=st.sampled_from(["", ",", "x", "-", "\t", "9", "\n", "1e400", "nan", "\x00", '"', "é"]),
)
def test_a_damaged_file_is_read_or_answered(name: str, at: int, cut: int, put: str) -> None:
    text = FILES[name]
    at = at % len(text)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged"
        path.write_text(text[:at] + put + text[at + cut :])
        try:
            trace = load(path)
        except TraceError as error:
            assert error.hint
        else:
            assert all(truth.length > 0 for _, truth in trace)


@of("helios-csv")
def test_helios_drops_cpu_jobs_and_warm_up(file: Path) -> None:
    trace = load(file)

    [(job, truth)] = trace
    assert (job.id, job.submitted, job.demand.gpus, job.cpus) == ("1", 86_400.0, 16, 64.0)
    assert (job.tenant, job.user, truth.length, truth.state) == ("v", "u", 60.0, "cancelled")
    assert trace.report.dropped == {"before 2020-04-01": 1, "no GPU": 1}
    assert job.demand.kinds == ()


@of("helios-csv")
def test_cpu_jobs_stay_when_asked(file: Path) -> None:
    trace = load(file, Options(cpu_jobs=True))

    assert [job.demand.gpus for job, _ in trace] == [16, 0]


@of("acme-csv")
def test_acme_measures_from_start_to_end(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (truth.length, truth.state, job.model, job.demand.gpus) == (
        120.0,
        "cancelled",
        "pretrain",
        16,
    )


@of("chronus-csv")
def test_chronus_gives_deadlines_to_slo_jobs_only(file: Path) -> None:
    (firm, _), (loose, _) = load(file)

    assert (firm.deadline, firm.tier) == (259.0, Tier.GUARANTEED)
    assert (loose.deadline, loose.tier) == (None, Tier.OPPORTUNISTIC)


@of("elasticflow-csv")
def test_elasticflow_has_absolute_deadlines(file: Path) -> None:
    [(job, _)] = load(file)

    assert (job.deadline, job.model, job.hints) == (99.0, "inception3", {"batch": 64.0})


@of("gavel-trace")
def test_gavel_turns_steps_into_seconds(file: Path) -> None:
    [(job, truth)] = load(file)

    assert truth.length == pytest.approx(100.0)
    assert (job.model, job.submitted, job.hints["batch"]) == ("LM (batch size 10)", 30.0, 10.0)


def test_gavel_deadline_is_a_multiple_of_the_length(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(GAVEL.format(slo="1.2"))

    [(job, _)] = load(path)

    assert job.deadline == pytest.approx(150.0)


def test_the_older_gavel_columns(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("A3C\tcd x && python3 main.py\t-n\t0\t717.577\t1456.000000\t4\n")

    [(job, truth)] = load(path)

    assert (job.submitted, job.demand.gpus) == (1456.0, 4)
    assert truth.length == pytest.approx(100.0)


def test_an_unknown_gavel_job_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(GAVEL.format(slo="-1").replace("LM (batch size 10)", "GPT"))

    with pytest.raises(TraceError, match="'job_type': found 'GPT', expected a job type"):
        load(path)


@of("itp-csv")
def test_itp_clusters_become_tenants_and_can_be_chosen(file: Path) -> None:
    both, chosen = load(file), load(file, Options(cluster="cluster10"))

    assert [job.tenant for job, _ in both] == ["cluster01", "cluster10"]
    assert [job.id for job, _ in chosen] == ["b"]
    assert chosen.report.dropped == {"cluster": 1}


@of("muri-csv")
def test_muri_counts_in_milliseconds(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.submitted, truth.length, job.priority) == (1534.0, 5095.0, -1.0)
    assert (job.hints["iteration_s"], job.hints["stage1_s"]) == (0.437, 0.419)


@of("openb-csv")
def test_openb_shares_and_kinds(file: Path) -> None:
    trace = load(file)

    (part, running), (whole, failed) = trace
    assert part.demand == Demand(1, kinds=("v100m16", "v100m32"), share=0.46)
    assert (running.length, running.censored) == (90.0, True)
    assert (whole.demand, whole.tier) == (Demand(8), Tier.OPPORTUNISTIC)
    assert (failed.length, failed.state, whole.cpus, whole.mem_gb) == (100.0, "failed", 12.0, 2.0)
    assert trace.report.dropped == {"no GPU": 1}


def test_openb_without_times_is_for_packing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,460\nb,1,1,2,1000\n")

    trace = load(path)

    assert [job.submitted for job, _ in trace] == [0.0, 1.0]
    assert all(truth.censored and truth.length > 3e8 for _, truth in trace)


@of("pai-sample")
def test_the_pai_sample_is_in_percent_per_instance(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.demand, job.cpus, truth.length) == (Demand(3, share=0.5), 18.0, 1.0)
    assert job.hints == {"duration_s": 40.0}


@of("pai-tables")
def test_a_task_table_alone_makes_every_task_a_job(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.id, job.submitted, truth.length) == ("a/worker", 1012.0, 3978.0)
    assert job.demand == Demand(2, share=0.5)


def test_pai_tables_in_a_folder_are_joined(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(
        "a,ia,u1,Terminated,1000.0,5000.0\nb,ib,u2,Running,1100.0,\nc,ic,u3,Waiting,,\n"
    )
    (tmp_path / "tasks").write_text(
        "a,ps,1.0,Terminated,1010.0,5000.0,600.0,29.3,,MISC\n"
        "a,worker,2.0,Terminated,1012.0,4990.0,400.0,29.3,50.0,MISC\n"
        "b,worker,1.0,Running,1101.0,,600.0,29.3,100.0,T4\n"
        "c,worker,1.0,Waiting,,,600.0,29.3,100.0,\n"
    )
    (tmp_path / "pai_group_tag_table.csv").write_text("ia,u1,T4,g,bert\nib,u2,,g,\n")

    trace = load(tmp_path)

    [(job, truth)] = trace
    assert (job.id, job.submitted, job.user, truth.length) == ("a", 1000.0, "u1", 3990.0)
    assert (job.demand, job.cpus) == (Demand(2, kinds=("t4",), share=0.5), 14.0)
    assert trace.report.dropped == {"never started": 1, "no tasks": 1, "no start or end": 1}


@of("rubick-csv")
def test_rubick(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.model, job.demand.gpus, job.cpus, truth.length) == ("llama", 48, 384.0, 60.5)


@of("shockwave-trace")
def test_shockwave_has_its_own_durations(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.submitted, job.demand.gpus, truth.length) == (55.0, 2, 1418.0)
    assert job.hints == {"batch": 10.0, "mode": 2.0}


@of("shockwave-profile")
def test_a_profile_of_shockwave_tells_the_regimes_of_jobs(file: Path) -> None:
    trace = load(file)

    [(job, truth)] = trace
    assert (truth.schedule, truth.length) == (((10, 2), (20, 1)), 160.0)
    assert regimes_of(job) == Regimes(3, {10: 60.0, 20: 40.0}, 100.0)
    assert Detail.REGIMES in trace.detail


def test_a_profile_that_lacks_a_field_names_the_job(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(FILES["shockwave-profile"].replace('"num_epochs"', '"epochs"'))

    with pytest.raises(TraceError, match=r"job 0: KeyError\('num_epochs'\)"):
        load(path)


@of("sia-csv")
def test_sia_jobs_are_adaptive_and_get_reference_lengths(file: Path) -> None:
    [(job, truth)] = load(file)

    assert (job.model, job.demand, truth.length) == ("bert", Demand(8, 1, 64), 1395.0)
    assert job.hints == {"batch": 384.0}
    assert job.batch is not None
    assert job.batch.max == 384


def test_an_unknown_sia_application_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(FILES["sia-csv"].replace("bert,", "gnn,"))

    with pytest.raises(TraceError, match="'application': found 'gnn'"):
        load(path)


@of("spot-csv")
def test_spot_jobs_are_gangs_of_one_kind(file: Path) -> None:
    [(job, _)] = load(file)

    assert (job.demand, job.tier) == (Demand(32, kinds=("a100",)), Tier.OPPORTUNISTIC)
    assert (job.tenant, job.cpus) == ("org", 32.0)
