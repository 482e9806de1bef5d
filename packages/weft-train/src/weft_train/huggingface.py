"""A callback for the Hugging Face Trainer: reports, checkpoints, and stops with one when asked.

    elastic = Elastic()
    options = TrainingArguments("out", **elastic.split_batch(64, max_per_device=16))
    trainer = Trainer(model, options, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.last("out"))

With the batch dealt by `split_batch` a step is of the same samples on any number of processes, so
that steps, epochs and schedules are those of an undisturbed run. Needs transformers, accelerate.

Under Weft ranks may come and go as the Trainer trains (`ranks.callback_ranks`), where it averages
by DistributedDataParallel and deals a data set of known length.

Under Weft the checkpoints of a training are in the job's own folder, not in the Trainer's, so that
two jobs with the same `output_dir` neither resume from nor overwrite each other's.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.data_loader import SeedableRandomSampler, get_sampler
from accelerate.utils import DistributedType, send_to_device
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler
from transformers import Trainer, TrainerCallback

from weft_train.callback_base import UNTRIED, CallbackLink, split_evenly
from weft_train.checkpoints.files import folder_only
from weft_train.data.sample_order import SampleOrder
from weft_train.errors import TrainError
from weft_train.reports import log_resume

KEPT = 2
SPLIT = "weft-split.json"  # the micro-batches of a step, for ranks that join
MARK = "weft.json"  # in checkpoints that were taken because of us, written when they are whole
PLACE = {"is_world_process_zero", "is_local_process_zero", "stateful_callbacks"}
LOGGED = "_tr_loss", "_total_loss_scalar", "_globalstep_last_logged"
SHARED = DistributedType.MULTI_CPU, DistributedType.MULTI_GPU
SAMPLERS = RandomSampler, SequentialSampler
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
        self._epoch_steps = 0  # known where ranks may come and go
        self._trainer: Any = None
        self._micro = 0  # samples of a micro-batch over all ranks
        self._most: int | None = None  # that fit on one
        self._output_dir = ""  # the Trainer's, while its checkpoints go to the job's folder

    def split_batch(self, total: int, max_per_device: int | None = None) -> dict[str, int]:
        """The two arguments that make a step of `total` samples on this many processes."""
        env, self._most = self._link.env, max_per_device
        per_device, micros = split_evenly(total, env.world_size, max_per_device)
        if self._link.changing is not None:
            micros = self._share_micros(micros)
            per_device, self._micro = total // micros // env.world_size, total // micros
        return {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": micros}

    def last(self, output_dir: str | Path) -> str | None:
        """The newest complete checkpoint of this job, or None to start afresh.

        A script that runs alone resumes from the newest one in `output_dir`. The log says which.
        """
        if self._link.env.join:
            return None  # the state comes from those who train
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

    def on_init_end(self, args: Any, *_: Any, **__: Any) -> None:
        """Find out whether ranks may come and go, and give a new one its place among them."""
        ranks = self._link.changing
        if ranks is None:
            return
        self._trainer = _find_trainer()
        if why := _cannot_change(self._trainer, self._micro, self._link.env.world_size):
            ranks.refuse_live_change(why)
            return
        accelerator = self._trainer.accelerator
        accelerator.prepare_model = partial(_replicate, accelerator.prepare_model, accelerator)
        self.change_place(self._link.env.rank, self._link.env.world_size)
        args.ignore_data_skip = True  # the order of samples knows where it stands
        self._trainer.get_train_dataloader = partial(
            self._follow, self._trainer.get_train_dataloader
        )
        args.eval_on_start &= not self._link.env.join

    def on_train_begin(self, args: Any, state: Any, *_: Any, **now: Any) -> None:
        """Listen for SIGTERM while training, and have checkpoints written to the job's folder."""
        self._output_dir, args.output_dir = args.output_dir, str(self._folder(args.output_dir))
        self._link.__enter__()
        if self._link.changing is not None:
            model, optimizer = self._trainer.model_wrapped, self._trainer.optimizer.optimizer
            order = now["train_dataloader"].order
            self._epoch_steps = math.ceil(len(order) / order.accumulate)
            epoch, step = divmod(state.global_step, self._epoch_steps)
            order.load_state_dict({"epoch": epoch, "done": step * order.accumulate})
            self._link.changing.begin(model, [optimizer], order, self)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Report; save when it is time; when asked to stop, save after this step and end."""
        if self._epoch_steps:  # a rank that came within an epoch counts from where it came
            state.epoch = state.global_step / self._epoch_steps
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

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **now: Any) -> Any:
        """Let a new rank go on after an epoch that the others had done when it came."""
        loader = now["train_dataloader"]
        if isinstance(loader, _FollowingLoader) and loader.passed:
            control.should_training_stop = control.should_epoch_stop = False
            control.should_log = control.should_evaluate = control.should_save = False
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
            self._link.exit_after_stop()
        self._link.finish()

    def collect_loop(self) -> dict[str, Any]:
        """Return what the Trainer knows of its training, without its place."""
        trainer = self._trainer
        state = {k: v for k, v in vars(trainer.state).items() if k not in PLACE}
        scaler = trainer.optimizer.scaler
        return {
            "state": state,
            "schedule": trainer.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "logged": {name: vars(trainer)[name] for name in LOGGED if name in vars(trainer)},
        }

    def take_loop(self, state: dict[str, Any]) -> None:
        trainer = self._trainer
        vars(trainer.state).update(state["state"])
        trainer.lr_scheduler.load_state_dict(state["schedule"])
        if trainer.optimizer.scaler is not None:
            trainer.optimizer.scaler.load_state_dict(state["scaler"])
        vars(trainer).update(state["logged"])

    def change_place(self, rank: int, ranks: int) -> None:
        """Tell accelerate and the Trainer which rank this is; a step has the same samples."""
        trainer, args = self._trainer, self._trainer.args
        for held in (args.distributed_state, trainer.accelerator.state):
            held.process_index, held.num_processes = rank, ranks
        trainer.state.is_world_process_zero = rank == 0
        trainer.state.is_local_process_zero = trainer.is_local_process_zero()
        args.per_device_train_batch_size = self._micro // ranks
        trainer._train_batch_size = args.per_device_train_batch_size

    def _follow(self, make: Callable[[], Any]) -> _FollowingLoader:
        """Return the Trainer's loader with its own order of samples, dealt to ranks that change."""
        loader = make()
        count, sampler = len(loader.dataset), get_sampler(loader)
        batches = math.ceil(count / self._micro)

        def permute(epoch: int) -> list[int]:
            if isinstance(sampler, SeedableRandomSampler):
                sampler.set_epoch(epoch)
            # Like accelerate, go on from the beginning to fill the last batch.
            return list(itertools.islice(itertools.cycle(sampler), batches * self._micro))

        order = SampleOrder(
            loader.dataset,
            self._micro,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            accumulate=self._trainer.args.gradient_accumulation_steps,
            most=self._most,
            permute=permute,
            batches=batches,
        )
        return _FollowingLoader(loader, order, bool(self._link.env.join))

    def _share_micros(self, micros: int) -> int:
        """Micro-batches of a step: a new rank has as many as the others began with."""
        env = self._link.env
        path = self._folder(".") / SPLIT
        if env.join:
            attempt, micros = json.loads(path.read_text())
            if attempt != env.attempt:
                raise TrainError(f"{path} is of attempt {attempt}")
        elif env.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps([env.attempt, micros]))
        return micros

    def _folder(self, output_dir: str | Path) -> Path:
        return folder_only(self._link.env.checkpoints or output_dir)


