"""A callback for the Hugging Face Trainer: reports, checkpoints, and stops with one when asked.

    elastic = Elastic()
    options = TrainingArguments("out", **elastic.split_batch(64, max_per_device=16))
    trainer = Trainer(model, options, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last("out"))

With the batch dealt by `split_batch` a step is of the same samples on any number of processes, so
that steps, epochs and schedules are those of an undisturbed run. Needs transformers, accelerate.

Under Weft the checkpoints of a training are in the job's own folder, not in the Trainer's, so that
two jobs with the same `output_dir` neither resume from nor overwrite each other's.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from weft_train.callback_base import CallbackLink, split_evenly
from weft_train.checkpoints.files import folder_only
from weft_train.reports import log_resume

KEPT = 2
MARK = "weft.json"  # in checkpoints that were taken because of us, written when they are whole
_NAME = re.compile(r"checkpoint-(\d+)")


class Elastic(TrainerCallback):  # type: ignore[misc]
    """Speaks to the job's agent from inside `Trainer.train`.

    Checkpoints go to the job's folder, or to the Trainer's `output_dir` where the script runs
    alone: the first after some seconds, then ever more rarely up to `checkpoint_every_s`. The last
    two of them are kept. While it trains, the Trainer's own checkpoints go to the same folder.
    """

    def __init__(self, report_every_s: float = 1.0, checkpoint_every_s: float = 120.0) -> None:
        self._link = CallbackLink(report_every_s, checkpoint_every_s)
        self._ours = False
        self._output_dir = ""  # the Trainer's, while its checkpoints go to the job's folder

    def split_batch(self, total: int, max_per_device: int | None = None) -> dict[str, int]:
        """The two arguments that make a step of `total` samples on this many processes."""
        per_device, micros = split_evenly(total, self._link.env.world_size, max_per_device)
        return {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": micros}

    def last(self, output_dir: str | Path) -> str | None:
        """The newest complete checkpoint of this job, or None to start afresh.

        A script that runs alone resumes from the newest one in `output_dir`. The log says which.
        """
        folder, rank = self._folder(output_dir), self._link.env.rank
        whole = [(step, path) for step, path in _checkpoints(folder) if _is_whole(path)]
        if whole:
            newest = str(max(whole)[1])
            log_resume(rank, newest)
            return newest
        if rank == 0 and _checkpoints(output_dir):
            others = f"the checkpoints in {output_dir} are not this job's"
            sys.stderr.write(f"weft: training starts afresh; {others}\n")
        return None

    def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
        """Listen for SIGTERM while training, and have checkpoints written to the job's folder."""
        self._output_dir, args.output_dir = args.output_dir, str(self._folder(args.output_dir))
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
        """Add the Trainer's numbers to the next report."""
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

    def on_train_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """After a stop, leave with exit code 0."""
        self._link.__exit__(None, None, None)
        args.output_dir = self._output_dir
        if self._link.stopped and state.global_step < state.max_steps:
            self._link.leave()
        self._link.finish()

    def _folder(self, output_dir: str | Path) -> Path:
        return folder_only(self._link.env.checkpoints or output_dir)


def _checkpoints(output_dir: str | Path) -> list[tuple[int, Path]]:
    """Folders of checkpoints by step, whole or not."""
    folder = Path(output_dir)
    return [
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _NAME.fullmatch(path.name))
    ]


def _is_whole(path: Path) -> bool:
    """Return true if a checkpoint is complete: the Trainer writes its own state last."""
    try:
        json.loads((path / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return True


def _prune(output_dir: str | Path) -> None:
    ours = sorted(pair for pair in _checkpoints(output_dir) if (pair[1] / MARK).is_file())
    for _, path in ours[:-KEPT]:
        shutil.rmtree(path)
