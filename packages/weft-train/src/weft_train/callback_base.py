"""For training loops that another library owns: reports, checkpoint times, a stop all agree on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch
import torch.distributed as dist

from weft_train.base.environment import Environment
from weft_train.base.messages import Stop
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.errors import TrainError
from weft_train.ranks.callback_ranks import CallbackRanks
from weft_train.reports import Reports, measure_memory_gb
from weft_train.stopping import StopRequest, call_at_exit
from weft_train.turns.stopwatch import CpuDeviceClock, Stopwatch

UNTRIED = "under another library's loop ranks on GPUs have not been seen to change as they train"


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """Actions of every rank after a step."""

    stop: bool = False
    save: bool = False


class CallbackLink:
    """One rank of a job whose steps happen elsewhere. Use it as a context around training."""

    def __init__(self, report_every_s: float = 1.0, checkpoint_every_s: float = 120.0) -> None:
        self.env = Environment.read()
        self._reports = Reports(self.env, report_every_s)
        may = self.env.most_ranks > 1 and self.env.agent and not self.env.coordinator
        on_gpus = self.env.kind != "cpu" and torch.cuda.is_available()
        if may and on_gpus and self.env.rank == 0:
            self._reports.report_restart(UNTRIED)
        self.ranks = CallbackRanks(self.env, self._reports) if may and not on_gpus else None
        self._saves = SaveTimes(checkpoint_every_s)
        self._save_began = 0.0
        self._watch = Stopwatch(CpuDeviceClock())
        self._stop = StopRequest()
        self._values: dict[str, float] = {}
        self._last, self._epoch = 0.0, 0
        self.stopped = False
        call_at_exit(self._say_end)

    def __enter__(self) -> CallbackLink:
        self._stop.__enter__()
        self._saves.start_clock()
        return self

    def __exit__(
        self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._stop.__exit__()

    def step(self, values: dict[str, float]) -> StepVerdict:
        """After an optimizer step: report, and say whether every rank must save or stop here."""
        now = time.perf_counter()
        if self._epoch != (epoch := 0 if self.ranks is None else self.ranks.gang.epoch):
            self._epoch, self._last = epoch, 0.0
            self._watch.clear()  # its times are of other ranks
        if self._last:
            self._watch.add("step_s", now - self._last)
        self._last, self._values = now, values
        for message in self._reports.receive():
            self._stop.asked |= isinstance(message, Stop)
            if self.changing is not None:
                self.changing.on_message(message)
        if self.rank == 0 and self._reports.is_due():
            self._reports.report(self._measure)
        wishes = self._stop.asked, self.rank == 0 and self._saves.is_due()
        agree = _agree if self.ranks is None else partial(self.ranks.agree, int(values["steps"]))
        stop, save = agree(*wishes)
        self.stopped = stop
        self._save_began = time.monotonic()
        return StepVerdict(stop, save or stop)

    @property
    def rank(self) -> int:
        """Number of this process among those that train now."""
        return self.env.rank if self.ranks is None else self.ranks.gang.rank

    @property
    def changing(self) -> CallbackRanks | None:
        """The ranks, where they may come and go as they train."""
        return self.ranks if self.ranks is not None and self.ranks.can_change else None

    def add_metrics(self, values: dict[str, float]) -> None:
        """The library's own numbers, beside the job's."""
        self._reports.add(values, self._values.get("steps", -1.0))

    def note_saved(self, step: int, epoch: int, path: str) -> None:
        self._saves.note_saved(time.monotonic() - self._save_began)
        if self.rank == 0:
            self._reports.report_saved(step, epoch, path)

    def finish(self) -> None:
        """The training is complete, which the last report shows."""
        if self.rank == 0 and self._values:
            self._values = {**self._values, "progress": 1.0}
            self._reports.report(self._measure)

    def exit_after_stop(self) -> None:
        """After a stop: the checkpoint is written, the process ends with exit code 0."""
        self._reports.send_last_word("stopped")
        raise SystemExit(0)

    def _measure(self) -> dict[str, float]:
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        device = torch.device("cuda" if on_gpu else "cpu")
        step_s = self._watch.median("step_s")
        return {"step_s": step_s, "mem_gb": measure_memory_gb(device), **self._values}

    def _say_end(self, error: BaseException | None) -> None:
        if not self._reports.left:
            self._reports.leave_after(error)


def split_evenly(total: int, ranks: int, max_per_device: int | None) -> tuple[int, int]:
    """Samples of a micro-batch on one device, and micro-batches of a step, for `total` samples.

    The same total on every number of ranks keeps steps, epochs and schedules what they were.
    """
    most = max_per_device or total
    for micros in range(1, total + 1):
        per_device, rest = divmod(total, ranks * micros)
        if not per_device:
            break
        if not rest and per_device <= most:
            return per_device, micros
    raise TrainError(
        f"a batch of {total} cannot be dealt evenly to {ranks} processes, at most {most} at once",
        hint="choose a batch size that every number of GPUs of the job divides, such as 48 or 96",
    )


def _agree(stop: bool, save: bool) -> tuple[bool, bool]:
    """Return true where any rank was asked to stop, or wants to save; the same on all ranks."""
    if not dist.is_available() or not dist.is_initialized():
        return stop, save
    on_gpu = dist.get_backend() == "nccl"
    wishes = torch.tensor([float(stop), float(save)], device="cuda" if on_gpu else "cpu")
    dist.all_reduce(wishes)
    asked, due = wishes.tolist()
    return asked > 0, due > 0
