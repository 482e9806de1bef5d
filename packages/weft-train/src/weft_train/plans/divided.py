"""A model and its optimizer, divided among the ranks that train it now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from weft_train.plans import dividing
from weft_train.plans.layout import ParallelLayout, count_copies, divide_batch
from weft_train.ranks.shards import Shard, Shards
from weft_train.ranks.transfer import find_tensors

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)  # stages hold some of the parameters
MODEL, OPTIMIZER = "model", "optimizer"
REGISTERED = "_parameters", "_buffers", "_modules"  # where a module keeps what it knows the name of
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanRecipe:
    """The training to run under any plan: see `weft_train.plan`."""

    build: Callable[[], nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Loss
    batch: int
    layers: Sequence[str]
    tensor: Mapping[str, str]
    clip: float | None
    seed: int


class DividedModel:
    """One rank's part of a model under a plan.

    `rows` are those of the global batch that it trains on, `replica` its number among them.
    """

    def __init__(
        self,
        model: nn.Module,
        layout: ParallelLayout,
        mesh: DeviceMesh | None,
        recipe: PlanRecipe,
        device: torch.device,
    ) -> None:
        self.layout, self._mesh, self._recipe, self._device = layout, mesh, recipe, device
        self.replica = self._place("dp")
        self.rows = divide_batch(layout, recipe.batch, self.replica)
        self.bare = model
        empty = any(parameter.is_meta for parameter in model.parameters())
        if empty and not layout.zero:
            model.to_empty(device=device)
        self._divide(recipe.layers, recipe.tensor)
        if empty and layout.zero:  # only now, so that it never has the whole
            model.to_empty(device=device)
        self._optimizer = recipe.optimizer(self._parameters())

    def train(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Train on this replica's rows; the mean loss over the whole batch, before the update."""
        inputs, targets = inputs.to(self._device), targets.to(self._device)
        self._optimizer.zero_grad()
        local = self._run(inputs, targets)
        if self._averages:
            self._average()
        if self._recipe.clip is not None:
            self._clip_gradients(self._recipe.clip)
        self._optimizer.step()
        return self._sum(local / self.layout.data / self.layout.tensor)

    def state(self) -> dict[str, Any]:
        """The model's and the optimizer's, by name, as they are divided."""
        model, optimizer = get_state_dict(self.bare, self._optimizer, options=FLAT)
        return {MODEL: model, OPTIMIZER: optimizer}

    def load(self, state: dict[str, Any]) -> None:
        """Take a state that is divided as this one is."""
        set_state_dict(
            self.bare,
            self._optimizer,
            model_state_dict=state[MODEL],
            optim_state_dict=state[OPTIMIZER],
            options=FLAT,
        )

    def parts(self) -> Shards:
        """Shards of the model and the optimizer on this rank, each by a name of its own."""
        return {name: Shard.of(value) for name, value in self._name_tensors()}

    def measure_gb(self) -> float:
        """The state of all ranks."""
        return sum(value.numel() * value.itemsize for _, value in self._name_tensors()) / 1e9

    def _name_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for part, named in self.state().items():
            for name, value in named.items():
                if isinstance(value, torch.Tensor):
                    yield f"{part} {name}", value

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Learning rates and the like, by group of parameters."""
        return [
            {name: value for name, value in group.items() if name != "params"}
            for group in self._optimizer.param_groups
        ]

    @settings.setter
    def settings(self, settings: list[dict[str, Any]]) -> None:
        for group, saved in zip(self._optimizer.param_groups, settings, strict=True):
            group.update(saved)

    def take_rest(self, before: DividedModel) -> None:
        """Take what is in no state from the model as it was divided before."""
        self.settings = before.settings
        held = dict(before.bare.named_buffers())
        for name, buffer in self.bare.named_buffers():
            buffer.copy_(held[name])

    def free(self) -> None:
        """Give back the memory of what is divided and of the optimizer; no use after this."""
        state = [
            value
            for each in self._optimizer.state.values()
            for value in each.values()
            if isinstance(value, torch.Tensor)
        ]
        divided = [p for p in self.bare.parameters() if isinstance(p, DTensor)]
        for value in (*state, *divided):
            local_part(value.detach()).untyped_storage().resize_(0)
        for parameter in self.bare.parameters():
            parameter.grad = None
        self._optimizer.state.clear()

    def _divide(self, layers: Sequence[str], tensor: Mapping[str, str]) -> None:
        layout, mesh = self.layout, self._mesh
        parts = dividing.list_parts(self.bare, layers)
        module: nn.Module = self.bare
        self._schedule: Schedule1F1B | None = None
        if layout.pipeline > 1:
            stage = self._place("pp")
            module = chain = dividing.cut_stage(self.bare, parts, stage, layout.pipeline)
            parts = list(chain.names)
        if layout.tensor > 1 and mesh is not None:
            dividing.divide_tensors(self.bare, mesh["tp"], tensor)
        blocks = [self.bare.get_submodule(name) for name in parts]
        if layout.checkpointing:
            dividing.save_activations(blocks)
        if mesh is not None:
            replicas = mesh if mesh.ndim == 1 else mesh["dp"]
            module = dividing.share_data(module, blocks, replicas, layout)
        self._averages = layout.data > 1 and not isinstance(
            module, FSDPModule | DistributedDataParallel
        )
        self._module = module
        if layout.pipeline > 1 and mesh is not None:
            group = mesh.get_group("pp")
            part = PipelineStage(module, stage, layout.pipeline, self._device, group=group)
            self._schedule = Schedule1F1B(part, layout.accumulate, loss_fn=self._recipe.loss)

    def _parameters(self) -> list[nn.Parameter]:
        return [p for p in self.bare.parameters() if p.requires_grad]

    def _run(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward; the mean loss of these rows where it is known, else 0."""
        if self._schedule is not None:
            return self._run_stage(self._schedule, inputs, targets)
        total, parts = torch.zeros((), device=self._device), self.layout.accumulate
        pairs = list(zip(inputs.chunk(parts), targets.chunk(parts), strict=True))
        for number, (x, y) in enumerate(pairs):
            with self._silent(last=number == parts - 1):
                loss = self._recipe.loss(self._module(x), y) / parts
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def _run_stage(
        self, schedule: Schedule1F1B, inputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        stage, last = self._place("pp"), self.layout.pipeline - 1
        losses: list[torch.Tensor] = []
        args = (inputs,) if stage == 0 else ()
        if stage == last:
            schedule.step(*args, target=targets, losses=losses)
            return torch.stack(losses).mean().detach()
        schedule.step(*args)
        return torch.zeros((), device=self._device)

    def _silent(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged with the last of several backward passes."""
        if isinstance(self._module, FSDPModule):
            self._module.set_requires_gradient_sync(last)
        elif isinstance(self._module, DistributedDataParallel) and not last:
            return self._module.no_sync()
        return nullcontext()

    def _average(self) -> None:
        assert self._mesh is not None
        group = self._mesh.get_group("dp")
        for parameter in self._parameters():
            if parameter.grad is not None:
                local = local_part(parameter.grad)
                dist.all_reduce(local, group=group)
                local.div_(self.layout.data)

    def _clip_gradients(self, most: float) -> None:
        """Scale gradients so that their norm over the whole model is at most `most`."""
        whole = self.layout.data * self.layout.tensor
        square = torch.zeros((), device=self._device)
        gradients = [p.grad for p in self._parameters() if p.grad is not None]
        for gradient in gradients:
            divided = isinstance(gradient, DTensor)
            copies = count_copies(gradient, self.layout) if divided else whole
            square += local_part(gradient).square().sum() / copies
        factor = most / (self._sum(square) ** 0.5 + 1e-6)
        if factor < 1.0:
            for gradient in gradients:
                local_part(gradient).mul_(factor)

    def _sum(self, value: torch.Tensor) -> float:
        if self._mesh is not None:
            dist.all_reduce(value)
        return float(value)

    def _place(self, dimension: str) -> int:
        mesh = self._mesh
        if mesh is None:
            return 0
        if mesh.ndim == 1:  # of replicas alone
            return mesh.get_local_rank() if dimension == "dp" else 0
        return mesh.get_local_rank(dimension)


def local_part(value: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that is on this rank."""
    return value.to_local() if isinstance(value, DTensor) else value


def build_empty(recipe: PlanRecipe, device: torch.device) -> nn.Module:
    """The model once more, without values where it can be built so."""
    try:
        with torch.device("meta"):
            model = recipe.build()
    except Exception as error:  # whatever a script does there, it did it with values before
        log.info("the model is built with values: %s", error)
    else:
        if not _needs_values(model):
            return model
    torch.manual_seed(recipe.seed)
    return recipe.build().to(device)


def _needs_values(model: nn.Module) -> bool:
    """True if it has tensors that come with no state, or parameters in two places."""
    named = list(model.named_parameters(remove_duplicate=False))
    tied = len({id(parameter) for _, parameter in named}) < len(named)
    whole = all(parameter.is_meta for _, parameter in named)
    return tied or not whole or any(_has_loose_tensors(module) for module in model.modules())


def _has_loose_tensors(module: nn.Module) -> bool:
    kept = [value for name, value in vars(module).items() if name not in REGISTERED]
    return any(True for _ in find_tensors(kept))
