"""For training loops that another library owns: reports, and a stop that all ranks agree on."""

from __future__ import annotations

import time
from types import TracebackType

import torch
import torch.distributed as dist

from weft.train.reports import Reports, memory_gb
from weft.train.stopping import StopRequest, at_the_end
from weft.train.timing import CpuClock, Stopwatch
from weft.wire.environment import Environment
from weft.wire.messages import Stop


class Outside:
    """One rank of a job whose steps happen elsewhere. Use it as a context around training."""

    def __init__(self, report_every_s: float = 1.0) -> None:
        self.env = Environment.read()
        self._reports = Reports(self.env, report_every_s)
        self._watch = Stopwatch(CpuClock())
        self._stop = StopRequest()
        self._last = 0.0
        self._left = False
        self.stopped = False
        at_the_end(self._ended)

    def __enter__(self) -> Outside:
        self._stop.__enter__()
        return self

    def __exit__(
        self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._stop.__exit__()

    def step(self, values: dict[str, float]) -> bool:
        """After an optimizer step: report, and say whether every rank must stop here."""
        now = time.perf_counter()
        if self._last:
            self._watch.add("step_s", now - self._last)
        self._last = now
        for message in self._reports.heard():
            self._stop.asked |= isinstance(message, Stop)
        if self.env.rank == 0 and self._reports.due():
            self._reports.report(lambda: self._values(values))
        self.stopped = _any(self._stop.asked)
        return self.stopped

    def metrics(self, values: dict[str, float]) -> None:
        """The library's own numbers, beside the job's."""
        self._reports.add(values)

    def saved(self, step: int, epoch: int, path: str) -> None:
        """A checkpoint is on disk."""
        if self.env.rank == 0:
            self._reports.saved(step, epoch, path)

    def leave(self) -> None:
        """After a stop: the checkpoint is written, the process ends with exit code 0."""
        self._left = True
        self._reports.leave("stopped")
        raise SystemExit(0)

    def _values(self, values: dict[str, float]) -> dict[str, float]:
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        device = torch.device("cuda" if on_gpu else "cpu")
        return {"step_s": self._watch.median("step_s"), "mem_gb": memory_gb(device), **values}

    def _ended(self, error: BaseException | None) -> None:
        if not self._left:
            self._left = True
            text = "" if error is None else f"{type(error).__name__}: {error}"[:500]
            self._reports.leave("done" if error is None else "error", text)


def _any(asked: bool) -> bool:
    """Whether any rank was asked; the ranks answer alike."""
    if not dist.is_available() or not dist.is_initialized():
        return asked
    on_gpu = dist.get_backend() == "nccl"
    flag = torch.tensor([float(asked)], device="cuda" if on_gpu else "cpu")
    dist.all_reduce(flag)
    return bool(flag.item() > 0)
