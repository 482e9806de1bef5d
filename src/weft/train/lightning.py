"""A callback for PyTorch Lightning: reports, and stops with a checkpoint when asked.

    elastic = Elastic(folder)
    trainer = Trainer(..., callbacks=[elastic])
    trainer.fit(model, loader, ckpt_path=elastic.last())

Lightning keeps its own data order. Needs pytorch-lightning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning import Callback

from weft.train.callback_base import Outside

NAME = "weft.ckpt"


class Elastic(Callback):  # type: ignore[misc]
    """Speaks to the job's agent from inside `Trainer.fit`.

    Checkpoints go to `folder`, or to where the scheduler says.
    """

    def __init__(self, folder: str | Path | None = None, report_every_s: float = 1.0) -> None:
        super().__init__()
        self._outside = Outside(report_every_s)
        place = self._outside.env.checkpoints or folder
        self._path = Path(place) / NAME if place else None

    def last(self) -> str | None:
        """The checkpoint of the last stop, or None to start afresh."""
        return str(self._path) if self._path is not None and self._path.is_file() else None

    def on_train_start(self, *_: Any) -> None:
        """Listen for SIGTERM while training."""
        self._outside.__enter__()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Report; when asked to stop, save after this batch and end."""
        whole = trainer.estimated_stepping_batches
        progress = trainer.global_step / whole if whole and whole != float("inf") else 0.0
        stop = self._outside.step(
            {
                "steps": float(trainer.global_step),
                "epoch": float(trainer.current_epoch),
                "progress": min(float(progress), 1.0),
            }
        )
        self._outside.metrics({k: float(v) for k, v in trainer.callback_metrics.items()})
        if stop and not trainer.should_stop:
            trainer.should_stop = True
            self._save(trainer)

    def on_train_end(self, *_: Any) -> None:
        """After a stop, leave with exit code 0."""
        self._outside.__exit__(None, None, None)
        if self._outside.stopped:
            self._outside.leave()

    def _save(self, trainer: Any) -> None:
        if self._path is None:
            return
        passing = self._path.with_name(f".{NAME}")
        trainer.save_checkpoint(passing)
        if trainer.is_global_zero:
            passing.replace(self._path)
            self._outside.saved(trainer.global_step, trainer.current_epoch, str(self._path))
