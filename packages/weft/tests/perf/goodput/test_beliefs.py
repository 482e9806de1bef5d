"""What reports of jobs lead the scheduler to believe."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from weft.base.step_times import StepTime
from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.model.job import BatchRange, Config, Demand, Job, JobId
from weft.core.state.table import JobTable
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts, tuned_rate
from weft.perf.goodput.model import BatchBounds, Floats, Noise, best_batch
from weft.perf.goodput.tables import Curve, KindTable, ModelTable

T4 = StepTime(0.05, 0.001, 0.04, 0.002, 0.02, 0.001, 2.0)
NOISE = (0.5, 2.0)
SIZES = np.arange(32.0, 257.0, 32.0)
CONFIGS = (
    Config("t4", 1, 1),
    Config("t4", 1, 2),
    Config("t4", 1, 4),
    Config("t4", 2, 8),
    Config("a100", 1, 1),
    Config("a100", 1, 2),
    Config("a100", 1, 8),
)


def kind_table(node_gpus: int, max_nodes: int, bootstrap: float, factor: float) -> KindTable:
    """Step times of the law, `factor` times as fast."""

    def curve(nodes: int, gpus: int) -> Curve:
        step = np.array([T4.step(nodes, gpus, m) for m in SIZES]) / factor
        sync = step - np.array([T4.grad(m) for m in SIZES]) / factor
        return SIZES.tolist(), step.tolist(), sync.tolist()

    shapes = {(n, k): curve(n, k) for n, k in ((1, 1), (1, 2), (1, 4), (2, 8))}
    return KindTable(32, 256, bootstrap, node_gpus, max_nodes, {}, shapes)


def model(**kinds: KindTable) -> ModelTable:
    return ModelTable(
        "toy", 128, 4096, 1, 50.0, 30.0, 1.0, kinds,
        (128.0,), (1000.0,), (((1.0, 1.0),),),
    )  # fmt: skip


MODELS = {"toy": model(t4=kind_table(4, 2, 100.0, 1.0), a100=kind_table(8, 1, 400.0, 4.0))}


def job(name: str = "a", **hints: float) -> Job:
    adaptive = BatchRange(128, 4096, 256)
    return Job(JobId(name), demand=Demand(1, 1, 16), model="toy", batch=adaptive, hints=hints)


def table_of(*jobs: Job) -> JobTable:
    table = JobTable()
    for seq, entry in enumerate(jobs):
        table.add(entry, seq)
    return table


def report(nodes: int, replicas: int, local: int, noise: tuple[float, float] = NOISE) -> Report:
    return Report(
        nodes=float(nodes),
        replicas=float(replicas),
        per_gpu=float(local),
        grad_s=T4.grad(local),
        last_s=T4.step(nodes, replicas, local),
        grad_sqr=noise[0],
        grad_var=noise[1],
    )


def beliefs_from(*reports: Report, kind: str = "t4", cap_batch: bool = False) -> FittedBeliefs:
    """Beliefs after job `a` reported."""
    beliefs = FittedBeliefs(MeasuredFacts(MODELS, cap_batch))
    for values in reports:
        beliefs.observe(job(), kind, values)
    return beliefs


def ideal(config: Config, factor: float = 1.0, max_batch: int = 4096) -> float:
    """Goodput if synchronisation were free."""
    free = T4._replace(alpha_n=1e-8, beta_n=1e-8, alpha_r=1e-8, beta_r=1e-8)
    limits = BatchBounds(max_batch, 32, 256)
    best = best_batch(free, Noise(*NOISE, 128), config.nodes, config.gpus, limits)
    return float(best.goodput) * factor


ALONE = (report(1, 1, 64), report(1, 1, 128))
PAIR = (*ALONE, report(1, 2, 128))


# ---- goodputs


@pytest.mark.parametrize("early", [False, True])
def test_measurements_are_saved_and_their_fit_goes_on(early: bool) -> None:
    beliefs, again = (FittedBeliefs(MeasuredFacts(MODELS), early=early) for _ in range(2))
    for values in ALONE:
        beliefs.observe(job(), "t4", values)

    again.load(json.loads(json.dumps(beliefs.save())))

    for each in (beliefs, again):
        each.observe(job(), "t4", PAIR[-1])
    rows, shapes = table_of(job()), np.array([1.0, 2.0])
    assert again.save() == beliefs.save()
    assert np.array_equal(
        again.blind_goodputs(rows, ["t4"], np.ones(2), shapes),
        beliefs.blind_goodputs(rows, ["t4"], np.ones(2), shapes),
    )


def test_nothing_is_known_of_a_job_before_it_reports() -> None:
    goodputs = beliefs_from().goodputs(table_of(job()), CONFIGS)

    assert np.isnan(goodputs).all()


def test_only_the_rows_of_jobs_that_reported_are_known() -> None:
    goodputs = beliefs_from(*ALONE).goodputs(table_of(job("b"), job("a")), CONFIGS)

    assert np.isnan(goodputs[0]).all()
    assert np.isfinite(goodputs[1]).all()


def test_a_job_that_ran_alone_is_believed_to_scale_perfectly_to_two() -> None:
    goodputs = beliefs_from(*ALONE).goodputs(table_of(job()), CONFIGS)[0]

    assert goodputs[0] == pytest.approx(ideal(CONFIGS[0]), rel=0.01)
    assert goodputs[1] == pytest.approx(ideal(CONFIGS[1]), rel=0.01)
    assert (goodputs[[2, 3, 6]] == 0.0).all()  # more than twice what ran


def test_each_run_doubles_what_may_be_asked_for_on_any_kind() -> None:
    reports = [*ALONE]
    allowed = []
    for replicas in (1, 2, 4):
        reports.append(report(1, replicas, 128))
        goodputs = beliefs_from(*reports).goodputs(table_of(job()), CONFIGS)[0]
        allowed.append([c.gpus for c, g in zip(CONFIGS, goodputs, strict=True) if g > 0.0])

    assert allowed == [[1, 2, 1, 2], [1, 2, 4, 1, 2], [1, 2, 4, 8, 1, 2, 8]]


def test_no_more_replicas_than_the_largest_batch_feeds() -> None:
    narrow = replace(MODELS["toy"], init_batch=64, max_batch=64)
    beliefs = FittedBeliefs(MeasuredFacts({"toy": narrow}))
    beliefs.observe(job(), "t4", report(1, 2, 32))

    goodputs = beliefs.goodputs(table_of(job()), CONFIGS)[0]

    assert goodputs[1] > 0.0
    assert goodputs[2] == 0.0  # four GPUs of at least 32 samples are 128


def test_a_kind_borrows_the_model_of_another_times_the_ratio_of_single_speeds() -> None:
    goodputs = beliefs_from(*PAIR).goodputs(table_of(job()), CONFIGS)[0]

    assert goodputs[4] == pytest.approx(4.0 * goodputs[0])
    assert goodputs[5] == pytest.approx(4.0 * goodputs[1])


def test_a_borrowed_model_is_asked_on_its_own_nodes() -> None:
    beliefs = beliefs_from(*PAIR, report(1, 4, 128), report(2, 8, 128))

    goodputs = beliefs.goodputs(table_of(job()), CONFIGS)[0]

    assert goodputs[6] == pytest.approx(4.0 * goodputs[3])  # 8 A100 in one node as 2 nodes of T4


def test_a_kind_uses_its_own_model_as_soon_as_it_has_one() -> None:
    beliefs = beliefs_from(*PAIR)
    before = beliefs.goodputs(table_of(job()), CONFIGS)[0]
    slow = report(1, 1, 128)
    beliefs.observe(job(), "a100", replace(slow, grad_s=0.5, last_s=0.5))

    goodputs = beliefs.goodputs(table_of(job()), CONFIGS)[0]

    assert goodputs[4] < before[4] / 4.0
    assert goodputs[:4] == pytest.approx(before[:4])


def test_more_nodes_than_were_ever_measured_are_out_of_reach() -> None:
    wide = (Config("t4", 2, 8), Config("t4", 3, 12))

    goodputs = beliefs_from(*ALONE, report(2, 8, 128)).goodputs(table_of(job()), wide)[0]

    assert goodputs[0] > 0.0
    assert goodputs[1] == 0.0


def test_a_kind_that_the_model_was_not_measured_on_is_out_of_reach() -> None:
    goodputs = beliefs_from(*ALONE).goodputs(
        table_of(job()), (Config("t4", 1, 1), Config("v100", 1, 1))
    )

    assert goodputs[0, 0] > 0.0
    assert goodputs[0, 1] == 0.0


def test_a_job_that_keeps_its_batch_may_have_what_it_asked_for_and_gains_less() -> None:
    rigid = replace(job(batch=128.0), batch=None)
    beliefs = beliefs_from(*ALONE)

    goodputs = beliefs.goodputs(table_of(rigid), CONFIGS)[0]

    assert goodputs[0] == pytest.approx(1.0 / T4.grad(128) * 128, rel=0.01)
    assert (goodputs[[1, 2]] > 0.0).all()  # not bound to twice what ran
    assert goodputs[1] < ideal(CONFIGS[1])


def test_the_batch_may_be_capped_at_the_submitted_one() -> None:
    table = table_of(job(batch=256.0))
    reports = (*ALONE, report(1, 4, 128))

    free = beliefs_from(*reports).goodputs(table, CONFIGS)[0]
    capped = beliefs_from(*reports, cap_batch=True).goodputs(table, CONFIGS)[0]

    assert (capped <= free * 1.001).all()  # candidates lie elsewhere, so not exactly
    assert capped[3] < free[3]


# ---- memory


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    beliefs, table = beliefs_from(*PAIR), table_of(job())
    first = beliefs.goodputs(table, CONFIGS)

    part = beliefs.goodputs(table, CONFIGS[:2])
    beliefs.observe(job(), "t4", PAIR[-1])  # the same row, the same noise

    assert (part == first[:, :2]).all()
    assert (beliefs.goodputs(table, CONFIGS) == first).all()


def test_new_noise_changes_beliefs_and_an_old_row_does_not() -> None:
    beliefs, table = beliefs_from(*PAIR), table_of(job())
    first = beliefs.goodputs(table, CONFIGS)
    beliefs.observe(job(), "t4", replace(report(1, 2, 128), last_s=99.0))  # seen: first value kept
    same = beliefs.goodputs(table, CONFIGS)
    beliefs.observe(job(), "t4", report(1, 2, 128, noise=(0.5, 20.0)))

    noisier = beliefs.goodputs(table, CONFIGS)

    afresh = beliefs_from(*PAIR, report(1, 2, 128, noise=(0.5, 20.0))).goodputs(table, CONFIGS)
    assert (noisier == afresh).all()
    assert (same == first).all()
    assert noisier[0, 1] > first[0, 1]  # large batches lose less


def test_answers_are_copies() -> None:
    beliefs, table = beliefs_from(*PAIR), table_of(job())
    first = beliefs.goodputs(table, CONFIGS)
    kept = first.copy()

    first[:] = -1.0

    assert (beliefs.goodputs(table, CONFIGS) == kept).all()


def test_together_is_the_same_as_one_by_one() -> None:
    both = beliefs_from(*PAIR)
    both.observe(job("b"), "a100", report(1, 1, 64))

    together = both.goodputs(table_of(job("a"), job("b")), CONFIGS)

    def alone(name: str) -> Floats:
        beliefs = beliefs_from(*PAIR)
        beliefs.observe(job("b"), "a100", report(1, 1, 64))
        return np.asarray(beliefs.goodputs(table_of(job(name)), CONFIGS)[0])

    assert together[0] == pytest.approx(alone("a"))
    assert together[1] == pytest.approx(alone("b"))


def test_a_job_that_left_is_forgotten() -> None:
    beliefs = beliefs_from(*PAIR)

    beliefs.forget(job())

    assert np.isnan(beliefs.goodputs(table_of(job()), CONFIGS)).all()
    assert beliefs.most_run(table_of(job())) == pytest.approx([0.0])


# ---- columns


def test_the_most_replicas_ever_run_count_over_kinds() -> None:
    beliefs = beliefs_from(*PAIR)
    beliefs.observe(job(), "a100", report(1, 1, 64))

    assert beliefs.most_run(table_of(job(), job("b"))) == pytest.approx([2.0, 0.0])


def test_a_restart_costs_what_the_model_is_assumed_to() -> None:
    assert beliefs_from().restart_s(table_of(job(), job("b"))) == pytest.approx([30.0, 30.0])


def test_rates_are_those_of_the_submitted_size_and_batch() -> None:
    wide = Job(JobId("w"), demand=Demand(4), model="toy", hints={"batch": 512.0})

    rates = beliefs_from().rates(table_of(job(batch=128.0), wide), ("t4", "a100", "v100"))

    assert rates[0] == pytest.approx([1.0 / T4.grad(128), 4.0 / T4.grad(128), 0.0])
    assert rates[1, 0] == pytest.approx(1.0 / T4.step(1, 4, 128))


def test_a_batch_too_large_for_its_gpus_is_accumulated() -> None:
    toy = MODELS["toy"]
    large = Job(JobId("l"), demand=Demand(1), model="toy", hints={"batch": 512.0})

    rate = tuned_rate(toy, toy.kinds["t4"], large)

    assert rate == pytest.approx(1.0 / (2.0 * T4.grad(256)))


def test_a_job_of_a_model_without_tables_is_refused() -> None:
    stranger = Job(JobId("s"), model="gpt")

    with pytest.raises(InvalidConfig, match="gpt"):
        beliefs_from().restart_s(table_of(stranger))
