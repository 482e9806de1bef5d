"""A callback for the Hugging Face Trainer: reports, checkpoints, and stops with one when asked.

    elastic = Elastic()
    options = TrainingArguments("out", **elastic.split_batch(64, max_per_device=16))
    trainer = Trainer(model, options, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last("out"))

With the batch dealt by `split_batch` a step is of the same samples on any number of processes, so
that steps, epochs and schedules are those of an undisturbed run. Needs transformers, accelerate.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from weft.train.callback_base import CallbackLink, split_evenly

KEPT = 2
MARK = "weft.json"  # in checkpoints that were taken because of us, written when they are whole
_NAME = re.compile(r"checkpoint-(\d+)")


class Elastic(TrainerCallback):  # type: ignore[misc]
    """Speaks to the job's agent from inside `Trainer.train`.

    Checkpoints go to the Trainer's `output_dir` as its own do: the first after some seconds, then
    ever more rarely up to `checkpoint_every_s`. The last two of them are kept.
    """

    def __init__(self, report_every_s: float = 1.0, checkpoint_every_s: float = 120.0) -> None:
        self._link = CallbackLink(report_every_s, checkpoint_every_s)
        self._ours = False

    def split_batch(self, total: int, max_per_device: int | None = None) -> dict[str, int]:
        """The two arguments that make a step of `total` samples on this many processes."""
        per_device, micros = split_evenly(total, self._link.env.world_size, max_per_device)
        return {
            "per_device_train_batch_size": per_device,
            "gradient_accumulation_steps": micros,
        }

    @staticmethod
    def last(output_dir: str | Path) -> str | None:
        """The newest complete checkpoint of the Trainer, or None to start afresh."""
        kept = [(step, path) for step, path in _checkpoints(output_dir) if _is_whole(path)]
        return str(max(kept)[1]) if kept else None

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Listen for SIGTERM while training."""
        self._link.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Report; save when it is time; when asked to stop, save after this step and end."""
        epoch, steps = float(state.epoch or 0.0), float(state.max_steps or 1)
        batch = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        verdict = self._link.step(
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
        self._ours = verdict.save and not control.should_save
        control.should_save |= verdict.save
        control.should_training_stop |= verdict.stop
        return control

    def on_log(self, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
        """What the Trainer logs goes with the next report."""
        numbers = {k: float(v) for k, v in (logs or {}).items() if isinstance(v, (int, float))}
        self._link.add_metrics(numbers)

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Tell where the checkpoint is; older ones that were taken because of us go."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if self._ours and args.should_save:
            (path / MARK).write_text(json.dumps({"step": state.global_step}))
            _prune(args.output_dir)
        self._ours = False
        self._link.note_saved(state.global_step, int(state.epoch or 0), str(path))

    def on_train_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """After a stop, leave with exit code 0."""
        self._link.__exit__(None, None, None)
        if self._link.stopped and state.global_step < state.max_steps:
            self._link.leave()
        self._link.finish()


def _checkpoints(output_dir: str | Path) -> list[tuple[int, Path]]:
    """Folders of checkpoints by step, whole or not."""
    folder = Path(output_dir)
    return [
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.fullmatch(path.name))
    ]


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint was written to its end: the Trainer writes its own state last."""
    try:
        json.loads((path / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return True


def _prune(output_dir: str | Path) -> None:
    marked = sorted(one for one in _checkpoints(output_dir) if (one[1] / MARK).is_file())
    for _, path in marked[:-KEPT]:
        shutil.rmtree(path)
