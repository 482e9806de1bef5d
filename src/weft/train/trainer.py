"""The job as a training script sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch
from torch.nn.parallel import DistributedDataParallel

from weft.train import elastic, rng_state
from weft.train.checkpoint import Checkpoints, load
from weft.train.control import Control
from weft.train.data import Loader
from weft.train.errors import TrainError
from weft.train.gang import Gang
from weft.train.gang_tokens import Gate
from weft.train.gradients import Gradients
from weft.train.reports import Reports, memory_gb
from weft.train.sampling import Batch, Cell
from weft.train.stats import GradientNoise
from weft.train.step import Step, Trained
from weft.train.stopping import StopRequest, at_the_end
from weft.train.timing import Stopwatch, clock_for
from weft.wire.environment import Environment
from weft.wire.errors import Fenced

FENCED_EXIT = 3

O = TypeVar("O", bound=torch.optim.Optimizer)  # noqa: E741 - returned as it was given


class Stateful(Protocol):
    """Anything that can be saved with the job."""

    def state_dict(self) -> Any:
        """What to save."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Go on from it."""
        ...


class Job:
    """One rank of a training job. Made by `init`."""

    def __init__(
        self,
        env: Environment,
        gang: Gang,
        checkpoints: Checkpoints | None,
        reports: Reports,
        *,
        checkpoint_every_s: float,
        seed: int,
    ) -> None:
        self._env, self._gang, self._reports, self._seed = env, gang, reports, seed
        self._checkpoints = checkpoints
        self._clock = clock_for(gang.device)
        self._watch = Stopwatch(self._clock)
        self._gate = Gate(env, gang, self._watch)
        self._step = Step(gang, self._clock, self._watch, self._gate, self._step_done)
        self._states: dict[str, Stateful] = {}
        self._trained: Trained | None = None
        self._loader: Loader | None = None
        self._noise = GradientNoise(1.0)
        self._rule = elastic.rule("none")
        self._stage = ""
        self._smallest: int | None = None
        self._stop = StopRequest()
        self._left = False
        self.epoch = 0
        self.position = 0
        self.steps = 0
        self.samples = 0
        self.worth = 0.0
        self._epochs = 0
        self._control = Control(gang, reports, self._stop, checkpoint_every_s, self._gate)
        self._restored = self._find()
        at_the_end(self._ended)

    @property
    def rank(self) -> int:
        """Number of this process among the job's, from 0."""
        return self._gang.rank

    @property
    def size(self) -> int:
        """How many processes train together."""
        return self._gang.size

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self._gang.device

    @property
    def batch(self) -> Batch:
        """How the next step is dealt; `batch.total` is its samples over all ranks."""
        return self._control.batch

    @property
    def lr_factor(self) -> float:
        """What the learning rate is multiplied by at the present batch size."""
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
        **ddp: Any,
    ) -> tuple[Any, O]:
        """Move the model to its device, restore both, and average gradients over the ranks.

        `scaling` is adascale, sqrt, linear or none. `clip` bounds the gradient's norm. Further
        arguments go to DistributedDataParallel. The optimizer is stepped by `job.step`.
        """
        if self._trained is not None:
            raise TrainError("job.wrap was called twice", hint="put several models into one")
        self._rule = elastic.rule(scaling)
        model.to(self.device)
        if self._restored:
            model.load_state_dict(self._restored["model"])
            optimizer.load_state_dict(self._restored["optimizer"])
        gradients = Gradients(model.parameters(), self.size, self._clock)
        seen: Any = model
        if self.size > 1:
            ids = [self.device.index] if self.device.type == "cuda" else None
            options = {"gradient_as_bucket_view": True, **ddp}
            seen = DistributedDataParallel(model, device_ids=ids, **options)
        optimizer.register_step_pre_hook(self._only_ours)
        self._trained = Trained(seen, model, optimizer, gradients, self._rule, clip)
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
        bounds = elastic.Bounds.of(batch_size, max_batch_size, max_per_gpu)
        self._stage, self._smallest = stage, min_per_gpu
        self._loader = Loader(
            self,
            self._gang,
            dataset,
            shuffle=shuffle,
            seed=self._seed,
            num_workers=num_workers,
            collate_fn=collate_fn,
        )
        self._noise = GradientNoise(float(batch_size))
        kind = self._env.kind or self.device.type
        tuner = elastic.Tuner(bounds, kind, self._env.nodes, self.size)
        if self._restored:
            self._noise.load_state_dict(self._restored["noise"])
            tuner.load_state_dict(self._restored["profiles"])
        self._control.tune(tuner, self._noise, self._restored.get("batch", 0))
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

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`."""
        if self._trained is None or self._loader is None:
            raise TrainError(
                "job.epochs needs a model and a loader",
                hint="call job.wrap(model, optimizer) and job.loader(dataset, ...) before",
            )
        self._epochs = count
        if self._restored:
            rng_state.restore(self._restored["chance"], self.rank, self.size, self.device)
            self._restored = {}
        self._loader.smallest = self._smallest or (2 if _has_batch_norm(self._trained) else 1)
        self._step.train(self._trained, self._noise)
        self._control.begin()
        with self._stop:
            while self.epoch < count:
                yield self.epoch
                self.epoch += 1
                self.position = 0
        self._control.drain()
        if self._control.unsaved:
            self._save()
        if self.rank == 0:
            self._reports.report(self._values)

    def step(self) -> AbstractContextManager[None]:
        """Around forward, `job.backward` and nothing else; steps the optimizer at its end."""
        return self._step

    def backward(self, loss: torch.Tensor) -> None:
        """Backpropagate the mean loss over the batch."""
        self._step.backward(loss)

    def report(self, **metrics: float) -> None:
        """Numbers of the script's own, for the people who watch."""
        self._reports.add(metrics)
        if self.rank == 0 and self._loader is not None:
            self._reports.report(self._values)

    def loading(self) -> None:
        """A batch is about to be fetched by this process."""
        self._gate.enter(self._stage)

    def loaded(self, cell: Cell, seconds: float) -> None:
        """A batch is there."""
        self._watch.add("data_s", seconds)
        self._gate.leave(self._stage, used_s=seconds)
        self._step.cell = cell

    def idle(self, cell: Cell) -> None:
        """Take part in a step without samples: the peers need it for the sum."""
        self._step.cell = cell
        self._step.without_samples()

    def _only_ours(self, *_: Any) -> None:
        if not self._step.stepping:
            raise TrainError(
                "optimizer.step() was called by the script",
                hint="job.step() steps and clears the optimizer itself; remove the calls",
            )

    def _step_done(self, cell: Cell) -> None:
        """After the optimizer's step: count, agree with the others, act on it."""
        self.position = cell.after
        self.samples += cell.total
        self.steps += 1
        self.worth += self._noise.gain(float(cell.total))
        assert self._trained is not None
        order = self._control.exchange(self._trained.gradients, self._watch)
        if self.rank == 0 and self._reports.due():
            self._reports.report(self._values)
        if order.stop:
            self._leave()
        if order.save:
            self._save()

    def _values(self) -> dict[str, float]:
        watch, batch = self._watch, self.batch
        values = {name: watch.median(name) for name in ("step_s", "grad_s", "token_s")}
        micros = batch.accumulate
        whole = self._loader.length if self._loader is not None else 1
        done = self.epoch + self.position / whole
        values |= {
            "sync_s": self._step.sync_s(),
            "data_s": watch.median("data_s") * micros,
            "batch": float(batch.total),
            "per_gpu": float(batch.per_gpu),
            "accumulate": float(batch.accumulate),
            "nodes": float(self._env.nodes),
            "lr_factor": self.lr_factor,
            "gain": self._noise.gain(float(batch.total)),
            "samples": float(self.samples),
            "steps": float(self.steps),
            "epoch": float(min(self.epoch, self._epochs - 1)),
            "progress": min(done / self._epochs, 1.0) if self._epochs else 0.0,
            "mem_gb": memory_gb(self.device),
        }
        if self._noise.known:
            noise = self._noise
            values |= {"noise": noise.scale, "grad_var": noise.var, "grad_sqr": noise.sqr}
        if self._step.loss is not None:
            values["loss"] = float(self._step.loss)
        return values

    def _find(self) -> dict[str, Any]:
        """The newest whole checkpoint's state; rank 0 chooses it for all."""
        path, told = None, list[str]()
        if self._checkpoints is not None and self.rank == 0:
            path, told = self._checkpoints.newest()
        for text in told:
            self._reports.notice("warning", text)
        path = self._gang.from_first(path)
        if path is None:
            return {}
        state = load(path)
        counts = state["counts"]
        self.epoch, self.position = counts["epoch"], counts["position"]
        self.steps, self.samples = counts["steps"], counts["samples"]
        self.worth = counts["worth"]
        return state

    def _save(self) -> bool:
        """Checkpoint, at the same step on every rank; whether it is on disk (rank 0)."""
        states = self._gang.gather(rng_state.capture(self.device))
        self._control.saved()
        if self._checkpoints is None or self.rank != 0:
            return False
        began = time.monotonic()
        try:
            path = self._checkpoints.save(self._whole(states), self.steps, self.epoch)
        except Fenced as error:
            self._left = True
            self._reports.notice(
                "error", f"another attempt of the job owns its checkpoints: {error}"
            )
            self._reports.leave("error", str(error))
            raise SystemExit(FENCED_EXIT) from error
        except OSError as error:
            lost = "; the one before it stays, training goes on"
            self._reports.notice("warning", f"could not write a checkpoint: {error}{lost}")
            return False
        self._control.save_took(time.monotonic() - began)
        self._reports.saved(self.steps, self.epoch, str(path))
        return True

    def _whole(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        assert self._trained is not None
        return {
            "model": self._trained.bare.state_dict(),
            "optimizer": self._trained.optimizer.state_dict(),
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
            "chance": states,
        }

    def _leave(self) -> None:
        """Everybody stops here, at the same step, with one checkpoint."""
        self._control.drain()
        written = self._save()
        self._gang.wait()
        if self.rank == 0:
            self._reports.report(self._values)
        self._left = True
        kept = written or self.rank != 0
        self._reports.leave("stopped", "" if kept else "without a checkpoint of the last steps")
        self._gate.close()
        self._gang.leave()
        raise SystemExit(0)

    def _ended(self, error: BaseException | None) -> None:
        if self._left:
            return
        self._left = True
        self._gate.close()
        self._clock.close()
        if error is None:
            self._reports.leave("done")
            self._gang.leave()
        else:
            self._reports.leave("error", f"{type(error).__name__}: {error}"[:500])


def _has_batch_norm(trained: Trained) -> bool:
    return any(
        isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        for module in trained.bare.modules()
    )
