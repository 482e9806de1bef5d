"""The job as a training script sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler

from weft_train import reports
from weft_train.base.environment import Environment
from weft_train.base.errors import Fenced
from weft_train.batch.gradients import Gradients
from weft_train.batch.noise import GradientNoise
from weft_train.batch.schedule import SampleSchedule, advance_all
from weft_train.batch.tuner import BatchTuner, Bounds, find_rule
from weft_train.checkpoints import rng_state
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.checkpoints.saver import (
    FENCED_EXIT,
    CheckpointSaver,
    Stateful,
    restore_groups,
    take_trained,
)
from weft_train.control import NOTHING, Control
from weft_train.data.loader import Loader
from weft_train.data.sampling import Cell, StepBatch
from weft_train.errors import TrainError
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize
from weft_train.ranks.rank_changes import RankChanges
from weft_train.reports import Reports, measure_memory_gb
from weft_train.step import Trained, TrainingStep
from weft_train.stopping import StopRequest, call_at_exit
from weft_train.turns.gate import Gate
from weft_train.turns.stopwatch import Stopwatch, make_clock

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741 - returned as it was given


class TrainingJob:
    """One rank of a training job. Made by `init`."""

    def __init__(
        self,
        env: Environment,
        gang: RankGang,
        saver: CheckpointSaver,
        reports: Reports,
        *,
        checkpoint_every_s: float,
        seed: int,
    ) -> None:
        self._env, self._gang, self._reports, self._seed = env, gang, reports, seed
        self._saver = saver
        self._clock = make_clock(gang.device)
        self._watch = Stopwatch(self._clock)
        self._gate = gate = Gate(env, gang, self._watch)
        self.stage = gate.hold  # a token around a part of the script
        self._step = TrainingStep(gang, self._clock, self._watch, gate, self._note_step)
        self._order, self._noise = NOTHING, GradientNoise(1.0)
        self._states: dict[str, Stateful] = {}
        self._schedules: list[SampleSchedule] = []
        self._trained: Trained | None = None
        self._loader: Loader | None = None
        self._rule, self._stage = find_rule("none"), ""
        self._smallest: int | None = None
        self._stop = StopRequest()
        self._ended = 0.0
        self.epoch = self.position = self.steps = self.samples = self._epochs = 0
        self.worth, self._live = 0.0, LiveResize(env, gang, reports)
        self._control = Control(
            gang, reports, self._stop, SaveTimes(checkpoint_every_s), self._gate, self._live
        )
        self._changes = RankChanges(gang, self._live, self._control, self._step, self._watch)
        self._restored = self._saver.find()
        if self._restored:
            self._take_counts(self._restored["counts"])
        call_at_exit(self._say_end)

    @property
    def rank(self) -> int:
        """Number of this process among the job's, from 0."""
        return self._gang.rank

    @property
    def size(self) -> int:
        """The number of processes that train together."""
        return self._gang.size

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self._gang.device

    @property
    def batch(self) -> StepBatch:
        """The division of the next step; `batch.total` is its samples over all ranks."""
        return self._control.batch

    @property
    def lr_factor(self) -> float:
        """The factor of the learning rate at the present batch size."""
        return self._rule(self._noise, float(self.batch.total))

    @property
    def noise(self) -> GradientNoise:
        """The gradient statistics so far."""
        return self._noise

    def wrap(
        self,
        model: torch.nn.Module,
        optimizer: O,
        *,
        scaling: str = "adascale",
        clip: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        **ddp: Any,
    ) -> tuple[Any, O]:
        """Move the model to its device, restore both, and average gradients over the ranks.

        `scaling` is adascale, sqrt, linear or none. `clip` bounds the gradient's norm. `scaler`
        scales losses in 16-bit training; it is restored too. Further arguments go to
        DistributedDataParallel. The optimizer is stepped by `job.step`.
        """
        if self._trained is not None:
            raise TrainError("job.wrap was called twice", hint="put several models into one")
        self._rule = find_rule(scaling)
        model.to(self.device)
        if self._restored:
            model.load_state_dict(self._restored["model"])
            optimizer.load_state_dict(self._restored["optimizer"])
            if scaler is not None and self._restored.get("scaler"):
                scaler.load_state_dict(self._restored["scaler"])
        gradients = Gradients(model.parameters(), self.size, self._clock)
        seen: Any = model
        if wrapped := self.size > 1 or self._live.wraps:
            ids = [self.device.index] if self.device.type == "cuda" else None
            options = {"gradient_as_bucket_view": True, **ddp}
            group = self._live.first_group()
            seen = DistributedDataParallel(model, device_ids=ids, process_group=group, **options)
        optimizer.register_step_pre_hook(self._step.refuse_others)
        self._trained = Trained(
            seen, model, optimizer, gradients, self._rule, clip, scaler, wrapped
        )
        return seen, optimizer

    def loader(
        self,
        dataset: Any,
        batch_size: int,
        max_batch_size: int | None = None,
        *,
        max_per_gpu: int | None = None,
        min_per_gpu: int | None = None,
        shuffle: bool = True,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        stage: str = "io",
    ) -> Loader:
        """Batches of `dataset`, each sample once an epoch over all ranks.

        `batch_size` is the samples of a step over all ranks. With `max_batch_size` the job may
        train on larger ones where that makes it faster; `max_per_gpu` is what fits on one GPU
        (without it, `batch_size`), beyond it gradients are accumulated. `min_per_gpu` is the
        fewest samples a model can be trained on, 2 where it has batch norms. `stage` names the
        token that fetching needs where stages are interleaved.
        """
        if self._loader is not None:
            raise TrainError(
                "job.loader was called twice",
                hint="use a plain DataLoader for validation; the elastic one is for training",
            )
        bounds = Bounds.of(batch_size, max_batch_size, max_per_gpu)
        self._stage, self._smallest = stage, min_per_gpu
        self._loader = Loader(
            self,
            self._gang,
            dataset,
            batch_size,
            shuffle=shuffle,
            seed=self._seed,
            num_workers=num_workers,
            collate_fn=collate_fn,
        )
        self._noise = GradientNoise(float(batch_size))
        kind = self._env.kind or self.device.type
        tuner = BatchTuner(bounds, kind, self._env.nodes, self.size)
        if self._restored:
            self._noise.load_state_dict(self._restored["noise"])
            tuner.load_state_dict(self._restored["profiles"])
        self._control.begin_tuning(tuner, self._noise, self._restored.get("batch", 0))
        return self._loader

    def state(self, name: str, held: Stateful) -> Any:
        """Save and restore `held` with the job: a learning-rate schedule, an average of weights.

        It is restored at once if there is a checkpoint that has it, and returned.
        """
        if name in self._states:
            raise TrainError(f"two states are called {name!r}")
        self._states[name] = held
        kept = self._restored.get("states", {})
        if name in kept:
            held.load_state_dict(kept[name])
        return held

    def schedule(self, scheduler: LRScheduler, name: str = "schedule") -> SampleSchedule:
        """Let the job step a learning-rate schedule that counts steps, and save it with the job.

        It advances once for every `batch_size` samples trained on, whatever the present batch
        size, and `len(loader)` of them make an epoch. Do not call its `step`. A schedule that
        counts epochs, or looks at a metric, is stepped by the script: see `state`.
        """
        schedule: SampleSchedule = self.state(name, SampleSchedule(scheduler))
        self._schedules.append(schedule)
        return schedule

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`."""
        if self._trained is None or self._loader is None:
            raise TrainError(
                "job.epochs needs a model and a loader",
                hint="call job.wrap(model, optimizer) and job.loader(dataset, ...) before",
            )
        self._epochs = count
        if self._restored:
            rng_state.restore(self._restored["rng"], self.rank, self.size, self.device)
            restore_groups(self._trained.optimizer, self._restored["optimizer"])
            self._restored = {}
        if self.position >= self._loader.length:  # a checkpoint taken between two epochs
            self.epoch, self.position = self.epoch + 1, 0
        self._loader.smallest = self._smallest or (2 if self._trained.has_batch_norm else 1)
        self._step.train(self._trained, self._noise)
        self._changes.prepare(self, self._trained, self.steps)
        self._control.begin()
        with self._stop:
            while self.epoch < count:
                yield self.epoch
                self.epoch += 1
                self.position = 0
                if self.epoch == count:
                    self._order = self._order._replace(stop=False)  # nothing is left to stop
                self.finish_step()  # of the epoch's last step, or of a loop that was left early
        self._control.drain()
        if self._control.unsaved:
            self._save()
        if self.rank == 0:
            self._reports.report(partial(self._describe, done=True))

    def step(self) -> AbstractContextManager[None]:
        """Around forward, `job.backward` and nothing else; steps the optimizer at its end."""
        return self._step

    def backward(self, loss: torch.Tensor) -> None:
        """Backpropagate the mean loss over the batch."""
        self._step.backward(loss)

    def report(self, **metrics: float) -> None:
        """Report numbers of the script's own, for the people who watch."""
        self._reports.add(metrics, self.steps)
        if self.rank == 0 and self._loader is not None:
            self._reports.report(self._describe)

    def before_fetch(self) -> None:
        self._gate.enter(self._stage)

    def after_fetch(self, cell: Cell, seconds: float) -> None:
        self._watch.add("data_s", seconds)
        self._gate.leave(self._stage, used_s=seconds)
        self._step.cell = cell

    def skip_step(self, cell: Cell) -> None:
        """Take part in a step without samples: the peers need it for the sum."""
        self._step.cell = cell
        self._step.skip()

    def finish_step(self) -> None:
        """The script's loop body for a step is over: save or leave here if that was agreed.

        Not before, or what the body does after `job.step()` would be missing in the checkpoint.
        """
        order, self._order = self._order, NOTHING
        if order.stop:
            self._leave()
        if order.save:
            self._save()
        if (order.switch or order.drop) and self._trained is not None:
            args = (order, self, self._trained, self._ended, self.steps)
            if not self._changes.carry_out(*args):
                self._reports.send_last_word("resized")
                raise SystemExit(0)

    def _note_step(self, cell: Cell) -> None:
        """After the optimizer's step: count, and agree with the others on what comes next."""
        self._ended = time.monotonic()
        self.position = cell.after
        self.samples += cell.total
        self.steps += 1
        self.worth += self._noise.gain(float(cell.total))
        advance_all(self._schedules, self.epoch, self.position, self._loader)
        assert self._trained is not None
        self._order = self._control.exchange(self._trained.gradients, self._watch)
        if self.rank == 0 and self._reports.is_due():
            self._reports.report(self._describe)

    def _describe(self, *, done: bool = False) -> dict[str, float]:
        place = (self.epoch, self.position, self._epochs)
        report = {
            **reports.describe_steps(self._watch, self._step, self.batch, self._noise),
            **reports.count_progress(*place, self._loader, done=done),
            "nodes": float(self._gang.nodes),
            "lr_factor": self.lr_factor,
            "samples": float(self.samples),
            "steps": float(self.steps),
            "mem_gb": measure_memory_gb(self.device),
        }
        if self._step.loss is not None:
            report["loss"] = float(self._step.loss)
        return report

    def _take_counts(self, counts: dict[str, Any]) -> None:
        self.epoch, self.position = counts["epoch"], counts["position"]
        self.steps, self.samples = counts["steps"], counts["samples"]
        self.worth = counts["worth"]

    def _save(self) -> bool:
        """Checkpoint, at the same step on every rank; whether it is on disk (rank 0)."""
        self._gang.wait_for_sums()
        try:
            took_s = self._saver.save(self.collect_state, self.steps, self.epoch)
        except Fenced as error:
            self._reports.send_last_word("error", str(error))
            raise SystemExit(FENCED_EXIT) from error
        self._control.note_saved(took_s or 0.0)
        return took_s is not None

    def collect_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint or a rank that joins, without random numbers."""
        assert self._trained is not None
        scaler = self._trained.scaler
        return {
            "model": self._trained.bare.state_dict(),
            "optimizer": self._trained.optimizer.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "counts": {
                "epoch": self.epoch,
                "position": self.position,
                "steps": self.steps,
                "samples": self.samples,
                "worth": self.worth,
            },
            "noise": self._noise.state_dict(),
            "profiles": self._control.tuner.state_dict(),
            "batch": self.batch.total,
            "states": {name: held.state_dict() for name, held in self._states.items()},
        }

    def take_state(self, state: dict[str, Any]) -> None:
        """Go on as the rank that collected this; most of it is in its place already."""
        assert self._trained is not None
        take_trained(self._trained, state)
        self._take_counts(state["counts"])
        self._noise.load_state_dict(state["noise"])
        self._control.add_measurements(state["profiles"], state["batch"])
        for name, held in self._states.items():
            held.load_state_dict(state["states"][name])

    def _leave(self) -> None:
        """All ranks stop here, at the same step, with one checkpoint."""
        self._control.drain()
        written = self._save()
        self._gang.wait()
        if self.rank == 0:
            self._reports.report(self._describe)
        lost = "" if written or self.rank else "without a checkpoint of the last steps"
        self._reports.send_last_word("stopped", lost)
        self._gate.close()
        self._gang.release_groups()
        raise SystemExit(0)

    def _say_end(self, error: BaseException | None) -> None:
        if self._reports.left:
            return
        self._gate.close()
        self._clock.close()
        if error is None and self.rank == 0 and self.epoch < self._epochs:  # stopped by itself
            self._reports.report(partial(self._describe, done=True))
        self._reports.leave_after(error)
        if error is None:
            self._gang.release_groups()