class _FollowingLoader:
    """The Trainer's loader of samples, but that it follows the ranks."""

    def __init__(self, loader: Any, order: SampleOrder, join: bool) -> None:
        self.order, self.passed = order, False
        self._loader, self._join, self._epoch = loader, join, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self.order)

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        """The rank's batches; none of an epoch that was over before this rank came."""
        if self._join:
            self._join = False
            self.order.between()
        self.passed = self._epoch < self.order.epoch
        logging.getLogger("transformers.trainer").disabled = self.passed  # it misses samples
        if not self.passed:
            for batch in self.order:
                yield send_to_device(batch, self._loader.device)


def _find_trainer() -> Any:
    """Return the Trainer that calls this callback, which it does not tell."""
    frame: Any = sys._getframe()
    while not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return frame.f_locals["self"]


def _replicate(prepare: Callable[..., Any], accelerator: Any, model: Any, **how: Any) -> Any:
    """Prepare a model as accelerate does; one alone on its GPU may come to have peers as well."""
    prepared = prepare(model, **how)
    if how.get("evaluation_mode") or isinstance(prepared, DistributedDataParallel):
        return prepared
    handler, device = accelerator.ddp_handler, accelerator.device
    options = handler.to_kwargs() if handler is not None else {}
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(prepared, device_ids=ids, **options)


def _cannot_change(trainer: Any, micro: int, ranks: int) -> str:
    """Say why ranks cannot come and go in this training; empty if they can."""
    args, data = trainer.args, trainer.train_dataset
    kind, own = trainer.accelerator.distributed_type, type(trainer).get_train_dataloader
    sized = hasattr(data, "__len__") and not isinstance(data, IterableDataset)
    sampler = type(trainer._get_train_sampler()) if sized else None
    several = args.gradient_accumulation_steps > 1
    step = micro * args.gradient_accumulation_steps
    why_not = {
        UNTRIED: args.device.type != "cpu",
        f"the model is not replicated by DistributedDataParallel ({kind.value})": kind
        not in SHARED,
        "the Trainer has a loader of its own": own is not Trainer.get_train_dataloader,
        "the data set has no length": not sized,
        "the order of samples depends on the number of processes": sampler not in SAMPLERS,
        "`split_batch` did not deal the batch": args.per_device_train_batch_size * ranks != micro,
        f"an epoch is no multiple of {step} samples": several and sized and len(data) % step,
    }
    return next((why for why, true in why_not.items() if true), "")


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
