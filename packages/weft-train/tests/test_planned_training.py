"""A real GPT goes from plan to plan on real ranks, and its loss does not notice."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from real_ranks import EXAMPLES, finish, start

PER_PLAN = 3
LIMIT_S = 900.0


def train(steps: int, out: Path) -> None:
    sys.path.insert(0, str(EXAMPLES))
    gpt_plans = import_module("gpt_plans")

    training = gpt_plans.begin()
    for step in training.steps(steps):
        x, y = gpt_plans.read_batch(step)
        loss = training.step(x[training.rows], y[training.rows])
        if training.rank == 0:
            with out.open("a") as file:
                file.write(f"{step} {loss!r}\n")


def environment(folder: Path, plan: str) -> dict[str, str]:
    return {"WEFT_CHECKPOINTS": str(folder / "kept"), "WEFT_PLAN": plan, "WEFT_KIND": "cpu"}


def run(folder: Path, plan: str, ranks: int, steps: int) -> None:
    folder.mkdir(exist_ok=True)
    args = (steps, folder / "losses")
    assert finish(start(train, ranks, environment(folder, plan), *args), LIMIT_S) == [0] * ranks


def read_losses(folder: Path) -> list[float]:
    """By the number of the step; every step was made once."""
    lines = [line.split() for line in (folder / "losses").read_text().splitlines()]
    assert [int(step) for step, _ in lines] == list(range(len(lines)))
    return [float(loss) for _, loss in lines]


def change_plans(folder: Path, plans: list[str]) -> None:
    run(folder / "alone", "dp", 1, PER_PLAN * len(plans))
    for number, plan in enumerate(plans, 1):
        run(folder / "changing", plan, 4, PER_PLAN * number)
    losses = read_losses(folder / "changing")
    assert losses == pytest.approx(read_losses(folder / "alone"), rel=1e-4)
    assert losses[-1] < losses[0]


def test_a_gpt_changes_its_plan_and_its_loss_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    change_plans(tmp_path, ["dp", "zero3", "tp2-zero1", "dp4"])


@pytest.mark.slow
def test_pipelines_accumulation_and_checkpointing_leave_the_loss_as_it_is(tmp_path: Path) -> None:
    change_plans(tmp_path, ["pp2-ga4-gc", "tp2-pp2-ga2", "zero2-ga2-gc", "pp4-ga4", "tp4", "zero1"])


def test_one_rank_offloads_what_its_optimizer_keeps_and_reads_plain_checkpoints(
    tmp_path: Path,
) -> None:
    run(tmp_path / "alone", "dp", 1, 3 * PER_PLAN)
    for number, plan in enumerate(["dp", "offload-gc", "dp"], 1):
        run(tmp_path / "changing", plan, 1, PER_PLAN * number)
    losses = read_losses(tmp_path / "changing")
    assert losses == pytest.approx(read_losses(tmp_path / "alone"), rel=1e-4)


def test_one_rank_is_asked_to_stop_and_all_go_on_under_another_plan(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    folder.mkdir()
    ranks = start(train, 2, environment(folder, "zero3"), 100_000, folder / "losses")
    end = time.monotonic() + LIMIT_S
    while not (folder / "losses").exists():
        assert time.monotonic() < end
        assert all(rank.is_alive() for rank in ranks)
        time.sleep(0.05)
    assert ranks[1].pid is not None
    os.kill(ranks[1].pid, signal.SIGTERM)
    assert finish(ranks, LIMIT_S) == [0, 0]
    done = len(read_losses(folder))

    run(folder, "pp2-ga2", 2, done + PER_PLAN)
    run(tmp_path / "alone", "dp", 1, done + PER_PLAN)

    losses = read_losses(folder)
    assert len(losses) == done + PER_PLAN
    assert losses == pytest.approx(read_losses(tmp_path / "alone"), rel=1e-3)
