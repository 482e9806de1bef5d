"""Execution plans: the division of a model and its batch among GPUs."""

from __future__ import annotations

import re
from dataclasses import replace

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

MOST_WAYS = 1_000_000
STAGES = 3  # of ZeRO: optimizer states, gradients, weights
PIPELINED = 1  # the highest of them that goes with a pipeline
PART = re.compile(r"dp\d{0,7}|(?:tp|pp|zero|ga)\d{1,7}|offload|gc", re.ASCII)
HINT = "parts are dp, dpN, tpN, ppN, zero1 to zero3, gaN, offload and gc, such as dp2-tp4-gc"


@frozen
class Execution:
    """One execution plan.

    `data`, `tensor` and `pipeline` are how many ways each kind of parallelism divides a training,
    together as many as it has GPUs; `data` 0 is as many as its GPUs allow. `zero` is the stage of
    ZeRO, `offload` puts what the optimizer keeps into host memory, `accumulate` is how many
    backward passes make an update, `checkpointing` computes activations twice to save memory.
    Raises InvalidConfig for what no framework runs.
    """

    data: int = 0
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    offload: bool = False
    accumulate: int = 1
    checkpointing: bool = False

    def __post_init__(self) -> None:
        ways = (max(self.data, 1), self.tensor, self.pipeline, self.accumulate)
        if self.data < 0 or not all(1 <= way <= MOST_WAYS for way in ways):
            raise InvalidConfig(f"plan {self.text!r} has a part out of range", hint=HINT)
        if not 0 <= self.zero <= STAGES:
            raise InvalidConfig(f"plan {self.text!r}: ZeRO has stages 1 to 3", hint=HINT)
        if self.zero > PIPELINED and self.pipeline > 1:
            raise InvalidConfig(
                f"plan {self.text!r}: stages of a pipeline keep their gradients between "
                "micro-batches, which ZeRO 2 and 3 divide",
                hint="use zero1 with a pipeline, or none",
            )

    @property
    def text(self) -> str:
        """The plan as people write it: `dp2-tp4-zero1-gc`; `dp` for plain data parallelism."""
        numbers = (("tp", self.tensor, 1), ("pp", self.pipeline, 1), ("zero", self.zero, 0))
        parts = [f"dp{self.data}"] if self.data else []
        parts += [f"{name}{value}" for name, value, plain in numbers if value != plain]
        parts += ["offload"] if self.offload else []
        parts += [f"ga{self.accumulate}"] if self.accumulate != 1 else []
        parts += ["gc"] if self.checkpointing else []
        return "-".join(parts) or "dp"

    @property
    def unit(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline

    def on(self, gpus: int) -> Execution | None:
        """The plan on that many GPUs, with `data` filled in; None where it does not run."""
        replicas, rest = divmod(gpus, self.unit)
        if rest or not replicas or self.data not in (0, replicas):
            return None
        return self if self.data else replace(self, data=replicas)

    def divides(self, batch: int) -> bool:
        """True if replicas and accumulated passes share a global batch evenly."""
        return batch % (max(self.data, 1) * self.accumulate) == 0


def read_execution(text: str) -> Execution:
    """The plan that `Execution.text` wrote; InvalidConfig for anything else."""
    numbers: dict[str, int] = {}
    for part in text.strip().lower().split("-"):
        name = part.rstrip("0123456789")
        if PART.fullmatch(part) is None or name in numbers:
            raise InvalidConfig(f"plan {text!r}: cannot read {part!r}", hint=HINT)
        numbers[name] = int(part[len(name) :] or 0)
    return Execution(
        numbers.get("dp", 0),
        numbers.get("tp", 1),
        numbers.get("pp", 1),
        numbers.get("zero", 0),
        "offload" in numbers,
        numbers.get("ga", 1),
        "gc" in numbers,
    )


def find_plan(plans: tuple[Execution, ...], gpus: int, plan: Execution) -> bool:
    """True if a plan for that many GPUs is one of those declared."""
    return any(declared.on(gpus) == plan for declared in plans)
