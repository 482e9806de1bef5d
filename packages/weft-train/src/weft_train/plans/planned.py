"""A training under an execution plan that may change from one start to the next.

    training = wt.plan(build, optimizer, loss, batch=64, layers=("embed", "blocks.*", "head"),
                       tensor={"*.up": "column", "*.down": "row"})
    for step in training.steps(10_000):
        x, y = read_batch(step)
        loss = training.step(x[training.rows], y[training.rows])

The global batch, and so the loss, is the same under every plan.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh

from weft_train.base import fence
from weft_train.base.environment import Environment
from weft_train.base.messages import Drop, GroupPlan, Stop
from weft_train.checkpoints.save_times import SaveTimes
from weft_train.errors import TrainError
from weft_train.plans.divided import DividedModel, PlanRecipe, build_empty
from weft_train.plans.layout import ParallelLayout, divide_batch, make_mesh, read_layout
from weft_train.ranks.gang import RankGang
from weft_train.ranks.live_resize import LiveResize
from weft_train.ranks.shards import Shards
from weft_train.reports import Reports, log_resume, measure_memory_gb
from weft_train.stopping import StopRequest, call_at_exit

RECENT = 20  # steps whose median time is reported
LOCAL = 1 << 31  # seeds of a step: one for each replica
STOP, SAVE, READY, FAILED = range(4)  # the vector that is summed over the ranks, by position


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
        text: str,
        recipe: PlanRecipe,
    ) -> None:
        self.layout, self.device, self.done, self._text = layout, gang.device, 0, text
        self.rows = divide_batch(layout, recipe.batch, gang.rank // layout.tensor % layout.data)
        self._gang, self._reports, self._saves, self._recipe = gang, reports, saves, recipe
        self._nodes, self._count, self._ended = env.nodes, 0, 0.0
        self._took_s: deque[float] = deque(maxlen=RECENT)
        self._mean, self._stop = float("nan"), StopRequest()
        self._kept = ShardedCheckpoints(folder, gang, env.attempt) if folder else None
        self._live = self._find_live(env, layout)
        self._offered, self._divisions = False, itertools.count()
        torch.manual_seed(recipe.seed)
        model = recipe.build().to(gang.device)
        # A rank that joins has the whole model until it has peers to divide it with.
        self._whole: nn.Module | None = model if gang.joining else None
        self._now: DividedModel | None = None if gang.joining else self._divide(model)
        self._next: DividedModel | None = None
        self._restore()
        call_at_exit(self._say_end)

    def _find_live(self, env: Environment, layout: ParallelLayout) -> LiveResize | None:
        """Return the means to change ranks in training; None, with a report why, if none."""
        why = ""
        if layout.tensor > 1 or layout.pipeline > 1:
            why = f"plan {layout.text} divides tensors or layers over them"
        elif layout.offload:
            why = f"plan {layout.text} keeps a part of the state outside the GPU"
        if why:
            if env.most_ranks > 1 and self._gang.rank == 0:
                self._reports.report_restart(why)
            return None
        live = LiveResize(env, self._gang, self._reports)
        live.sharded = self
        return live if live.wraps else None

    def _divide(self, model: nn.Module) -> DividedModel:
        """The model, divided over the ranks that began together."""
        layout, mesh = self.layout, None
        if layout.offload and self._gang.alone:
            self._gang.form_alone()
        if layout.offload or self._gang.size > 1:
            mesh = make_mesh(layout, self.device.type)
        return DividedModel(model, layout, mesh, self._recipe, self.device)

    @property
    def rank(self) -> int:
        """Number of this process among the job's, from 0."""
        return self._gang.rank

    def steps(self, count: int) -> Iterator[int]:
        """Numbers of the steps that are left of `count`; the training may be stopped after each."""
        self._count = count
        if self._whole is not None and self._live is not None:
            self.done = self._live.join(self, self._whole)
            self._whole = None
        self._saves.start_clock()
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
        assert self._now is not None
        if self._live is not None and not self._offered:
            self._live.shapes.watch(self._now.bare)
        began = time.monotonic()
        torch.manual_seed(self._recipe.seed + self.done * LOCAL + self._now.replica)
        self._mean = self._now.train(inputs, targets)
        self.done += 1
        self._ended = time.monotonic()
        self._took_s.append(self._ended - began)
        return self._mean

    def _agree(self, *, last: bool) -> None:
        """Save, leave, or change the ranks, at the same step on every rank."""
        for message in self._reports.receive():
            self._stop.asked |= isinstance(message, Stop)
            if isinstance(message, (GroupPlan, Drop)) and self._live is not None:
                self._live.on_message(message)
                if isinstance(message, GroupPlan):
                    self._refuse_uneven(self._live, len(message.members))
        agreed = self._gang.read_sum()
        asks_save = float(self.rank == 0 and self._saves.ask())
        flags = (False, False) if self._live is None else self._live.flags
        self._gang.begin_sum([float(self._stop.asked), asks_save, *map(float, flags)])
        if self.rank == 0 and self._reports.is_due():
            self._report()
        self._offer()
        if agreed is None or last:
            return
        if agreed[STOP]:
            self._leave()
        if agreed[SAVE]:
            self._save()
        if agreed[READY] + agreed[FAILED] == self._gang.size:
            self._change(give_up=agreed[FAILED] > 0.0)

    # ---- ranks that come and go

    def _offer(self) -> None:
        """After the first step, with all that the optimizer keeps: ranks may come and go."""
        if self._live is not None and self._now is not None and not self._offered:
            self._offered = True
            self._live.offer(self._now.measure_gb())

    def _refuse_uneven(self, live: LiveResize, ranks: int) -> None:
        try:
            divide_batch(read_layout(self._text, ranks), self._recipe.batch, 0)
        except TrainError as error:
            live.say_cannot_switch(str(error))

    def _change(self, *, give_up: bool) -> None:
        assert self._live is not None
        self._gang.read_sum()  # of an epoch that is decided already; what it asked is asked again
        self._saves.ask_again()
        if give_up:
            self._live.give_up()
            return
        changed = self._live.switch(self, self._ended, self.done)
        if changed is None:
            self._reports.send_last_word("resized")
            raise SystemExit(0)
        if changed:
            self._nodes = self._gang.nodes
            self._took_s.clear()

    def collect_state(self) -> dict[str, Any]:
        """State that is equal on all ranks; the rest is exchanged by name."""
        if self._now is None:
            return {}
        return {"counts": {"steps": self.done}, "settings": self._now.settings}

    def take_state(self, state: dict[str, Any]) -> None:
        assert self._now is not None
        self._now.settings = state["settings"]

    def parts(self) -> Shards:
        """Shards of the model and the optimizer on this rank."""
        assert self._now is not None
        return self._now.parts()

    def divide_again(self, ranks: int, group: Any) -> Shards:
        """The model, divided over other ranks, beside the one that trains."""
        layout, mesh = read_layout(self._text, ranks), None
        if ranks > 1:
            # Torch keeps what it worked out for a mesh for all that are equal, and this one may
            # have as many ranks as one before, with this rank in another place.
            name = f"dp-{next(self._divisions)}"
            mesh = DeviceMesh.from_group(group, self.device.type, mesh_dim_names=(name,))
        model = self._whole or build_empty(self._recipe, self.device)
        self._next = DividedModel(model, layout, mesh, self._recipe, self.device)
        return self._next.parts()

    def settle_parts(self, *, good: bool) -> None:
        """Train on with the model that was divided again, or without it."""
        following, self._next = self._next, None
        if following is None:
            return
        if not good:
            following.free()
            return
        if self._now is not None:
            following.take_rest(self._now)
            self._now.free()
        self._now, self.layout, self.rows = following, following.layout, following.rows

    def _restore(self) -> None:
        path = None if self._kept is None or self._now is None else self._kept.find_newest()
        if self._kept is None or self._now is None or path is None:
            return
        state = {**self._now.state(), "done": self.done}
        self._kept.load(state, path)
        self._now.load(state)
        self.done = int(state["done"])
        log_resume(self.rank, path)

    def _save(self) -> None:
        if self._kept is None or self._now is None:
            return
        began = time.monotonic()
        path = self._kept.save({**self._now.state(), "done": self.done}, self.done)
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
        self._reports.send_last_word("stopped")
        self._gang.release_groups()
        raise SystemExit(0)

    def _say_end(self, error: BaseException | None) -> None:
        if self._reports.left:
            return
        self._reports.leave_after(error)
        if error is None:
            self._gang.release_groups()


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
