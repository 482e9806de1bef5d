"""What a stopped, killed or resized training goes on with: rates, schedules, checkpoints."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import real_ranks as ranks
import torch
from test_train_elastic import weft_env
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from train_script import Line, notes

import weft_train as wt
from weft_train.base.messages import Adjust, Leaving, Report, Saved, Stop

SAMPLES, BATCH = 196, 16
STEPS = 12  # of an epoch: the rest of 4 joins the last one


def one_cycle(optimizer: torch.optim.Optimizer, epochs: int, per_epoch: int) -> LRScheduler:
    return OneCycleLR(optimizer, max_lr=0.1, total_steps=epochs * per_epoch)


def train(
    seen: str,
    *,
    ours: bool,
    epochs: int = 3,
    term_at: int = 0,
    max_batch: int | None = None,
    amp: bool = False,
    leave_at: int = 0,
    samples: int = SAMPLES,
    wait: bool = False,
) -> None:
    """A script with a schedule of steps, stepped by the job (`ours`) or by the loop's body."""
    job = wt.init(checkpoint_every_s=600.0, report_every_s=0.01)
    torch.manual_seed(0)
    model: Any = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5) if amp else None
    model, optimizer = job.wrap(model, optimizer, scaling="none", clip=1.0, scaler=scaler)
    loader = job.loader(Line(samples), BATCH, max_batch)
    plain = one_cycle(optimizer, epochs, len(loader))
    schedule: Any = job.schedule(plain) if ours else job.state("schedule", plain)
    with Path(f"{seen}.{os.getpid()}").open("w", buffering=1) as out:
        for epoch in job.epochs(epochs):
            for x, y, _ in loader:
                note: dict[str, float] = {"step": job.steps, "epoch": epoch, "at": job.position}
                note |= {"lr": optimizer.param_groups[0]["lr"], "size": job.size}
                note |= {"momentum": optimizer.param_groups[0]["momentum"]}
                with job.step(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                    loss = nn.functional.mse_loss(model(x), y)
                    job.backward(loss)
                note |= {"scale": scaler.get_scale() if scaler is not None else 1.0}
                note |= {"loss": loss.item()}
                if job.rank == 0:
                    out.write(json.dumps(note) + "\n")
                if not ours:
                    schedule.step()
                if job.steps == term_at:
                    os.kill(os.getpid(), signal.SIGTERM)
                if wait:
                    wait_for_a_checkpoint_and_die()
            if job.steps == leave_at:
                break
        if job.rank == 0:
            out.write(json.dumps({"steps": job.steps, "schedule": plain.last_epoch}) + "\n")


def wait_for_a_checkpoint_and_die() -> None:
    time.sleep(0.05)
    if any(Path(os.environ["WEFT_CHECKPOINTS"]).glob("step-*.ckpt")):
        os.kill(os.getpid(), signal.SIGKILL)


def run(
    folder: Path, attempt: int, size: int = 1, agent: Path | None = None, **options: Any
) -> list[int | None]:
    folder.mkdir(exist_ok=True)
    script = functools.partial(train, str(folder / "seen"), **options)
    return ranks.finish(ranks.start(script, size, weft_env(folder, attempt, agent)))


def by_step(folder: Path, name: str) -> dict[int, float]:
    return {note["step"]: note[name] for note in notes(folder, "seen") if "step" in note}


def end(folder: Path) -> dict[str, Any]:
    (last,) = [note for note in notes(folder, "seen") if "schedule" in note]
    return last


def test_a_schedule_stepped_after_the_step_loses_nothing_at_stops(tmp_path: Path) -> None:
    calm, stopped = tmp_path / "calm", tmp_path / "stopped"

    whole = STEPS * BATCH
    codes = run(calm, 1, ours=False, samples=whole)
    for attempt, at in enumerate((4, STEPS, STEPS + 9, 0), start=1):
        codes += run(stopped, attempt, ours=False, samples=whole, term_at=at)

    assert codes == [0] * 5
    assert end(stopped) == end(calm)
    assert end(calm)["schedule"] == end(calm)["steps"]
    for name in ("lr", "momentum", "loss"):
        assert by_step(stopped, name) == by_step(calm, name)


def test_the_jobs_own_schedule_is_exact_over_stops_and_resizes(tmp_path: Path) -> None:
    calm, moved = tmp_path / "calm", tmp_path / "moved"

    # Ranks with such short steps agree on a stop some dozens of steps after it was asked for.
    codes = run(calm, 1, ours=True, epochs=30)
    for attempt, (size, at) in enumerate(((1, 4), (2, STEPS + 1), (1, 0)), start=1):
        codes += run(moved, attempt, size, ours=True, epochs=30, term_at=at)

    assert codes == [0] * 5
    assert {note["size"] for note in notes(moved, "seen") if "step" in note} == {1, 2}
    assert by_step(moved, "lr") == by_step(calm, "lr")
    assert by_step(moved, "momentum") == by_step(calm, "momentum")
    assert end(moved) == end(calm)


def test_a_schedule_counts_samples_when_the_batch_grows(tmp_path: Path) -> None:
    grown = tmp_path / "grown"
    agent = ranks.Agent(tmp_path / "agent")
    epochs = 4000
    script = functools.partial(train, str(grown / "seen"), ours=True, epochs=epochs, max_batch=48)
    grown.mkdir()
    processes = ranks.start(script, 1, weft_env(grown, 1, agent.path))

    agent.until(lambda: len(agent.of(Report)) > 3)
    agent.send_to_rank(Adjust(per_gpu=16, accumulate=3))
    agent.until(lambda: any(report.values["batch"] == 48 for report in agent.of(Report)))
    agent.until(lambda: agent.of(Report)[-1].values["steps"] > 500)
    agent.send_to_rank(Stop(10.0))
    codes = ranks.finish(processes)

    assert codes == [0]
    seen = [note for note in notes(grown, "seen") if "step" in note]
    assert len(seen) > 300
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.02, momentum=0.9)
    plain, expected = one_cycle(optimizer, epochs, STEPS), [0.0] * epochs * STEPS
    for step in range(int(seen[-1]["epoch"] + 1) * STEPS):
        expected[step] = optimizer.param_groups[0]["lr"]
        optimizer.step()
        plain.step()
    for note in seen:
        done = note["epoch"] * STEPS + min(note["at"] // BATCH, STEPS - 1)
        assert note["lr"] == expected[done], note


def test_a_loss_scaler_survives_and_its_loss_is_as_without_stops(tmp_path: Path) -> None:
    calm, stopped = tmp_path / "calm", tmp_path / "stopped"

    codes = run(calm, 1, ours=True, amp=True)
    codes += run(stopped, 1, ours=True, amp=True, term_at=7)
    codes += run(stopped, 2, ours=True, amp=True)

    assert codes == [0, 0, 0]
    scales = by_step(calm, "scale")
    assert scales[len(scales) - 1] > scales[0]
    assert by_step(stopped, "scale") == scales
    assert by_step(stopped, "loss") == by_step(calm, "loss")


def test_a_loss_scaler_skips_steps_that_overflow_on_all_ranks_alike(tmp_path: Path) -> None:
    codes = run(tmp_path, 1, 2, ours=True, amp=True, epochs=1)

    assert codes == [0, 0]
    assert len(by_step(tmp_path, "scale")) == STEPS


def test_a_job_that_is_killed_early_has_a_checkpoint_by_then(tmp_path: Path) -> None:
    agent = ranks.Agent(tmp_path / "agent")

    codes = run(tmp_path / "job", 1, agent=agent.path, ours=True, epochs=10_000, wait=True)

    assert codes == [-9]
    assert agent.of(Saved)[0].step > 0


def test_the_last_report_says_that_all_is_done(tmp_path: Path) -> None:
    whole, early = ranks.Agent(tmp_path / "one"), ranks.Agent(tmp_path / "two")

    codes = run(tmp_path / "whole", 1, agent=whole.path, ours=True)
    codes += run(tmp_path / "early", 1, agent=early.path, ours=True, leave_at=STEPS)

    assert codes == [0, 0]
    for agent in (whole, early):
        assert agent.of(Leaving) == [Leaving("done")]
        assert agent.of(Report)[-1].values["progress"] == 1.0


def train_with_work_at_the_end_of_an_epoch(seen: str, kill_at: int, term_at: int) -> None:
    """Ordinary code: what follows the loop over the loader uses what the loop left behind."""
    job = wt.init(checkpoint_every_s=0.0, report_every_s=10.0)
    torch.manual_seed(0)
    model: Any = nn.Linear(8, 1)
    model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.02))
    decay = job.state("decay", torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
    loader = job.loader(Line(STEPS * BATCH), BATCH)
    with Path(f"{seen}.{os.getpid()}").open("w", buffering=1) as out:
        for epoch in job.epochs(3):
            for x, y, _ in loader:
                with job.step():
                    loss = nn.functional.mse_loss(model(x), y)
                    job.backward(loss)
                if job.steps == term_at:
                    os.kill(os.getpid(), signal.SIGTERM)
            if job.steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            decay.step()
            note = {"epoch": epoch, "loss": loss.item(), "lr": optimizer.param_groups[0]["lr"]}
            out.write(json.dumps(note) + "\n")


def test_an_epoch_with_nothing_left_in_it_is_never_given_out(tmp_path: Path) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    codes: list[int | None] = []

    kills_and_stops = [(STEPS, 0), (0, 2 * STEPS), (0, 0)]
    for folder, disturbances in ((calm, [(0, 0)]), (disturbed, kills_and_stops)):
        folder.mkdir()
        for attempt, (kill_at, term_at) in enumerate(disturbances, start=1):
            script = functools.partial(
                train_with_work_at_the_end_of_an_epoch, str(folder / "seen"), kill_at, term_at
            )
            codes += ranks.finish(ranks.start(script, 1, weft_env(folder, attempt, None)))

    assert codes == [0, -9, 0, 0]
    in_order = sorted(notes(disturbed, "seen"), key=lambda note: note["epoch"])
    assert in_order == notes(calm, "seen")
