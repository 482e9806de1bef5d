"""A callback and a loader for PyTorch Lightning: reports, checkpoints, stops with one when asked.

    elastic = Elastic("checkpoints")
    loader = elastic.loader(dataset, batch_size=64)
    trainer = Trainer(**elastic.trainer_arguments(), callbacks=[elastic])
    trainer.fit(model, loader, ckpt_path=elastic.last())

With `elastic.loader` a step is of the same samples on any number of processes and an epoch goes
on where it was left. Any other loader does what Lightning makes of it: an epoch that was broken
off begins again. Needs lightning, or pytorch-lightning.

With `elastic.loader` ranks may also come and go as Lightning trains (`ranks.callback_ranks`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.utilities import rank_zero_only
except ImportError:
    from pytorch_lightning import Callback
    from pytorch_lightning.plugins.environments import LightningEnvironment
    from pytorch_lightning.utilities import rank_zero_only

from weft_train.base import fence
from weft_train.callback_base import UNTRIED, CallbackLink, StepVerdict, split_evenly
from weft_train.checkpoints.files import folder_only
from weft_train.data.sample_order import SampleOrder
from weft_train.ranks.gang import RankGang
from weft_train.reports import log_resume

NAME = "weft.ckpt"


class Elastic(Callback):  # type: ignore[misc]
    """Speaks to the job's agent from inside `Trainer.fit`.

    Checkpoints go to `folder`, or to where the scheduler says: the first after some seconds, then
    ever more rarely up to `checkpoint_every_s`.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        report_every_s: float = 1.0,
        checkpoint_every_s: float = 120.0,
    ) -> None:
        super().__init__()
        self._link = CallbackLink(report_every_s, checkpoint_every_s)
        place = self._link.env.checkpoints or folder
        self._path = folder_only(place) / NAME if place else None
        self._steps = 0
        self._verdict = StepVerdict()
        self._order: SampleOrder | None = None
        self._trainer: Any = None

    def trainer_arguments(self) -> dict[str, Any]:
        """Devices, nodes and strategy of this job, for Lightning's Trainer."""
        env, ranks = self._link.env, self._link.changing
        return {
            "devices": env.local_world_size,
            "num_nodes": env.nodes,
            "strategy": "ddp" if env.world_size > 1 or ranks is not None else "auto",
            "plugins": None if ranks is None else _Places(ranks.gang),
            "use_distributed_sampler": False,  # the loader deals samples to the processes
        }

    def loader(
        self,
        dataset: Any,
        batch_size: int,
        *,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> SampleOrder:
        """Batches of a step of `batch_size` samples over all processes.

        `accumulate` is the Trainer's `accumulate_grad_batches`; it must stay the same in all
        attempts, as Lightning counts batches.
        """
        env = self._link.env
        split_evenly(batch_size, env.world_size * accumulate, None)
        self._order = SampleOrder(
            dataset,
            batch_size // accumulate,
            rank=env.rank,
            ranks=env.world_size,
            shuffle=shuffle,
            seed=seed,
            num_workers=num_workers,
            collate_fn=collate_fn,
            accumulate=accumulate,
        )
        return self._order

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position: Lightning skips its state after a stop between epochs."""
        return {} if self._order is None else {"order": self._order.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._order is not None and "order" in state:
            self._order.load_state_dict(state["order"])

    def last(self) -> str | None:
        """The last checkpoint, or None to start afresh. The log says from what it resumes."""
        if self._path is None or self._link.env.join or not self._path.is_file():
            return None  # the state of a rank that joins comes from those who train
        log_resume(self._link.env.rank, self._path)
        return str(self._path)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Listen for SIGTERM while training."""
        self._trainer, self._steps = trainer, trainer.global_step
        self._link.__enter__()
        if (ranks := self._link.changing) is None:
            return
        if why := self._cannot_change():
            ranks.refuse_live_change(why)
        elif self._order is not None:
            ranks.begin(trainer.strategy.model, trainer.optimizers, self._order, self)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Report; save when it is time; when asked to stop, save after this step and end."""
        if trainer.global_step == self._steps or trainer.should_stop:
            return  # in the middle of a step: gradients are accumulated
        self._steps = trainer.global_step
        whole = trainer.estimated_stepping_batches
        progress = trainer.global_step / whole if whole and whole != float("inf") else 0.0
        self._link.add_metrics({k: float(v) for k, v in trainer.callback_metrics.items()})
        verdict = self._link.step(
            {
                "steps": float(trainer.global_step),
                "epoch": float(trainer.current_epoch),
                "progress": min(float(progress), 1.0),
            }
        )
        if trainer.is_last_batch:
            self._verdict = verdict  # saved here, Lightning would run the epoch once more
        else:
            self._act(trainer, verdict)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """Do what was decided at the last batch."""
        verdict, self._verdict = self._verdict, StepVerdict()
        self._act(trainer, verdict)

    def on_train_end(self, *_: Any) -> None:
        """After a stop, leave with exit code 0."""
        self._link.__exit__(None, None, None)
        if self._link.stopped:
            self._link.exit_after_stop()
        self._link.finish()

    def collect_loop(self) -> dict[str, Any]:
        """Return what Lightning knows of its training."""
        trainer = self._trainer
        return {
            "loop": trainer.fit_loop.state_dict(),
            "fetched": trainer.fit_loop._data_fetcher.fetched,
            "schedules": [each.scheduler.state_dict() for each in trainer.lr_scheduler_configs],
            "precision": trainer.precision_plugin.state_dict(),
            "callbacks": {each.state_key: each.state_dict() for each in self._others()},
        }

    def take_loop(self, state: dict[str, Any]) -> None:
        loop = self._trainer.fit_loop
        loop.load_state_dict(state["loop"])
        loop.restarting = False  # it is at this line, as the others are
        loop._data_fetcher.fetched = state["fetched"]
        for each, saved in zip(self._trainer.lr_scheduler_configs, state["schedules"], strict=True):
            each.scheduler.load_state_dict(saved)
        self._trainer.precision_plugin.load_state_dict(state["precision"])
        for each in self._others():
            each.load_state_dict(state["callbacks"][each.state_key])
        self._steps = self._trainer.global_step

    def change_place(self, rank: int, ranks: int) -> None:  # noqa: ARG002 - it asks for the number
        """Tell Lightning which rank this is."""
        rank_zero_only.rank = rank

    def _others(self) -> list[Any]:
        return [each for each in self._trainer.callbacks if each is not self]

    def _cannot_change(self) -> str:
        """Say why ranks cannot come and go in this training; empty if they can."""
        trainer, order = self._trainer, self._order
        if trainer.strategy.root_device.type != "cpu":
            return UNTRIED
        if not isinstance(trainer.strategy.model, DistributedDataParallel):
            return "the model is not replicated by DistributedDataParallel"
        if order is None or trainer.train_dataloader is not order:
            return "samples are not dealt by `Elastic.loader`"
        if len(order) % trainer.accumulate_grad_batches or order.accumulate != (
            trainer.accumulate_grad_batches
        ):
            return "an epoch has no whole number of steps, or `accumulate` is another one"
        return ""

    def _act(self, trainer: Any, verdict: StepVerdict) -> None:
        if verdict.save:
            self._save(trainer)
        if verdict.stop:
            trainer.should_stop = True

    def _save(self, trainer: Any) -> None:
        if self._path is None:
            return
        partial = self._path.with_name(f".{NAME}")
        trainer.save_checkpoint(partial)
        if trainer.is_global_zero:
            with fence.held(self._path.parent, self._link.env.attempt):
                partial.replace(self._path)
        self._link.note_saved(trainer.global_step, trainer.current_epoch, str(self._path))


class _Places(LightningEnvironment):  # type: ignore[misc]
    """The places of ranks that come and go."""

    def __init__(self, gang: RankGang) -> None:
        super().__init__()
        self._gang = gang

    def global_rank(self) -> int:
        return self._gang.rank

    def world_size(self) -> int:
        return self._gang.size

    def set_global_rank(self, rank: int) -> None:
        """Leave it to the ranks."""

    def set_world_size(self, size: int) -> None:
        """Leave it to the ranks."""
