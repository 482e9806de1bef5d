"""Find and write a job's checkpoints, with all ranks at the same step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from weft_train.base.errors import Fenced
from weft_train.checkpoints import rng_state
from weft_train.ranks.gang import RankGang
from weft_train.reports import Reports, log_resume
from weft_train.step import Trained

FENCED_EXIT = 3


class Stateful(Protocol):
    """Anything that can be saved with the job."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any:
        """Load the state that `state_dict` returned."""
        ...


class CheckpointStore(Protocol):
    """A store of whole checkpoints; `save` returns the places that `load` takes."""

    def save(self, state: Mapping[str, Any], step: int, epoch: int) -> Any:
        """The place of a new one; OSError and Fenced leave what there was."""
        ...

    def find_newest(self) -> tuple[Any, list[str]]: ...

    def load(self, place: Any, /) -> dict[str, Any]: ...


class CheckpointSaver:
    """One rank's part in finding and writing; rank 0 chooses and writes for all."""

    def __init__(
        self, checkpoints: CheckpointStore | None, gang: RankGang, reports: Reports
    ) -> None:
        self._checkpoints, self._gang, self._reports = checkpoints, gang, reports

    def find(self) -> dict[str, Any]:
        """The newest whole checkpoint's state, the same on every rank; empty if there is none.

        A rank that joins others as they train is sent theirs.
        """
        if self._gang.joining:
            return {}
        path, warnings = None, list[str]()
        if self._checkpoints is not None and self._gang.rank == 0:
            path, warnings = self._checkpoints.find_newest()
        for text in warnings:
            self._reports.report_notice("warning", text)
        path = self._gang.broadcast(path)
        if path is None or self._checkpoints is None:
            return {}
        log_resume(self._gang.rank, path)
        return self._checkpoints.load(path)

    def save(self, state: Callable[[], dict[str, Any]], step: int, epoch: int) -> float | None:
        """Write `state()` with the ranks' random states; the seconds it took, None if not written.

        Raises Fenced where another attempt owns the checkpoints.
        """
        rng = self._gang.gather(rng_state.capture(self._gang.device))
        if self._checkpoints is None or self._gang.rank != 0:
            return None
        began = time.monotonic()
        try:
            path = self._checkpoints.save({**state(), "rng": rng}, step, epoch)
        except Fenced as error:
            text = f"another attempt of the job owns its checkpoints: {error}"
            self._reports.report_notice("error", text)
            raise
        except OSError as error:
            lost = "; the one before it stays, training goes on"
            self._reports.report_notice("warning", f"could not write a checkpoint: {error}{lost}")
            return None
        self._reports.report_saved(step, epoch, str(path))
        return time.monotonic() - began


def restore_groups(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Set rates, momenta and the like as a checkpoint has them.

    Making a schedule sets the learning rate to its first one, after `job.wrap` restored it.
    """
    for group, kept in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        group.update({name: value for name, value in kept.items() if name != "params"})


def take_trained(trained: Trained, state: dict[str, Any]) -> None:
    """Model, optimizer and scaler as in a state whose tensors may be their own already."""
    take_model(trained.bare, state["model"])
    trained.optimizer.load_state_dict(state["optimizer"])
    if trained.scaler is not None and state["scaler"]:
        trained.scaler.load_state_dict(state["scaler"])


def take_model(model: torch.nn.Module, state: dict[str, Any]) -> None:
    """Parameters and buffers as in a state whose tensors may be the model's own already."""
    own = model.state_dict()
    for name, value in state.items():
        if own[name].data_ptr() != value.data_ptr():
            own[name].copy_(value)
