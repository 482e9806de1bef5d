"""Checkpoints that are whole or not there at all.

A file is the saved state followed by one line of 256 bytes: a JSON object with format, step,
epoch, bytes and SHA-256 of what comes before. It is written under a passing name, synced, and
renamed inside the fence; then the directory is synced. The last two are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from weft_train.base import fence
from weft_train.base.fence import is_url
from weft_train.errors import BadCheckpoint, TrainError

FORMAT = 2
READABLE = (1, 2)  # 1 called the random states "chance"
FOOTER = 256
KEPT = 2
CHUNK = 1 << 20
_NAME = re.compile(r"step-(\d{12})\.ckpt")


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint on disk."""

    path: Path
    step: int


class Checkpoints:
    """The checkpoints of one attempt of a job in one directory."""

    def __init__(self, directory: str | os.PathLike[str], attempt: int = 0) -> None:
        self.directory = Path(directory)
        self.attempt = attempt

    def save(self, state: Mapping[str, Any], step: int, epoch: int) -> Path:
        """Write `state`; OSError leaves the older ones as they were, as does `Fenced`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        final = self.directory / f"step-{step:012d}.ckpt"
        partial = self.directory / f".writing-{os.getpid()}"
        try:
            with partial.open("wb") as out:
                write_state(out, state, step, epoch)
            with fence.held(self.directory, self.attempt):
                partial.replace(final)
                _sync_folder(self.directory)
                self._prune()
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        return final

    def list_kept(self) -> list[Kept]:
        """List checkpoints with final names, newest first; they may still be incomplete."""
        if not self.directory.is_dir():
            return []
        files = [
            Kept(path, int(match[1]))
            for path in self.directory.iterdir()
            if (match := _NAME.fullmatch(path.name))
        ]
        return sorted(files, key=lambda kept: -kept.step)

    def find_newest(self) -> tuple[Path | None, list[str]]:
        """The newest whole checkpoint, and what to warn of among those skipped.

        Files that are not whole are set aside as NAME.corrupt, so that they are not counted
        among the kept.
        """
        warnings: list[str] = []
        for kept in self.list_kept():
            try:
                verify(kept.path)
            except BadCheckpoint as error:
                aside = kept.path.with_name(kept.path.name + ".corrupt")
                with contextlib.suppress(OSError):
                    kept.path.replace(aside)
                warnings.append(f"skipped a corrupted checkpoint, kept as {aside}: {error}")
            else:
                return kept.path, warnings
        return None, warnings

    def load(self, path: Path) -> dict[str, Any]:
        return load(path)

    def _prune(self) -> None:
        for old in self.list_kept()[KEPT:]:
            old.path.unlink(missing_ok=True)


def folder_only(place: str | os.PathLike[str]) -> Path:
    """A place that must be a folder."""
    if is_url(place):
        raise TrainError(
            f"checkpoints in {place} can be written by `weft_train.init` alone",
            hint="name a folder that all nodes see: `checkpoint: {dir: FOLDER}`",
        )
    return Path(place)


def verify(path: Path) -> dict[str, Any]:
    """The footer of a whole checkpoint; `BadCheckpoint` says what is wrong with another."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            about = _read_footer(path, file, size)
            digest = _hash_contents(file, size - FOOTER)
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error}") from error
    if digest != about.get("sha256"):
        raise BadCheckpoint(f"{path}: its contents are not those that were written")
    return about


def load(path: Path) -> dict[str, Any]:
    """The state in a checkpoint, on the CPU."""
    verify(path)
    with path.open("rb") as file:
        # The file is the job's own and its checksum holds; user states may be any object.
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=False)
    if "chance" in state:
        state["rng"] = state.pop("chance")
    return state


def _read_footer(path: Path, file: BinaryIO, size: int) -> dict[str, Any]:
    if size < FOOTER:
        raise BadCheckpoint(f"{path} is cut short: {size} bytes")
    file.seek(size - FOOTER)
    try:
        about = json.loads(file.read(FOOTER))
    except ValueError as error:
        raise BadCheckpoint(f"{path} is cut short or altered: no footer") from error
    if not isinstance(about, dict) or about.get("bytes") != size - FOOTER:
        raise BadCheckpoint(f"{path} is cut short or altered: {size - FOOTER} bytes of state")
    if about.get("format") not in READABLE:
        raise BadCheckpoint(f"{path} has format {about.get('format')!r}, expected {FORMAT}")
    return about


def _hash_contents(file: BinaryIO, size: int) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(CHUNK, size))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


class _Hashing:
    """A file that hashes what is written to it and remembers why a write failed."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.digest = hashlib.sha256()
        self.size = 0
        self.failed: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            written = self._out.write(data)
        except OSError as error:
            self.failed = error
            raise
        self.digest.update(data)
        self.size += written
        return written

    def flush(self) -> None:
        self._out.flush()


def write_state(out: Any, state: Mapping[str, Any], step: int, epoch: int) -> None:
    """The state and the line that says it is whole, on disk when it returns."""
    body = _Hashing(out)
    try:
        torch.save(dict(state), body)  # type: ignore[arg-type]
    except Exception:
        # torch turns a failed write into an error of its own; the disk's answer says more.
        if body.failed is not None:
            raise body.failed from None
        raise
    about = {
        "format": FORMAT,
        "step": step,
        "epoch": epoch,
        "bytes": body.size,
        "sha256": body.digest.hexdigest(),
    }
    out.write(json.dumps(about).encode().ljust(FOOTER - 1) + b"\n")
    out.flush()
    os.fsync(out.fileno())


def _sync_folder(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
