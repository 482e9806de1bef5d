"""A callback and a loader for PyTorch Lightning: reports, checkpoints, stops with one when asked.

    elastic = Elastic("checkpoints")
    loader = elastic.loader(dataset, batch_size=64)
    trainer = Trainer(**elastic.trainer_arguments(), callbacks=[elastic])
    trainer.fit(model, loader, ckpt_path=elastic.last())

With `elastic.loader` a step is of the same samples on any number of processes and an epoch goes
on where it was left. Any other loader does what Lightning makes of it: an epoch that was broken
off begins again. Needs lightning, or pytorch-lightning.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from weft_train.base import fence
from weft_train.callback_base import CallbackLink, StepVerdict, split_evenly
from weft_train.checkpoints.files import folder_only
from weft_train.data.sample_order import SampleOrder
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

    def trainer_arguments(self) -> dict[str, Any]:
        """Devices, nodes and strategy of this job, for Lightning's Trainer."""
        env = self._link.env
        return {
            "devices": env.local_world_size,
            "num_nodes": env.nodes,
            "strategy": "ddp" if env.world_size > 1 else "auto",
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
        if self._path is None or not self._path.is_file():
            return None
        log_resume(self._link.env.rank, self._path)
        return str(self._path)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        """Listen for SIGTERM while training."""
        self._steps = trainer.global_step
        self._link.__enter__()

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
            self._link.leave()
        self._link.finish()

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
