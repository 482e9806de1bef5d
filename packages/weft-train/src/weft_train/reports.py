"""Reports of a rank to its agent, at most once a second, and warnings for a person."""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping

import torch

from weft_train.base.client import AgentConnection
from weft_train.base.environment import Environment
from weft_train.base.messages import (
    FromAgent,
    FromRank,
    Hello,
    Leaving,
    Metrics,
    Notice,
    Report,
    Saved,
)
from weft_train.batch.noise import GradientNoise
from weft_train.data.loader import Loader
from weft_train.data.sampling import StepBatch
from weft_train.step import TrainingStep
from weft_train.turns.stopwatch import Stopwatch

log = logging.getLogger(__name__)

MEASURED_S, MOST_MEASURED = 0.2, 200  # between two messages of metrics, and values that wait


def log_resume(rank: int, checkpoint: object) -> None:
    """Write to the job's log which checkpoint it resumes from, once a gang."""
    if rank == 0:
        sys.stderr.write(f"weft: training resumes from {checkpoint}\n")


class Reports:
    """The line to the agent; without an agent, notices go to the log alone."""

    def __init__(self, env: Environment, every_s: float) -> None:
        self._client: AgentConnection | None = None
        self.left = False  # whether the last word was said
        if env.agent:
            hello = Hello(env.job, env.attempt, env.number, os.getpid())
            self._client = AgentConnection(env.agent, hello)
        self._every_s = every_s
        self._next = 0.0
        self._user: dict[str, float] = {}
        self._who = (env.job, env.attempt, env.rank)
        self._measured: deque[tuple[str, float, float]] = deque(maxlen=MOST_MEASURED)
        self._measured_at = 0.0

    def receive(self) -> list[FromAgent]:
        """Return the agent's messages since the last call."""
        return self._client.poll() if self._client is not None else []

    def add(self, metrics: Mapping[str, float], step: float = -1.0) -> None:
        """The script's own metrics after that many steps, for the next report."""
        values = {name: float(value) for name, value in metrics.items()}
        self._user |= {f"user.{name}": value for name, value in values.items()}
        self._measured += [(name, step, value) for name, value in values.items()]
        if time.monotonic() >= self._measured_at:
            self._send_measured()

    def is_due(self) -> bool:
        """True if it is time for a report and an agent listens."""
        return self._client is not None and time.monotonic() >= self._next

    def report(self, values: Callable[[], Mapping[str, float]]) -> None:
        """Send a report with the script's metrics among the values."""
        self._next = time.monotonic() + self._every_s
        self._send_measured()
        self.say(Report({**values(), **self._user}))

    def report_saved(self, step: int, epoch: int, path: str) -> None:
        """A checkpoint is on disk."""
        self.say(Saved(step, epoch, path))

    def report_notice(self, level: str, text: str) -> None:
        """A notice for people."""
        log.log(logging.ERROR if level == "error" else logging.WARNING, "%s", text)
        self.say(Notice(level, text))

    def report_restart(self, why: str, what: str = "another number of GPUs") -> None:
        """Ranks cannot come and go as they train."""
        self.report_notice("info", f"the job is restarted for {what}: {why}")

    def send_last_word(self, reason: str, text: str = "", wait_s: float = 1.0) -> None:
        """The last word; the line is closed."""
        self.left = True
        self._send_measured()
        if self._client is not None:
            self.say(Leaving(reason, text))
            self._client.close(wait_s)
            self._client = None

    def leave_after(self, error: BaseException | None) -> None:
        """The last word of a program that came to its end, or broke off with an error."""
        if error is None:
            self.send_last_word("done")
        else:
            self.send_last_word("error", f"{type(error).__name__}: {error}"[:500])

    def _send_measured(self) -> None:
        """Send every value that waits: not only the last of each metric, as a report does."""
        if self._measured:
            self._measured_at = time.monotonic() + MEASURED_S
            names, steps, values = zip(*self._measured, strict=True)
            self._measured.clear()
            self.say(Metrics(*self._who, names, steps, values))

    def say(self, message: FromRank) -> None:
        """Send a message where an agent listens."""
        if self._client is not None:
            self._client.send(message)


def measure_memory_gb(device: torch.device) -> float:
    """Peak memory of this rank: on its GPU, or resident where there is none."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def describe_steps(
    watch: Stopwatch, step: TrainingStep, batch: StepBatch, noise: GradientNoise
) -> dict[str, float]:
    """Medians of times, samples, and gradients of the last steps."""
    values = {
        **{name: watch.median(name) for name in ("step_s", "grad_s", "token_s")},
        "sync_s": step.measure_sync_s(),
        "data_s": watch.median("data_s") * batch.accumulate,
        "batch": float(batch.total),
        "per_gpu": float(batch.per_gpu),
        "accumulate": float(batch.accumulate),
        "gain": noise.gain(float(batch.total)),
    }
    if noise.known:
        values |= {"noise": noise.scale, "grad_var": noise.var, "grad_sqr": noise.sqr}
    return values


def count_progress(
    epoch: int, position: int, epochs: int, loader: Loader | None, *, done: bool
) -> dict[str, float]:
    """The running epoch, the part of all epochs that is trained on, and samples of all of them."""
    whole = loader.length if loader is not None else 1
    part = (epoch + position / whole) / epochs if epochs else 0.0
    return {
        "epoch": float(max(min(epoch, epochs - 1), 0)),
        "progress": 1.0 if done else min(part, 1.0),
        **({"work": float(epochs * whole)} if epochs and loader is not None else {}),
    }
