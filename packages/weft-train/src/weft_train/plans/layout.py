"""An execution plan on the ranks of a job: which rank does which part of the work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from weft_train.errors import TrainError

MOST_WAYS = 1_000_000
PART = re.compile(r"dp[0-9]{0,7}|(?:tp|pp|zero|ga)[0-9]{1,7}|offload|gc")
HINT = "parts are dp, dpN, tpN, ppN, zero1 to zero3, gaN, offload and gc, such as dp2-tp2-gc"


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """Division of model and batch by `data` x `tensor` x `pipeline` ranks."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0
    accumulate: int = 1
    offload: bool = False
    checkpointing: bool = False

    @property
    def text(self) -> str:
        parts = [f"dp{self.data}", f"tp{self.tensor}", f"pp{self.pipeline}"]
        parts += [f"zero{self.zero}"] if self.zero else []
        parts += [f"ga{self.accumulate}"] if self.accumulate > 1 else []
        parts += ["offload"] if self.offload else []
        return "-".join([*parts, "gc"] if self.checkpointing else parts)


def read_layout(text: str, ranks: int) -> ParallelLayout:
    """The plan `text` on that many ranks; TrainError says why it does not run on them."""
    numbers: dict[str, int] = {}
    for part in text.strip().lower().split("-") if text else ():
        name = part.rstrip("0123456789")
        if PART.fullmatch(part) is None or name in numbers:
            raise TrainError(f"plan {text!r}: cannot read {part!r}", hint=HINT)
        numbers[name] = int(part[len(name) :] or 0)
    tensor, pipeline = numbers.get("tp", 1), numbers.get("pp", 1)
    accumulate, zero = numbers.get("ga", 1), numbers.get("zero", 0)
    if not (tensor and pipeline and 1 <= accumulate <= MOST_WAYS) or zero > 3:
        raise TrainError(f"plan {text!r} has a part out of range", hint=HINT)
    if zero > 1 and pipeline > 1:
        raise TrainError(f"plan {text!r}: ZeRO 2 and 3 divide what stages of a pipeline keep")
    data, rest = divmod(ranks, tensor * pipeline)
    if rest or not data or numbers.get("dp", 0) not in (0, data):
        raise TrainError(
            f"plan {text!r} does not fit {ranks} ranks",
            hint="the ranks are the product of dp, tp and pp",
        )
    return ParallelLayout(
        data, tensor, pipeline, zero, accumulate, "offload" in numbers, "gc" in numbers
    )


def make_mesh(layout: ParallelLayout, device: str) -> DeviceMesh:
    """The ranks as stages x replicas x tensor parts; neighbours share tensors, which talk most."""
    shape = (layout.pipeline, layout.data, layout.tensor)
    return init_device_mesh(device, shape, mesh_dim_names=("pp", "dp", "tp"))


def divide_batch(layout: ParallelLayout, batch: int, replica: int) -> slice:
    """The rows of a global batch that a replica trains on; TrainError where they are uneven."""
    if batch % (layout.data * layout.accumulate):
        raise TrainError(
            f"a batch of {batch} cannot be shared by plan {layout.text}",
            hint=f"it must be a multiple of {layout.data * layout.accumulate}",
        )
    rows = batch // layout.data
    return slice(replica * rows, (replica + 1) * rows)


def count_copies(gradient: Any, layout: ParallelLayout) -> int:
    """Return how many ranks of a stage hold the same values of a gradient."""
    copies = layout.data * layout.tensor
    for size, placement in zip(gradient.device_mesh.shape, gradient.placements, strict=True):
        copies //= size if placement.is_shard() else 1
    return copies
