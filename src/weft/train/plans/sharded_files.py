"""Checkpoints that every rank writes its part of, and that any plan can read.

Each is a folder of PyTorch's distributed checkpoint. It is written under a passing name and renamed
inside the fence once every rank has written. The last two are kept.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from weft.train.ranks.gang import Gang
from weft.wire import fence

KEPT = 2
_NAME = re.compile(r"step-(\d{12})\.dcp")


class ShardedCheckpoints:
    """The checkpoints of one attempt of a job in one folder that every rank sees."""

    def __init__(self, folder: Path, gang: Gang, attempt: int) -> None:
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
