"""The worked example of SLAQ (SoCC 2017) and its invariants."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

import weft
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import LossSoFar
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.formulas.training.convergence import Curve
from weft.formulas.training.tasks import Law
from weft.perf.training.learner import Learner
from weft.perf.training.loss_laws import LinearConvergence, SublinearConvergence, fit_law
from weft.testing import view_of, with_knowledge
from weft_papers.slaq.policy import Slaq, grow_by_gain, reduction, reductions, sizes
from weft_papers.tests.training_ports import NoTraining

X = SublinearConvergence(0.01, 0.1, 1.0, 0.1)
Y = SublinearConvergence(0.05, 0.2, 0.5, 0.3)
Z = LinearConvergence(0.8, 1.0, 0.05)


def learned(
    law: Law | None, k: float, gpu_s: float, largest: float, recent: float = 0.0
) -> LossSoFar:
    loss = float(law(k)) if law is not None else 1.0
    return LossSoFar(k, loss, largest, recent, gpu_s, law)


TOLD = {"x": learned(X, 5, 8.0, 0.2), "y": learned(Y, 10, 4.0, 0.9), "z": learned(Z, 2, 10.0, 0.25)}


def falls(most: int = 10, epoch: float = 10.0) -> dict[int, Floats]:
    reductions = {}
    for i, losses in enumerate(TOLD.values()):
        known = reduction(losses, most, epoch)
        assert known is not None
        reductions[i] = known
    return reductions


# ---- 5.1 allocation


def test_cores_one_by_one() -> None:
    counts = {0: 1, 1: 1, 2: 1}

    gains = grow_by_gain(counts, falls(), 7)

    expected = [0.409600, 0.327680, 0.318458, 0.268671, 0.262144, 0.226824, 0.209715]
    assert gains == pytest.approx(expected, abs=1e-6)
    assert counts == {0: 4, 1: 1, 2: 5}


def test_the_reductions_and_that_nothing_is_better() -> None:
    known = falls()

    got = [float(known[i][n]) for i, n in ((0, 4), (1, 1), (2, 5))]
    every = [
        sum(float(known[i][n]) for i, n in enumerate(split))
        for split in product(range(1, 9), repeat=3)
        if sum(split) == 10
    ]

    assert got == pytest.approx([1.190476, 0.045386, 1.721139], abs=1e-6)
    assert sum(got) == pytest.approx(2.957002, abs=1e-6)
    assert max(every) == pytest.approx(sum(got))
    fair = float(known[0][4] + known[1][3] + known[2][3])
    assert fair == pytest.approx(2.530371, abs=1e-6)


# ---- 5.2 invariants, through the policy


class Told(NoTraining):
    """A training port that repeats what it was told."""

    def __init__(self, known: Mapping[str, LossSoFar]) -> None:
        self._known = known

    def learned(self, job: Job) -> LossSoFar | None:
        return self._known.get(str(job.id))


def view(gpus: int, known: Mapping[str, LossSoFar], *names: str, most: int = 16) -> View:
    jobs = [Job(JobId(n), demand=Demand(2, min=1, max=most)) for n in names]
    return with_knowledge(view_of(gpus, *jobs), training=Told(known))


def held(view: View, policy: Slaq) -> dict[str, int]:
    return {str(name): on.gpus for name, on in view.after(policy.decide(view)).items()}


def test_the_policy_does_the_worked_example() -> None:
    assert held(view(10, TOLD, "x", "y", "z"), Slaq(epoch=10.0)) == {"x": 4, "y": 1, "z": 5}


def test_the_unit_of_a_loss_changes_nothing() -> None:
    large = LossSoFar(5, 50.0 * float(X(5)), 50.0 * 0.2, 0.0, 8.0, lambda k: 50.0 * X(k))

    assert held(view(10, {**TOLD, "x": large}, "x", "y", "z"), Slaq(epoch=10.0)) == {
        "x": 4,
        "y": 1,
        "z": 5,
    }


def test_a_converged_job_gets_one_gpu_and_no_more() -> None:
    flat = {"a": learned(LinearConvergence(0.5, 1.0, 0.1), 500, 1.0, 0.5), "x": TOLD["x"]}

    assert held(view(16, flat, "a", "x", most=8), Slaq(epoch=10.0)) == {"a": 1, "x": 8}


def test_more_jobs_than_gpus_leave_out_those_whose_loss_falls_least() -> None:
    known = {**TOLD, "flat": learned(LinearConvergence(0.5, 1.0, 0.1), 500, 1.0, 0.5)}

    assert set(held(view(2, known, "flat", "y", "x", "z"), Slaq(epoch=10.0))) == {"x", "z"}


def test_before_there_is_a_law_the_last_change_is_what_is_expected() -> None:
    young = learned(None, 2, 5.0, 0.4, recent=0.2)

    known = reduction(young, 4, 10.0)

    assert known is not None
    assert known.tolist() == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_jobs_that_reported_nothing_have_an_equal_part_up_to_what_they_asked_for() -> None:
    assert held(view(8, {}, "a", "b"), Slaq()) == {"a": 2, "b": 2}
    assert held(view(8, {}, *"abcdefgh"), Slaq()) == dict.fromkeys("abcdefgh", 1)


def test_all_gpus_are_handed_out_while_losses_fall() -> None:
    there = view(12, TOLD, "x", "y", "z")

    counts = sizes(there, [reduction(losses, 16, 10.0) for losses in TOLD.values()])

    assert sum(counts.values()) == 12


# ---- 3.2 laws


@pytest.mark.parametrize("law", [X, Y, SublinearConvergence(0.0, 0.3, 2.0, 0.0)])
def test_exact_sublinear_losses_are_predicts(law: SublinearConvergence) -> None:
    k = np.arange(40.0)

    fitted = fit_law(k.tolist(), law(k).tolist(), "sublinear")

    assert isinstance(fitted, SublinearConvergence)
    assert [fitted.a, fitted.b, fitted.c, fitted.d] == pytest.approx(
        [law.a, law.b, law.c, law.d], abs=2e-3
    )


@pytest.mark.parametrize("law", [Z, LinearConvergence(0.97, 3.0, 0.5)])
def test_exact_linear_losses_are_predicts(law: LinearConvergence) -> None:
    k = np.arange(40.0)

    fitted = fit_law(k.tolist(), law(k).tolist())

    assert isinstance(fitted, LinearConvergence)
    assert (fitted.mu, fitted.scale, fitted.c) == pytest.approx(
        (law.mu, law.scale, law.c), rel=1e-2
    )


@pytest.mark.parametrize("family", ["sublinear", "linear"])
def test_noisy_losses_are_predicted_within_a_few_per_cent(family: str) -> None:
    law = {"sublinear": (0.001, 0.05, 1.0, 0.2), "linear": (0.97, 0.0, 0.2)}[family]
    errors = []
    for seed in range(6):
        curve = Curve(family, law, 200.0, noise=0.02, seed=seed)
        for k in (10, 30, 80):
            history = curve.measured(0, k)[-60:]
            fitted = fit_law(np.arange(k + 1.0)[-60:].tolist(), history.tolist())
            assert fitted is not None
            ahead = np.arange(k + 1.0, k + 11.0)
            errors.append(np.abs(fitted(ahead) / curve.at(ahead) - 1.0).mean())

    assert np.mean(errors) < 0.05


def test_too_short_a_history_has_no_law() -> None:
    assert fit_law([0.0, 1.0], [1.0, 0.5]) is None
    assert fit_law([0.0, 1.0, 2.0], [1.0, 0.5, -1.0]) is None


def test_the_learner_hears_losses_and_forgets() -> None:
    learner, job = Learner(view_of(4).cluster), Job(JobId("a"))
    for k in range(6):
        report = Report(
            iteration=float(k),
            loss=float(Z(k)),
            loss_change=0.1,
            loss_change_most=0.2,
            iteration_s=2.0,
            gpus=3.0,
        )
        learner.observe(job, "v100", report)

    known = learner.learned(job)

    assert known is not None and known.law is not None
    assert (known.iteration, known.gpu_s, known.largest) == (5.0, 6.0, 0.2)
    assert float(known.law(8.0)) == pytest.approx(float(Z(8.0)), rel=0.02)
    learner.forget(job)
    assert learner.learned(job) is None


def test_losses_fall_sooner_than_when_all_jobs_have_what_they_asked_for() -> None:
    slaq, fifo = Slaq(epoch=10.0), "fifo"

    result = weft.compare("losses", [fifo, slaq], "2x8:v100", jobs=16, load=1.5, restart_cost=0.0)

    assert result.mean("slaq", "avg_t90_h") < 0.8 * result.mean("fifo", "avg_t90_h")


def test_of_numbers_too_small_to_square_no_law_is_believed() -> None:
    assert fit_law([1e-200, 2e-200, 3e-200, 4e-200], [1.0, 0.6, 0.4, 0.3], "sublinear") is None


def test_a_change_pays_for_its_pause_and_staying_does_not() -> None:
    # Two of ten seconds are lost by whoever changes size: 0.8 of every gain but that of now.
    seen = view(10, TOLD, "x", "y", "z")
    seen.table.allocations[0] = Allocation((Slice(seen.cluster.nodes[0].id, (0, 1)),))
    plain, paused = reductions(seen, 10.0), reductions(seen, 10.0, 2.0)

    x, paused_x, y, paused_y = plain[0], paused[0], plain[1], paused[1]
    assert x is not None and paused_x is not None and y is not None and paused_y is not None
    assert paused_x.tolist() == pytest.approx([*0.8 * x[:2], x[2], *0.8 * x[3:]])
    assert paused_y.tolist() == pytest.approx(y.tolist())


def test_a_job_on_more_than_it_may_have_stays_at_its_most() -> None:
    seen = view(10, TOLD, "x", most=2)
    seen.table.allocations[0] = Allocation((Slice(seen.cluster.nodes[0].id, (0, 1, 2, 3)),))

    (plain,), (paused,) = reductions(seen, 10.0), reductions(seen, 10.0, 2.0)

    assert plain is not None and paused is not None
    assert paused.tolist() == pytest.approx([*0.8 * plain[:2], plain[2]])


def test_part_of_a_gpu_leaves_the_rest_of_it_to_others() -> None:
    # On 4 GPUs: half of one, and a job of unknown loss that asked for 4 and begins at its equal 2.
    # Of the 1.5 that are left it gets a whole one.
    half = Job(JobId("half"), demand=Demand(1, share=0.5))
    seen = view_of(4, half, Job(JobId("four"), demand=Demand(4, min=1)))

    assert sizes(seen, [None, None]) == {0: 1, 1: 3}
