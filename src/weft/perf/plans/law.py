"""Step times of execution plans by formulas (Rubick, MLSys 2025), as its authors' code has them.

Times are milliseconds, parameters are counted in Mi (2^20), bandwidths in MB a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import exp, floor, log
from typing import NamedTuple

from weft.core.model.execution import Execution
from weft.frozen import frozen

MI = 2.0**20
NETWORK = 20.0  # MB a millisecond between nodes, of plans that divide the model
SLOW = 2.0  # the same of data parallelism over a network
RECOMPUTE = 2.0  # forward passes with activation checkpointing
TENSOR_GAIN = 1.15  # of each way of tensor parallelism on the forward time


class Coefficients(NamedTuple):
    """What is fitted of a model: factors of times, and what is paid once a step."""

    k_bwd: float
    k_sync: float
    k_opt: float
    k_os_offload: float
    k_const: float
    k_off: float
    k_swap: float


@frozen
class PlanLaw:
    """One model: its size, its global batch, its forward time on one GPU, and the coefficients.

    `pcie` and `nvlink` are bandwidths that its runs saw. `scales` is by how much the forward time
    of a GPU falls on some numbers of GPUs, where that is not their number; `unscaled` keeps it
    whole at any other. `activations` is sequence times hidden size. `most` is how many samples one
    GPU has memory for, by `dp`, `zero`, `offload` and whether activations are checkpointed.
    """

    params: float
    batch: int
    forward_ms: float
    pcie: float
    nvlink: float
    k: Coefficients
    activations: float = 0.0
    layers: float = 1
    scales: Mapping[int, float] = field(default_factory=dict)
    most: Mapping[tuple[str, bool], int] = field(default_factory=dict)

    def fits(self, plan: Execution) -> bool:
        """Whether memory and the batch allow a plan with its replicas filled in."""
        if plan.unit > 1:
            return plan.divides(self.batch) and plan.zero == 0
        samples, rest = divmod(self.batch, plan.data)
        return not rest and samples <= self.most.get((family(plan), plan.checkpointing), 0)

    def forward(self, gpus: int) -> float:
        """Milliseconds of the forward pass of one of that many GPUs."""
        if not self.scales:
            return self.forward_ms / gpus
        return self.forward_ms / self.scales.get(gpus, 1.0)

    def step_ms(
        self, plan: Execution, nodes: int = 1, *, threads: float = 1.0, near: bool = True
    ) -> float:
        """Milliseconds of an update; `near` has the GPUs of data parallelism on one node."""
        gpus = plan.data * plan.unit
        if plan.unit > 1:
            forward = self.forward_ms * plan.data / plan.pipeline / TENSOR_GAIN**plan.tensor
            return self.divided_ms(plan, forward, nodes, gpus // nodes)
        return self.replicated_ms(plan, self.forward(gpus), threads=threads, near=near)

    def replicated_ms(
        self,
        plan: Execution,
        forward: float,
        *,
        threads: float = 1.0,
        near: bool = True,
        recompute: float = RECOMPUTE,
    ) -> float:
        """Of data parallelism, ZeRO and offload, with so long a forward pass on each GPU."""
        k, gpus = self.k, plan.data
        backward = k.k_bwd * forward
        volume = 8.0 * self.params * (gpus - 1) / gpus
        sync = overlap(volume / (self.nvlink if near else SLOW), backward, k.k_sync)
        moved = 4.0 * self.params / gpus / self.pcie if plan.offload else 0.0
        sync += k.k_off + moved if plan.offload else 0.0
        if plan.offload:
            update = k.k_os_offload * self.params / (gpus * threads)
        else:
            update = k.k_opt * self.params / (gpus if plan.zero else 1)
        passes = recompute if plan.checkpointing else 1.0
        return passes * forward + sync + update + k.k_swap + moved + k.k_const

    def divided_ms(self, plan: Execution, forward: float, nodes: int, per_node: int) -> float:
        """Of tensor and pipeline parallelism."""
        k, tp, pp, dp = self.k, plan.tensor, plan.pipeline, plan.data
        micro = self.batch // dp
        tensor = 32.0 * self.activations * (tp - 1) / tp * micro * self.layers / MI / self.nvlink
        between = floor(16.0 * micro * self.activations / tp) / NETWORK / MI * pp
        inside = per_node > tp and pp == nodes
        replicas = floor(8.0 * (dp - 1) / dp * self.params / tp) / pp
        sync = overlap(replicas / (self.nvlink if inside else NETWORK), k.k_bwd * forward, k.k_sync)
        update = self.params / tp / pp * k.k_opt
        return forward + sync + update + k.k_const + (between if pp > 1 else 0.0) + tensor


def overlap(left: float, other: float, how: float) -> float:
    """Time of two things that overlap: their sum if `how` is 1, the longer if it is large."""
    longer, shorter = max(left, other), min(left, other)
    if longer <= 0.0 or shorter <= 0.0:
        return longer
    return longer * exp(log(1.0 + (shorter / longer) ** how) / how)


def family(plan: Execution) -> str:
    """Under which name limits of memory are kept."""
    if plan.offload:
        return "offload"
    return "zero" if plan.zero else "dp"
