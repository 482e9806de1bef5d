"""Ray Train in a Ray of the job's own: the workers that Weft gave it, and reports to Weft.

    run = RunConfig(storage_path=os.environ["WEFT_CHECKPOINTS"], callbacks=[Elastic()])
    TorchTrainer(train, scaling_config=ask_workers(), run_config=run).fit()

For scripts under `python -m weft.node.ray_job`. Needs `ray[train]`, with the Train of Ray 2.50 or
later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ray.train import Checkpoint, ScalingConfig, UserCallback

from weft_train.base.environment import Environment
from weft_train.errors import TrainError
from weft_train.reports import Reports

WORKERS = "WEFT_WORKERS"  # how many fit into the job's cluster
KNOWN: tuple[str, ...] = ("epoch", "progress")  # what Weft's own reports call the same


def ask_workers(**options: Any) -> ScalingConfig:
    """As many workers as this attempt has GPUs, or CPU slots without any.

    `options` are those of Ray's ScalingConfig.
    """
    workers = os.environ.get(WORKERS, "")
    if not workers.isdigit():
        raise TrainError(
            f"{WORKERS} is not set: Weft did not start this",
            hint="weft submit -- python -m weft.node.ray_job python SCRIPT",
        )
    use_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    return ScalingConfig(**{"num_workers": int(workers), "use_gpu": use_gpu, **options})


class Elastic(UserCallback):  # type: ignore[misc]
    """Passes on to the job's agent what the first worker reports, numbers and checkpoints.

    `epoch` and `progress` (0 to 1) mean to Weft what they do in its own reports; other numbers are
    the script's own metrics.
    """

    def __init__(self, report_every_s: float = 1.0) -> None:
        self._every_s = report_every_s
        self._steps = 0
        self._reports: Reports | None = None

    def after_report(
        self,
        run_context: Any,  # noqa: ARG002 - Ray passes it
        metrics: Sequence[Mapping[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Called by Ray when all workers have reported."""
        if self._reports is None:  # in Ray's own process, where Ray has brought this object
            self._reports = Reports(Environment.read(), self._every_s)
        self._steps += 1
        first = {k: float(v) for k, v in metrics[0].items() if isinstance(v, (int, float))}
        known = {name: first.pop(name) for name in KNOWN if name in first}
        self._reports.add(first, self._steps)
        if self._reports.is_due():
            self._reports.report(lambda: {"steps": float(self._steps), **known})
        if checkpoint is not None:
            epoch = int(known.get("epoch", 0))
            self._reports.report_saved(self._steps, epoch, str(checkpoint.path))
