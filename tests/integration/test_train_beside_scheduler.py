"""Where trainings and the scheduler decide the same thing, they decide alike."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.base.step_fit import FitRow
from weft.core.errors import InvalidConfig
from weft.core.model.execution import read_execution
from weft.perf.goodput.fit import fit
from weft.perf.goodput.model import BatchBounds, Noise, best_batch
from weft_train.batch.noise import GradientNoise, Norms
from weft_train.batch.tuner import BETTER, BatchTuner, Bounds
from weft_train.errors import TrainError
from weft_train.plans.layout import read_layout

OLD, NEW = "weft.train", "weft_train"
NUMBERS = st.sampled_from(["", "0", "1", "2", "3", "4", "12", "1000001", "12345678", "²"])
NAMES = st.sampled_from(["dp", "tp", "pp", "zero", "ga", "offload", "gc", "DP", "x", " "])
PARTS = st.builds(str.__add__, NAMES, NUMBERS)


@given(text=st.lists(PARTS, min_size=1, max_size=4).map("-".join), ranks=st.integers(1, 16))
@example("zero2-pp2", 2)
@example("ga1000001", 1)
@example(" dp2\n", 2)
def test_trainings_and_the_scheduler_read_the_same_plans(text: str, ranks: int) -> None:
    def read(reader: Callable[[], Any]) -> dict[str, int] | None:
        try:
            plan = reader()
        except (InvalidConfig, TrainError):
            return None
        return None if plan is None else asdict(plan)

    by_scheduler = read(lambda: read_execution(text).on(ranks))

    assert read(lambda: read_layout(text, ranks)) == by_scheduler


@given(
    ranks=st.sampled_from([1, 2, 3, 8]),
    init=st.sampled_from([16, 32, 100]),
    times=st.sampled_from([2, 10, 100]),
    overhead_s=st.floats(0.0, 0.1),
    scale=st.floats(1.0, 1e5),
)
def test_a_training_chooses_the_batch_that_the_scheduler_would(
    ranks: int, init: int, times: int, overhead_s: float, scale: float
) -> None:
    bounds = Bounds.of(init, init * times, 64)
    job, noise = BatchTuner(bounds, "cpu", nodes=1, ranks=ranks), GradientNoise(float(init))
    for _ in range(8):
        noise.observe(Norms(1.0 + scale / 8, 8, 1.0 + scale / 64, 64))
    for local in (16, 32):
        grad_s = 0.01 + 0.001 * local
        job.observe(local, grad_s, grad_s + overhead_s)

    chosen = job.find_best(noise, job.choose_first())

    fitted = fit(FitRow(*row) for row in job.measured["cpu"].values())
    limits = BatchBounds(float(bounds.largest), 1.0, 64.0)
    stats = Noise(noise.sqr, noise.var, float(init))
    best = best_batch(fitted, stats, 1.0, float(ranks), limits)
    now = job.choose_first()
    rate = fitted.throughput(1.0, float(ranks), float(now.per_gpu), now.accumulate)
    if best.goodput > BETTER * rate * stats.efficiency(float(now.total)):
        assert chosen == job.fit_choice(int(best.local), int(best.accumulate))
    else:
        assert chosen == now


def test_weft_train_is_found_under_the_name_it_had() -> None:
    for name in ("", ".errors", ".batch.tuner", ".plans.frameworks"):
        old, new = (importlib.import_module(package + name) for package in (OLD, NEW))
        assert old is new
    assert sys.modules[f"{OLD}.errors"].TrainError is TrainError
    assert new.__spec__ is not None
    assert new.__spec__.name == f"{NEW}.plans.frameworks"


@pytest.mark.parametrize(
    "line",
    ["import weft.train as wt", "from weft import train as wt", "from weft.train import init"],
)
def test_without_weft_train_its_old_name_says_what_to_install(line: str) -> None:
    hidden = f"import sys; sys.modules[{NEW!r}] = None\n{line}\n"

    ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)

    assert ran.returncode == 1
    assert "pip install weft-train" in ran.stderr
