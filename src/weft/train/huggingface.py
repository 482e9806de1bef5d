"""A callback for the Hugging Face Trainer: reports, and stops with a checkpoint when asked.

    elastic = Elastic()
    trainer = Trainer(..., callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last(trainer.args.output_dir))

The Trainer keeps its own data order and checkpoints; it resumes with another number of processes as
it always does, so that samples of a broken epoch may be seen again. Needs transformers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from weft.train.callback_base import Outside

_NAME = re.compile(r"checkpoint-(\d+)")


class Elastic(TrainerCallback):  # type: ignore[misc]
    """Speaks to the job's agent from inside `Trainer.train`."""

    def __init__(self, report_every_s: float = 1.0) -> None:
        self._outside = Outside(report_every_s)

    @staticmethod
    def last(output_dir: str | Path) -> str | None:
        """The newest complete checkpoint of the Trainer, or None to start afresh."""
        folder = Path(output_dir)
        kept = [
            (int(match[1]), path)
            for path in (folder.iterdir() if folder.is_dir() else ())
            # The Trainer writes its state last, so without it the checkpoint is not whole.
            if (match := _NAME.fullmatch(path.name)) and (path / "trainer_state.json").is_file()
        ]
        return str(max(kept)[1]) if kept else None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Listen for SIGTERM while training."""
        self._outside.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Report; when asked to stop, save after this step and end."""
        epoch, steps = float(state.epoch or 0.0), float(state.max_steps or 1)
        batch = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        stop = self._outside.step(
            {
                "steps": float(state.global_step),
                "epoch": float(int(epoch)),
                "progress": min(state.global_step / steps, 1.0),
                "batch": float(batch),
                "per_gpu": float(args.train_batch_size),
                "accumulate": float(args.gradient_accumulation_steps),
                "samples": float(state.global_step * batch),
            }
        )
        if stop:
            control.should_save = control.should_training_stop = True
        return control

    def on_log(self, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
        """What the Trainer logs goes with the next report."""
        numbers = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, (int, float))}
        self._outside.metrics(numbers)

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Tell where the checkpoint is."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._outside.saved(state.global_step, int(state.epoch or 0), str(path))

    def on_train_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """After a stop, leave with exit code 0."""
        self._outside.__exit__(None, None, None)
        if self._outside.stopped and state.global_step < state.max_steps:
            self._outside.leave()
