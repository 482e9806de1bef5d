"""A training under an execution plan that may change from one start to the next.

    training = wt.plan(build, optimizer, loss, batch=64, layers=("embed", "blocks.*", "head"),
                       tensor={"*.up": "column", "*.down": "row"})
    for step in training.steps(10_000):
        x, y = read_batch(step)
        loss = training.step(x[training.rows], y[training.rows])

The global batch, and so the loss, is the same under every plan.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from weft_train.base import fence
from weft_train.base.environment import Environment
from weft_train.base.messages import Stop
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.errors import TrainError
from weft_train.plans import dividing
from weft_train.plans.layout import ParallelLayout, count_copies, divide_batch, make_mesh
from weft_train.ranks.gang import RankGang
from weft_train.reports import Reports, log_resume, measure_memory_gb
from weft_train.stopping import StopRequest, call_at_exit

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)  # stages hold some of the parameters
LOCAL = 1 << 31  # seeds of a step: one for each replica
RECENT = 20  # steps whose median time is reported


@dataclass(frozen=True, slots=True)
class PlanRecipe:
    """The training to run under any plan: see `weft_train.plan`."""

    optimizer: Callable[[Any], torch.optim.Optimizer]
    loss: Loss
    batch: int
    layers: Sequence[str]
    tensor: Mapping[str, str]
    clip: float | None
    seed: int


class PlannedRank:
    """One rank of a training under a plan.

    `rows` are those of the global batch that it trains on; `done` counts steps.
    """

    def __init__(
        self,
        env: Environment,
        gang: RankGang,
        reports: Reports,
        saves: SaveTimes,
        folder: Path | None,
        layout: ParallelLayout,
        model: nn.Module,
        recipe: PlanRecipe,
    ) -> None:
        self.layout, self.device, self.done = layout, gang.device, 0
        self._gang, self._reports, self._saves, self._recipe = gang, reports, saves, recipe
        self._nodes, self._count = env.nodes, 0
        self._took_s: deque[float] = deque(maxlen=RECENT)
        self._mean, self._stop = float("nan"), StopRequest()
        self._kept = ShardedCheckpoints(folder, gang, env.attempt) if folder else None
        if layout.offload and gang.alone:
            gang.form_alone()
        divided = layout.offload or gang.size > 1
        self._mesh = make_mesh(layout, gang.device.type) if divided else None
        self._replica = self._place("dp")
        self.rows = divide_batch(layout, recipe.batch, self._replica)
        self._bare = model.to(gang.device)
        self._divide(recipe.layers, recipe.tensor)
        self._optimizer = recipe.optimizer(self._parameters())
        self._restore()
        if env.most_ranks > 1 and gang.rank == 0:
            reports.report_restart("its model is divided over them")
        call_at_exit(self._say_end)

    @property
    def rank(self) -> int:
        """Number of this process among the job's, from 0."""
        return self._gang.rank

    def steps(self, count: int) -> Iterator[int]:
        """Numbers of the steps that are left of `count`; the training may be stopped after each."""
        self._count = count
        self._saves.begin()
        with self._stop:
            while self.done < count:
                yield self.done
                self._agree(last=self.done >= count)
        self._gang.read_sum()
        self._save()
        self._report()

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Train on this replica's rows; the mean loss over the whole batch, before the update."""
        rows = self.rows.stop - self.rows.start
        if len(inputs) != rows:
            raise TrainError(
                f"step {self.done} was given {len(inputs)} rows; this replica trains on {rows}",
                hint="pass x[training.rows] of the global batch",
            )
        began = time.monotonic()
        torch.manual_seed(self._recipe.seed + self.done * LOCAL + self._replica)
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self._optimizer.zero_grad()
        local = self._run(inputs, targets)
        if self._averages:
            self._average()
        if self._recipe.clip is not None:
            self._clip_gradients(self._recipe.clip)
        self._optimizer.step()
        self.done += 1
        self._mean = self._sum(local / self.layout.data / self.layout.tensor)
        self._took_s.append(time.monotonic() - began)
        return self._mean

    def _divide(self, layers: Sequence[str], tensor: Mapping[str, str]) -> None:
        layout, mesh = self.layout, self._mesh
        parts = dividing.list_parts(self._bare, layers)
        module: nn.Module = self._bare
        self._schedule: Schedule1F1B | None = None
        if layout.pipeline > 1:
            stage = self._place("pp")
            module = chain = dividing.cut_stage(self._bare, parts, stage, layout.pipeline)
            parts = list(chain.names)
        if layout.tensor > 1 and mesh is not None:
            dividing.divide_tensors(self._bare, mesh["tp"], tensor)
        blocks = [self._bare.get_submodule(name) for name in parts]
        if layout.checkpointing:
            dividing.save_activations(blocks)
        if mesh is not None:
            module = dividing.share_data(module, blocks, mesh["dp"], layout)
        self._averages = layout.data > 1 and not isinstance(
            module, FSDPModule | DistributedDataParallel
        )
        self._module = module
        if layout.pipeline > 1 and mesh is not None:
            group = mesh.get_group("pp")
            part = PipelineStage(module, stage, layout.pipeline, self.device, group=group)
            self._schedule = Schedule1F1B(part, layout.accumulate, loss_fn=self._recipe.loss)

    def _parameters(self) -> list[nn.Parameter]:
        return [p for p in self._bare.parameters() if p.requires_grad]

    def _run(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Forward and backward; the mean loss of these rows where it is known, else 0."""
        if self._schedule is not None:
            return self._run_stage(self._schedule, inputs, targets)
        total, parts = torch.zeros((), device=self.device), self.layout.accumulate
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
        return torch.zeros((), device=self.device)

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
                local = _local(parameter.grad)
                dist.all_reduce(local, group=group)
                local.div_(self.layout.data)

    def _clip_gradients(self, most: float) -> None:
        """Scale gradients so that their norm over the whole model is at most `most`."""
        whole = self.layout.data * self.layout.tensor
        square = torch.zeros((), device=self.device)
        gradients = [p.grad for p in self._parameters() if p.grad is not None]
        for gradient in gradients:
            divided = isinstance(gradient, DTensor)
            copies = count_copies(gradient, self.layout) if divided else whole
            square += _local(gradient).square().sum() / copies
        factor = most / (self._sum(square) ** 0.5 + 1e-6)
        if factor < 1.0:
            for gradient in gradients:
                _local(gradient).mul_(factor)

    def _sum(self, value: torch.Tensor) -> float:
        if self._mesh is not None:
            dist.all_reduce(value)
        return float(value)

    def _place(self, dimension: str) -> int:
        return 0 if self._mesh is None else self._mesh.get_local_rank(dimension)

    def _agree(self, *, last: bool) -> None:
        """Save, or leave, at the same step on every rank."""
        for message in self._reports.receive():
            self._stop.asked |= isinstance(message, Stop)
        agreed = self._gang.read_sum()
        asks_save = float(self.rank == 0 and self._saves.ask())
        self._gang.begin_sum([float(self._stop.asked), asks_save])
        if self.rank == 0 and self._reports.is_due():
            self._report()
        if agreed is None or last:
            return
        if agreed[0]:
            self._leave()
        if agreed[1]:
            self._save()

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._bare, self._optimizer, options=FLAT)
        return {"model": model, "optimizer": optimizer, "done": self.done}

    def _restore(self) -> None:
        path = None if self._kept is None else self._kept.find_newest()
        if self._kept is None or path is None:
            return
        state = self._state()
        self._kept.load(state, path)
        set_state_dict(
            self._bare,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=FLAT,
        )
        self.done = int(state["done"])
        log_resume(self.rank, path)

    def _save(self) -> None:
        if self._kept is None:
            return
        began = time.monotonic()
        path = self._kept.save(self._state(), self.done)
        self._saves.note_saved(time.monotonic() - began)
        if self.rank == 0:
            self._reports.report_saved(self.done, 0, str(path))

    def _report(self) -> None:
        if self.rank == 0 and self._took_s:
            self._reports.report(self._describe)

    def _describe(self) -> dict[str, float]:
        batch, layout = self._recipe.batch, self.layout
        return {
            "step_s": median(self._took_s),
            "batch": float(batch),
            "per_gpu": float(batch // (layout.data * layout.accumulate)),
            "accumulate": float(layout.accumulate),
            "replicas": float(layout.data),
            "nodes": float(self._nodes),
            "mem_gb": measure_memory_gb(self.device),
            "steps": float(self.done),
            "samples": float(self.done * batch),
            "total_steps": float(self._count),
            "progress": self.done / self._count,
            "work": float(self._count * batch),
            "loss": self._mean,
        }

    def _leave(self) -> None:
        self._gang.read_sum()
        self._save()
        self._gang.wait()
        self._reports.leave("stopped")
        self._gang.leave()
        raise SystemExit(0)

    def _say_end(self, error: BaseException | None) -> None:
        if self._reports.left:
            return
        self._reports.leave_after(error)
        if error is None:
            self._gang.leave()


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


# ---- Checkpoints that every rank writes its part of, and that any plan can read
#
# Each is a folder of PyTorch's distributed checkpoint. It is written under a passing name and
# renamed inside the fence once every rank has written. The last two are kept.


KEPT = 2
_NAME = re.compile(r"step-(\d{12})\.dcp")


class ShardedCheckpoints:
    """The checkpoints of one attempt of a job in one folder that every rank sees."""

    def __init__(self, folder: Path, gang: RankGang, attempt: int) -> None:
        self._folder, self._gang, self._attempt = folder, gang, attempt

    def find_newest(self) -> Path | None:
        """The newest whole one, the same on every rank; None if there is none."""
        kept = self._list_kept() if self._gang.rank == 0 else []
        newest: Path | None = self._gang.broadcast(kept[0] if kept else None)
        return newest

    def save(self, state: dict[str, Any], step: int) -> Path:
        """Write every rank's part; raises `Fenced` at every rank where another attempt owns it."""
        partial = self._folder / f".writing-{self._attempt}-{step}"
        if self._gang.rank == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
        self._gang.wait()
        save(state, checkpoint_id=partial, no_dist=self._gang.alone)
        self._gang.wait()
        final, error = self._folder / f"step-{step:012d}.dcp", None
        if self._gang.rank == 0:
            error = self._publish(partial, final)
        error = self._gang.broadcast(error)
        if error is not None:
            raise error
        return final

    def load(self, state: dict[str, Any], path: Path) -> None:
        """Fill `state`, whose tensors are divided as this plan divides them."""
        load(state, checkpoint_id=path, no_dist=self._gang.alone)

    def _publish(self, partial: Path, final: Path) -> Exception | None:
        try:
            with fence.held(self._folder, self._attempt):
                shutil.rmtree(final, ignore_errors=True)
                partial.rename(final)
                for old in self._list_kept()[KEPT:]:
                    shutil.rmtree(old)
        except Exception as error:  # raised at every rank, or the others would wait for this one
            shutil.rmtree(partial, ignore_errors=True)
            return error
        return None

    def _list_kept(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        names = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(names, reverse=True)
